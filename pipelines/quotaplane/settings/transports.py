"""Settings of the transports of reports and limits."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import ClassVar, Final, Literal, get_args

from pydantic import Field, SecretStr, field_validator, model_validator

from quotaplane.errors import InputError
from quotaplane.parsing.folders import FolderUri
from quotaplane.settings.section import Section, TopicName

BROKER: Final = "{broker}"
_IN_A_NAME: Final = "[A-Za-z0-9._-]+"
"""Characters that both Kafka and Pulsar allow in a topic's name."""
_PARTITION: Final = re.compile(r"-partition-\d+$")


def is_per_broker(name: str) -> bool:
    """Whether a name of a topic stands for the topics of all brokers."""
    return BROKER in name


def check_topic_names(names: Iterable[str]) -> None:
    """Check the places of ``{broker}`` in names of report topics.

    Raises:
        ValueError: a place is wrong; says which.
    """
    for name in names:
        rest = name.replace(BROKER, "", 1)
        if "{" in rest or "}" in rest:
            raise ValueError(f"{name!r}: only one {BROKER} may be in a topic's name")
        last = name.rpartition("/")[2]
        if is_per_broker(name) and (not is_per_broker(last) or last.startswith(BROKER)):
            raise ValueError(
                f"{name!r}: {BROKER} must be in the topic's own name, behind some other characters"
            )


def pattern_of(names: Iterable[str]) -> str:
    r"""A regular expression for the names of all these topics; a group for each ``{broker}``.

    Python and Java read it alike.

    >>> print(pattern_of(["reports", "reports-{broker}"]))
    reports|reports\-([A-Za-z0-9._-]+)
    """
    return "|".join(f"({_IN_A_NAME})".join(map(re.escape, name.split(BROKER, 1))) for name in names)


def belongs(name: str, topic: str) -> bool:
    """Whether a topic is the one of this name, or one of those that it stands for.

    >>> belongs("reports-{broker}", "reports-b1"), belongs("reports-{broker}", "reports")
    (True, False)
    """
    return re.fullmatch(pattern_of([name]), topic) is not None


def topic_of(name: str, broker: str) -> str:
    """The topic of a broker.

    >>> topic_of("reports-{broker}", "b1"), topic_of("reports", "b1")
    ('reports-b1', 'reports')

    Raises:
        InputError: the broker's name can't be in a topic's name.
    """
    if not is_per_broker(name):
        return name
    if not re.fullmatch(_IN_A_NAME, broker):
        raise InputError(
            f"broker {broker[:80]!r}: {name} needs names of letters, digits, '.', '_' and '-'"
        )
    return name.replace(BROKER, broker)


def brokers_of(names: Sequence[str], topics: Iterable[str | None]) -> list[bytes | None]:
    """For each topic (or partition of one in Pulsar) the broker that it belongs to; None: no one's.

    >>> names = ["persistent://a/b/reports-{broker}"]
    >>> brokers_of(names, ["persistent://a/b/reports-b1-partition-0", "persistent://a/b/other"])
    [b'b1', None]
    """
    pattern = re.compile(pattern_of(names))
    found = []
    for topic in topics:
        plain = topic or ""
        if "://" in plain:
            plain = _PARTITION.sub("", plain)
        match = pattern.fullmatch(plain)
        broker = None if match is None or match.lastindex is None else match[match.lastindex]
        found.append(None if broker is None else broker.encode())
    return found


STOCK_REPORTS: Final = "non-persistent://pulsar/system/resource-usage"
"""The topic to which stock Pulsar's brokers write their usage reports."""


PUBLISH_TIMEOUTS: Final = 3.0
"""The time that sending a message may take, in timeouts of a request: a leader may change."""

_TIMEOUT: Final = Field(default=10.0, gt=0, le=600)


def is_live(topic: str) -> bool:
    """Whether the topic is non-persistent, so that only connected consumers get a message."""
    return topic.startswith("non-persistent://")


class DeltaTransport(Section):
    """The embedded transport: Delta tables instead of topics; no server is needed."""

    kind: Literal["delta"]
    """``delta``: tables instead of topics, without a server. Set it for a try, or for agents on
    this host."""
    path: FolderUri
    """Local folder of the topics' tables, the same for the job, brokers and executor. Always set
    it."""
    max_files_per_trigger: int | None = Field(default=None, ge=1)
    """Most sends that a micro-batch reads; null: 1000. Leave it; lower it if a backlog is too much
    for the host's memory."""
    starting: Literal["earliest", "latest"] = "earliest"
    """Where a new checkpoint begins to read. Set ``latest`` if earlier reports shall not be
    read."""
    attachments_topic: ClassVar[str] = "attachments_topic"


