"""Wrapper of pulsar-client: connections, and errors that name the cluster and the reason."""

from __future__ import annotations

import json
import math
import os
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pulsar

from quotaplane.errors import ConfigError, TransportError
from quotaplane.settings import PulsarConnection, PulsarSecurity

MISSING: Final = (
    "does not exist: create it, or correct the name; `quotaplane setup pulsar --apply --conf FILE` "
    "creates all topics of a settings file"
)
"""The text about a missing topic."""

_WORDS: Final = {
    "Timeout": "no answer in time",
    "ConnectError": "can't be reached",
    "AuthenticationError": "authentication failed; check security",
    "AuthorizationError": "the role may not do this; check security and what it is allowed",
    "TopicNotFound": MISSING,
    "MessageTooBig": "the message is too large",
}
"""Texts for pulsar-client's errors, which have a name and little else."""

PASSING: Final = (
    pulsar.Timeout,
    pulsar.exceptions.ConnectError,
    pulsar.exceptions.NotConnected,
    pulsar.exceptions.AlreadyClosed,
    pulsar.exceptions.ServiceUnitNotReady,
    pulsar.exceptions.BrokerMetadataError,
    pulsar.exceptions.BrokerPersistenceError,
    pulsar.exceptions.TooManyLookupRequestException,
    # Seen in a cluster without authorization, while topics of a killed broker were reassigned.
    pulsar.exceptions.AuthorizationError,
    pulsar.exceptions.UnknownError,
)
"""Errors that are temporary: a broker restarts, or its topics move to another one."""


def open_client(place: PulsarConnection, *, answers_within_s: float | None = None) -> pulsar.Client:
    """Create a client; it connects on first use. Its log is discarded.

    ``answers_within_s``: patience with the broker's answers; None: the time for connecting.

    Raises:
        ConfigError: a file in ``security`` can't be read.
    """
    security = place.security
    for key in ("ca_file", "certificate_file", "key_file", "token_file"):
        _readable(key, getattr(security, key))
    options: dict[str, Any] = {}
    authentication = _authentication(security)
    if authentication is None and security.certificate_file is not None:
        authentication = pulsar.AuthenticationTLS(security.certificate_file, security.key_file)
    elif security.certificate_file is not None:
        options["tls_certificate_file_path"] = security.certificate_file
        options["tls_private_key_file_path"] = security.key_file
    wait_s = place.timeout_s
    return pulsar.Client(
        place.service_url,
        authentication=authentication,
        operation_timeout_seconds=max(1, math.ceil(answers_within_s or wait_s)),
        connection_timeout_ms=max(1, int(wait_s * 1000)),
        tls_trust_certs_file_path=security.ca_file or ssl.get_default_verify_paths().cafile,
        tls_validate_hostname=security.verify_hostname,
        stats_interval_in_seconds=0,
        # A Python logger would be called by the client's threads while Python shuts down.
        logger=pulsar.FileLogger(pulsar.LoggerLevel.Error, os.devnull),
        **options,
    )


def _authentication(security: PulsarSecurity) -> Any:
    if security.token is not None:
        return pulsar.AuthenticationToken(security.token.get_secret_value())
    if security.token_file is not None:
        path = Path(security.token_file)
        return pulsar.AuthenticationToken(lambda: path.read_text(encoding="utf-8").strip())
    if security.oauth2 is None:
        return None
    oauth2 = security.oauth2
    parameters = {
        "type": "client_credentials",
        "issuer_url": oauth2.issuer_url,
        "audience": oauth2.audience,
        "scope": oauth2.scope,
        "client_id": oauth2.client_id,
        "client_secret": oauth2.client_secret and oauth2.client_secret.get_secret_value(),
        "private_key": oauth2.private_key_file,
    }
    if oauth2.private_key_file is not None:
        _readable("oauth2.private_key_file", oauth2.private_key_file)
    return pulsar.AuthenticationOauth2(
        json.dumps({k: v for k, v in parameters.items() if v is not None})
    )


def _readable(key: str, path: str | None) -> None:
    if path is None:
        return
    try:
        with open(path, "rb"):
            pass
    except OSError as error:
        # In settings the key has dots, as an option of the Data Source underscores.
        option = key.replace(".", "_")
        raise ConfigError(
            f"option {option} or transport.security.{key}: {path}: can't be read: {error.strerror}"
        ) from None


def close_quietly(client: pulsar.Client) -> None:
    """Close a client and everything that it opened; errors are ignored.

    Not ``shutdown``: it holds Python's global lock, and waits 10 s if a callback needs that lock.
    """
    with suppress(pulsar.PulsarException):
        client.close()


def partitions_of(client: pulsar.Client, place: PulsarConnection, topic: str) -> list[str]:
    """The topic's partitions, or the topic itself if it has none. Does not create it.

    Raises:
        TransportError: no answer within ``timeout_s``, or the cluster refuses.
    """
    answered = threading.Event()
    answer: list[Any] = []

    def keep(result: Any, partitions: list[str]) -> None:
        answer.extend((result, partitions))
        answered.set()

    # The client's own timeout has no effect if a server accepts connections but never answers.
    with as_transport_error(place, f"topic {topic!r}"):
        client._client.get_topic_partitions_async(topic, keep)
    if not answered.wait(place.timeout_s + 1.0):
        raise TransportError(unreachable(place))
    result, partitions = answer
    if result == pulsar.Result.Ok:
        return list(partitions)
    if result.name in ("Timeout", "ConnectError", "TimeOut", "Retryable", "Disconnected"):
        raise TransportError(unreachable(place))
    raise TransportError(f"Pulsar at {place.service_url}: topic {topic!r}: {words(result.name)}")


def unreachable(place: PulsarConnection) -> str:
    """The message about a cluster that did not answer: which, a likely reason, what to check."""
    return (
        f"Pulsar at {place.service_url}: can't be reached within {place.timeout_s:g} s "
        f"({_why_not(place)}); check service_url and security"
    )


def _why_not(place: PulsarConnection) -> str:
    """The error of a plain connection to the first address, as the client only logs its own."""
    url = urlsplit(place.service_url.split(",")[0])
    tls = url.scheme == "pulsar+ssl"
    host, port = url.hostname or "", url.port or (6651 if tls else 6650)
    try:
        with socket.create_connection((host, port), timeout=place.timeout_s) as plain:
            if not tls:
                return _SILENT
            context = ssl.create_default_context(cafile=place.security.ca_file)
            context.check_hostname = place.security.verify_hostname
            with context.wrap_socket(plain, server_hostname=host):
                return _SILENT
    except OSError as error:
        return " ".join((error.strerror or str(error) or type(error).__name__).split())


_SILENT: Final = "it accepts connections but does not answer, as brokers do that refuse a token"


def words(name: str) -> str:
    """The text for an error of pulsar-client."""
    return _WORDS.get(name, name)


@contextmanager
def as_transport_error(place: PulsarConnection, what: str) -> Iterator[None]:
    """Turn exceptions of pulsar-client into one-line errors."""
    try:
        yield
    except (pulsar.Timeout, pulsar.exceptions.ConnectError):
        raise TransportError(f"{unreachable(place)}: {what}") from None
    except pulsar.PulsarException as error:
        why = words(type(error).__name__)
        raise TransportError(f"Pulsar at {place.service_url}: {what}: {why}") from None
