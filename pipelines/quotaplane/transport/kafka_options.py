"""Converts the settings of a Kafka cluster for kafka-python and for Spark's JVM client.

Certificates and keys travel to the JVM by value, not by path, so that executors on other machines
need no copy of the files.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from quotaplane.errors import ConfigError
from quotaplane.settings import KafkaSecurity, KafkaTransport
from quotaplane.settings.transports import is_per_broker, pattern_of
from quotaplane.texts import first_few

FETCH_WAIT_MS: Final = 10
"""How long a broker may delay an empty fetch. With Kafka's default of 500 ms a small micro-batch
takes 0.8 s instead of 0.5 s."""

_FETCH_BYTES: Final = 16 << 20
"""Per partition and fetch. Reports may be megabytes; Kafka's default of 1 MB would fetch each of
these separately."""

_PATIENCE_S: Final = 180.0
"""A cluster that does not answer for so long is an error."""

_PAUSE_S: Final = 1.0
"""Spark's between two tries."""

SIZE_CONFIGS: Final = ("compression.type", "max.message.bytes")
"""A topic's settings that limit the size of a record."""

CLEANUP: Final = "cleanup.policy"
"""A topic's setting that says whether it is compacted."""

_RECORD_OVERHEAD_BYTES: Final = 64 << 10
"""Allowance for a record's parts beside its value: key, headers, the batch's header."""

_MOST_NAMED: Final = 10
"""Topics in one warning."""

REDACTED_OPTIONS: Final = "(?i)url|jaas|keystore|truststore|password"
"""Options of a source that Spark must not print in plans, errors and its web page."""

_PBES2: Final = bytes.fromhex("06092a864886f70d01050d")
"""Bytes in the header of a key encrypted with PBES2, OpenSSL's default, which Java 17 and 21
lack."""

_LOGIN_MODULES: Final = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def client_options(settings: KafkaTransport) -> dict[str, Any]:
    """Return the keyword arguments of every kafka-python client.

    Raises:
        ConfigError: a certificate or key file can't be read.
    """
    security = settings.security
    for key in ("ca_file", "certificate_file", "key_file"):
        _read(security, key)
    options: dict[str, Any] = {
        "bootstrap_servers": bootstrap_servers(settings),
        "client_id": "quotaplane",
        # The default backs off up to 30 s from a server that restarts.
        "reconnect_backoff_max_ms": 1000,
        "security_protocol": security.protocol,
        "ssl_cafile": security.ca_file,
        "ssl_certfile": security.certificate_file,
        "ssl_keyfile": security.key_file,
        "ssl_password": security.key_password and security.key_password.get_secret_value(),
        "sasl_mechanism": security.sasl_mechanism,
        "sasl_plain_username": security.username,
        "sasl_plain_password": security.password and security.password.get_secret_value(),
    }
    return {name: value for name, value in options.items() if value is not None}


def bootstrap_servers(settings: KafkaTransport) -> list[str]:
    """Split the comma-separated list, as Kafka's own tools do.

    >>> bootstrap_servers(KafkaTransport(kind="kafka", bootstrap_servers="a:9092, b:9092",
    ...     report_topics=("r",), limits_topic="l"))
    ['a:9092', 'b:9092']
    """
    return [server.strip() for server in settings.bootstrap_servers.split(",") if server.strip()]


def source_options(settings: KafkaTransport) -> dict[str, str]:
    """Return the options of Spark's Kafka source.

    Raises:
        ConfigError: a certificate or key file can't be read, or Java can't use its format.
    """
    options = {
        "kafka.bootstrap.servers": ",".join(bootstrap_servers(settings)),
        **_subscription(settings.report_topics),
        "startingOffsets": settings.starting,
        "failOnDataLoss": str(settings.fail_on_data_loss).lower(),
        "groupIdPrefix": settings.group_id_prefix,
        "kafka.fetch.max.wait.ms": str(FETCH_WAIT_MS),
        "kafka.max.partition.fetch.bytes": str(_FETCH_BYTES),
        **_patience(settings.timeout_s),
    }
    if settings.max_reports_per_trigger is not None:
        options["maxOffsetsPerTrigger"] = str(settings.max_reports_per_trigger)
    return options | _java_security(settings.security)


def _patience(timeout_s: float) -> dict[str, str]:
    """How long Spark asks for the end of the topics: in short tries.

    Within a try Kafka's client keeps asking the server that led a partition at first, even if that
    is dead and another one leads: with its own timeouts for a minute.

    >>> _patience(10.0)["fetchOffset.numRetries"]
    '16'
    """
    timeout_ms = str(round(1000 * timeout_s))
    return {
        "kafka.request.timeout.ms": timeout_ms,
        "kafka.default.api.timeout.ms": timeout_ms,
        "fetchOffset.numRetries": str(max(round(_PATIENCE_S / (timeout_s + _PAUSE_S)), 1)),
    }