class KafkaSecurity(Section):
    """TLS and SASL, for Spark's consumer and for the producer of limits."""

    protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = "PLAINTEXT"
    """TLS and login of the brokers' listener. Set it to what the listener has."""
    ca_file: str | None = None
    """PEM file with trusted authorities; null: the system's. Set it if the brokers' certificates
    are from an authority of your own."""
    certificate_file: str | None = None
    """PEM file with the client certificate. Set it, and ``key_file``, if brokers ask for one
    (mutual TLS)."""
    key_file: str | None = None
    """PEM file with the client certificate's private key."""
    key_password: SecretStr | None = None
    """Password of ``key_file``. Set it if the file is encrypted."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    """Mechanism of the login. Set it with a SASL protocol, as the brokers have it."""
    username: str | None = None
    """Name of the login. Set it with ``sasl_mechanism``."""
    password: SecretStr | None = None
    """Password of the login. Set it with ``sasl_mechanism``."""

    @model_validator(mode="after")
    def _complete(self) -> KafkaSecurity:
        sasl = self.protocol.startswith("SASL")
        if sasl != (self.sasl_mechanism is not None):
            raise ValueError("sasl_mechanism goes with protocol SASL_PLAINTEXT or SASL_SSL")
        if sasl and (self.username is None or self.password is None):
            raise ValueError("SASL needs username and password (use ${NAME} for the environment)")
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together")
        return self


class KafkaTransport(Section):
    """Reports from Kafka topics, limits to a Kafka topic keyed by broker."""

    kind: Literal["kafka"]
    """``kafka``: topics of a Kafka cluster."""
    bootstrap_servers: str
    """Some brokers of the cluster, host:port, separated by commas. Always set it."""
    report_topics: tuple[str, ...] = Field(min_length=1)
    """Topics of usage reports; ``{broker}`` in a name stands for any broker's: a topic each. Always
    set it."""
    limits_topic: str
    """Topic of limits, keyed by broker. Always set it."""
    attachments_topic: TopicName | None = None
    """Compacted topic of attachments, which say who belongs to which group; null: they are not
    published. Set it for brokers with the plugin, or for agents that ask ``group_of``."""
    starting: Literal["earliest", "latest"] = "latest"
    """Where a new checkpoint begins to read; a restart continues where it stopped. Set ``earliest``
    to count reports from before the first start."""
    max_reports_per_trigger: int | None = Field(default=5000, ge=1)
    """Most reports, or load reports, in a micro-batch; null: no bound. Raise it if a backlog grows;
    lower it if memory is small."""
    timeout_s: float = _TIMEOUT
    """Time in which a server must answer a request; a sent message may take three times that. Raise
    it for a slow network."""
    security: KafkaSecurity = KafkaSecurity()
    fail_on_data_loss: bool = True
    """Stop if the topic deleted reports before the job read them. Set false if limits matter more
    than complete usage."""
    group_id_prefix: str = Field(default="quotaplane", min_length=1)
    """Prefix of Spark's consumer groups. Set it to what the cluster's access rules allow."""
    compression: Literal["none", "gzip", "lz4", "zstd"] = "none"
    """Compression of sent messages; lz4 and zstd need the Python package of that name. Set it if
    the network to the cluster is slow."""

    @property
    def publish_timeout_s(self) -> float:
        """If the cluster has not accepted a message by then, that is an error."""
        return PUBLISH_TIMEOUTS * self.timeout_s

    @field_validator("report_topics")
    @classmethod
    def _places(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        check_topic_names(names)
        return names


class OAuth2(Section):
    """The client-credentials flow, as in Pulsar's clients."""

    issuer_url: str = Field(pattern=r"^https?://")
    """URL of the issuer of tokens. Set it to what your Pulsar clients have."""
    audience: str
    """Audience that the issuer requires. Set it to what your Pulsar clients have."""
    scope: str | None = None
    """Scope of the tokens; null: the issuer's default. Set it if the issuer requires one."""
    client_id: str | None = None
    """Id of this client at the issuer. Set it with ``client_secret``, or set
    ``private_key_file``."""
    client_secret: SecretStr | None = None
    """Secret of this client at the issuer."""
    private_key_file: str | None = None
    """JSON file with ``client_id`` and ``client_secret``, instead of these two. Set it if your
    issuer gives such files."""

    @model_validator(mode="after")
    def _one_way(self) -> OAuth2:
        by_file = self.private_key_file is not None
        if by_file == (self.client_id is not None and self.client_secret is not None):
            raise ValueError("oauth2 needs client_id and client_secret, or private_key_file")
        return self


