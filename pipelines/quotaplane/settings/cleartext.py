"""Settings with which a token or password would cross a network without encryption."""

from __future__ import annotations

from collections.abc import Iterator

from quotaplane.parsing.addresses import clear_to, first_remote, has_password, is_loopback
from quotaplane.settings.section import Section
from quotaplane.settings.server import Server, Tracing
from quotaplane.settings.transports import (
    DeltaTransport,
    KafkaTransport,
    PulsarConnection,
    PulsarTransport,
    TransportSettings,
)


class Protections(Section):
    """Things that are refused by default and can be allowed."""

    allow_cleartext_secrets: bool = False
    """Send tokens and passwords to other hosts without TLS, where every host in between can read
    them. Set it on a private network only."""
    allow_unprotected_spark: bool = False
    """Use a remote Spark master without authentication and encryption: who reaches it can run code
    as the job. Set it on a private network only."""


def transport_flaws(transport: TransportSettings) -> Iterator[str]:
    """The flaws of a transport, each a line that names its keys.

    Without a default case: mypy then finds a transport that is missing here.
    """
    match transport:
        case PulsarTransport():
            return pulsar_flaws(transport)
        case KafkaTransport():
            return kafka_flaws(transport)
        case DeltaTransport():
            return iter(())


def pulsar_flaws(place: PulsarConnection) -> Iterator[str]:
    """The flaws of a connection to Pulsar, each a line that names its keys."""
    security = place.security
    ways = {"token": security.token, "token_file": security.token_file, "oauth2": security.oauth2}
    secret = next((name for name, value in ways.items() if value is not None), None)
    for key, url, scheme in (
        ("service_url", place.service_url, "pulsar+ssl"),
        ("admin_url", place.admin_url, "https"),
    ):
        if url is None or (host := clear_to(url)) is None:
            continue
        if secret is not None:
            yield f"{key}: security.{secret} would go to {host} in clear text; use {scheme}://"
        elif has_password(url):
            yield f"{key}: its password would go to {host} in clear text; use {scheme}://"
    issuer = security.oauth2 and clear_to(security.oauth2.issuer_url)
    if issuer is not None:
        yield (
            f"security.oauth2.issuer_url: the client's secret would go to {issuer} in clear text; "
            f"use https://"
        )


def kafka_flaws(transport: KafkaTransport) -> Iterator[str]:
    """The flaws of a connection to Kafka. SCRAM sends no password, but allows guessing offline."""
    host = first_remote(transport.bootstrap_servers)
    if transport.security.protocol == "SASL_PLAINTEXT" and host is not None:
        yield (
            "security.protocol: SASL_PLAINTEXT sends the password, or what it can be guessed "
            f"from, to {host} in clear text; use SASL_SSL"
        )


def server_flaws(server: Server) -> Iterator[str]:
    """The flaws of a server to which tokens are sent."""
    if not is_loopback(server.host) and server.tls is None:
        yield (
            f"host {server.host} is reached from other hosts, and tokens would go over the network "
            f"as they are: set tls (certificate_file, key_file; ended-by-a-proxy)"
        )


def tracing_flaws(tracing: Tracing) -> Iterator[str]:
    """The flaws of an OpenTelemetry collector's URL with a password."""
    url = tracing.endpoint or ""
    if has_password(url) and (host := clear_to(url)) is not None:
        yield f"endpoint: its password would go to {host} in clear text; use https://"