def _subscription(topics: Sequence[str]) -> dict[str, str]:
    if any(map(is_per_broker, topics)):
        return {"subscribePattern": pattern_of(topics)}
    return {"subscribe": ",".join(topics)}


def size_warnings(
    settings: KafkaTransport, configs: Mapping[str, Mapping[str, str]], max_report_bytes: int
) -> list[str]:
    """A warning about report topics that accept records larger than a report, if there are any.

    ``configs``: the known ``SIZE_CONFIGS`` of each topic, empty where none is known. A broker
    compares the decompressed size with the limit only with ``compression.type=uncompressed``.
    """
    most = max_report_bytes + _RECORD_OVERHEAD_BYTES
    unknown = [name for name, config in configs.items() if not config]
    unbounded = [
        name
        for name, config in configs.items()
        if config
        and (
            config["compression.type"] != "uncompressed" or int(config["max.message.bytes"]) > most
        )
    ]
    if unbounded:
        what = "can hold records that decompress to more memory than the job has"
    elif unknown:
        what = "may hold records of any size: their settings can't be read (right DescribeConfigs)"
    else:
        return []
    topics = first_few(map(repr, unbounded or unknown), _MOST_NAMED)
    return [
        f"Kafka at {settings.bootstrap_servers}: topics {topics} {what}; set "
        f"compression.type=uncompressed and max.message.bytes={max_report_bytes} "
        "(docs/operate/kafka.md, Large records)"
    ]


def cleanup_warnings(
    settings: KafkaTransport, configs: Mapping[str, Mapping[str, str]]
) -> list[str]:
    """Warn about a topic of attachments that does not keep the newest message of each key."""
    warnings = []
    for topic, config in configs.items():
        policy = config.get(CLEANUP)
        if policy == "compact":
            continue
        doubt = "its settings can't be read (right DescribeConfigs): it may not be compacted"
        wrong = f"{CLEANUP} is {policy}, so attachments are deleted with time"
        warnings.append(
            f"Kafka at {settings.bootstrap_servers}: topic {topic!r}: "
            f"{doubt if policy is None else wrong}; set {CLEANUP}=compact (docs/operate/kafka.md)"
        )
    return warnings


def jaas_config(mechanism: str, username: str, password: str) -> str:
    r"""Return Kafka's ``sasl.jaas.config``; quotes, backslashes and line ends are escaped.

    >>> print(jaas_config("PLAIN", "me", 'a"b\\c').split(" required ")[1])
    username="me" password="a\"b\\c";
    """
    return (
        f"{_LOGIN_MODULES[mechanism]} required "
        f"username={_quoted(username)} password={_quoted(password)};"
    )


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("\n", "\\n").replace("\r", "\\r") + '"'


def _java_security(security: KafkaSecurity) -> dict[str, str]:
    options: dict[str, str] = {"kafka.security.protocol": security.protocol}
    if (authorities := _read(security, "ca_file")) is not None:
        options["kafka.ssl.truststore.type"] = "PEM"
        options["kafka.ssl.truststore.certificates"] = authorities
    certificate, key = _read(security, "certificate_file"), _read(security, "key_file")
    if certificate is not None and key is not None:
        _check_key(security.key_file, key)
        options["kafka.ssl.keystore.type"] = "PEM"
        options["kafka.ssl.keystore.certificate.chain"] = certificate
        options["kafka.ssl.keystore.key"] = key
        if security.key_password is not None:
            options["kafka.ssl.key.password"] = security.key_password.get_secret_value()
    if security.sasl_mechanism and security.username is not None and security.password is not None:
        options["kafka.sasl.mechanism"] = security.sasl_mechanism
        options["kafka.sasl.jaas.config"] = jaas_config(
            security.sasl_mechanism, security.username, security.password.get_secret_value()
        )
    return options


def _check_key(path: str | None, key: str) -> None:
    """Check the key's format: Java would reject it only when the stream starts, with a long
    trace.
    """
    kind, _, body = key.partition("-----BEGIN ")[2].partition("-----")
    body = body.partition("-----END")[0]
    if kind == "PRIVATE KEY" or (
        kind == "ENCRYPTED PRIVATE KEY" and _PBES2 not in base64.b64decode(body)[:64]
    ):
        return
    raise ConfigError(
        f"transport.security.key_file: {path}: Java can't read this form of key; convert it with "
        "`openssl pkcs8 -topk8 -v1 PBE-SHA1-3DES -in KEY -out NEW_KEY` (or -nocrypt)"
    )


def _read(security: KafkaSecurity, key: str) -> str | None:
    path: str | None = getattr(security, key)
    if path is None:
        return None
    try:
        return Path(path).read_text(encoding="ascii")
    except OSError as error:
        why = error.strerror
    except UnicodeDecodeError:
        why = "not a PEM file"
    raise ConfigError(f"transport.security.{key}: {path}: can't be read: {why}")