class PulsarSecurity(Section):
    """TLS and authentication, for the binary protocol and for the REST API.

    URLs select encryption: ``pulsar+ssl://`` and ``https://``.
    """

    ca_file: str | None = None
    """PEM file with trusted authorities; null: the system's. Set it if the brokers' certificates
    are from an authority of your own."""
    verify_hostname: bool = True
    """Check that the certificate has the host's name. Leave it; set false only for a try with
    certificates that lack it."""
    certificate_file: str | None = None
    """PEM file with the client certificate. Set it, and ``key_file``, if brokers ask for one
    (mutual TLS)."""
    key_file: str | None = None
    """PEM file with the client certificate's private key."""
    token: SecretStr | None = None
    """A JSON web token. Set it, the file or ``oauth2`` if the cluster asks for a login."""
    token_file: str | None = None
    """File with the token, read again for each connection. Set it if tokens are renewed."""
    oauth2: OAuth2 | None = None

    @model_validator(mode="after")
    def _complete(self) -> PulsarSecurity:
        if (self.certificate_file is None) != (self.key_file is None):
            raise ValueError("certificate_file and key_file go together")
        ways = [self.token, self.token_file, self.oauth2]
        if sum(way is not None for way in ways) > 1:
            raise ValueError("token, token_file and oauth2 exclude each other")
        return self


_TOPIC: Final = re.compile(r"^(non-persistent|persistent)://[^/\s]+/[^/\s]+/[^/\s]+$")


def _full_topic(name: str) -> str:
    if not _TOPIC.match(name):
        raise ValueError(f"{name!r} is not a topic: write persistent://tenant/namespace/topic")
    return name


class PulsarConnection(Section):
    """Connection to a Pulsar cluster."""

    service_url: str = Field(pattern=r"^pulsar(\+ssl)?://[^\s/]+/?$")
    """URL of the cluster's binary protocol; ``pulsar+ssl://`` encrypts. Always set it."""
    admin_url: str | None = Field(default=None, pattern=r"^https?://[^\s/]+/?$")
    """REST API of any broker, or of a proxy; ``https://`` encrypts. Set it for ``cluster``, the
    enforcer and the balancer."""
    timeout_s: float = _TIMEOUT
    """Time in which a server must answer a request; a sent message may take three times that. Raise
    it for a slow network."""
    security: PulsarSecurity = PulsarSecurity()
    compression: Literal["none", "lz4", "zlib", "zstd", "snappy"] = "none"
    """Compression of sent messages. Set it if the network to the cluster is slow."""

    @property
    def publish_timeout_s(self) -> float:
        """If the cluster has not accepted a message by then, that is an error."""
        return PUBLISH_TIMEOUTS * self.timeout_s


class PulsarTransport(PulsarConnection):
    """Reports from Pulsar topics, limits to a Pulsar topic keyed by broker."""

    kind: Literal["pulsar"]
    """``pulsar``: topics of a Pulsar cluster."""
    report_topics: tuple[str, ...] = (STOCK_REPORTS,)
    """Topics of usage reports; default: that of stock brokers. One name may have ``{broker}`` in
    it: a topic each. Set it for your own agents or observed usage."""
    limits_topic: str
    """Persistent topic of limits, keyed by broker. Always set it."""
    attachments_topic: TopicName | None = None
    """Compacted persistent topic of attachments, which say who belongs to which group; null: they
    are not published. Set it for agents that ask ``group_of``."""
    starting: Literal["earliest", "latest"] = "latest"
    """Where a new checkpoint begins to read; a restart continues where it stopped. Set ``earliest``
    to count reports from before the first start."""
    max_reports_per_trigger: int | None = Field(default=5000, ge=1)
    """Most reports, or load reports, in a micro-batch; null: no bound. Raise it if a backlog grows;
    lower it if memory is small."""
    fail_on_data_loss: bool = True
    """Stop if retention may have deleted reports before the job read them. Set false with observed
    usage, which is not kept."""

    def full_name(self, topic: str) -> str:
        """A topic's full name; a short name is in the namespace of the limits topic."""
        return topic if "://" in topic else f"{self.limits_topic.rpartition('/')[0]}/{topic}"

    @field_validator("limits_topic")
    @classmethod
    def _limits_are_kept(cls, name: str) -> str:
        if is_live(_full_topic(name)):
            raise ValueError("must be persistent: later readers of limits must find them")
        return name

    @field_validator("report_topics")
    @classmethod
    def _full_topics(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        if not names:
            raise ValueError("at least one topic is needed")
        check_topic_names(names)
        if len(names) > 1 and any(map(is_per_broker, names)):
            raise ValueError("a name with {broker} must be the only one: it is read as a pattern")
        return tuple(map(_full_topic, names))

    @model_validator(mode="after")
    def _topics_listed(self) -> PulsarTransport:
        if self.admin_url is None and any(map(is_per_broker, self.report_topics)):
            raise ValueError("{broker} in report_topics needs admin_url, which lists the topics")
        return self


TransportSettings = DeltaTransport | KafkaTransport | PulsarTransport

TRANSPORT_KINDS: Final = tuple(
    get_args(each.model_fields["kind"].annotation)[0] for each in get_args(TransportSettings)
)
"""The values of ``transport.kind``."""
