"""A real Kafka server on loopback, for the contract tests and the benchmarks.

Its jars are fetched from Maven once (about 60 MB, kept in the user's cache). It starts in about
4 s; broker and controller are one process. ``secure=True`` adds two listeners: mutual TLS, and TLS
with SASL PLAIN, with new certificates.

    with KafkaServer(Path("/some/empty/folder")) as kafka:
        kafka.create_topic("reports", partitions=2)
        ... kafka.bootstrap_servers ...
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from kafka import KafkaAdminClient

from tests.servers.certificates import Certificates, make_certificates
from tests.servers.jvm import SHORT_LIVED
from tests.servers.tools import LoggedProcess, fetched_once, free_ports, ivy_retrieve, java, run

JARS: Final = Path(__file__).parents[2] / "deploy" / "kafka-server-jars.xml"
SASL_USER: Final = "quotaplane"
SASL_PASSWORD: Final = 'pass"word\\with,odd=characters;'
"""Contains every character that must be escaped in a JAAS line."""

VERSION: Final = "4.1.0"
"""The server's, as in ``JARS``."""
OTHER_VERSIONS: Final = ("3.9.1", "4.4.0")
"""Servers that the plugin is tried with, too."""

_READY: Final = "Kafka Server started"
_CONF: Final = "kraft.properties"
_MAX_MESSAGE_BYTES: Final = 32 * 1024 * 1024
_CLUSTER_ID: Final = "cXVvdGFwbGFuZS10ZXN0cw"


class KafkaServer(LoggedProcess):
    """One server. ``stop`` and ``start`` again keep its data and its ports."""

    def __init__(
        self,
        folder: Path,
        *,
        heap_mb: int = 512,
        jvm_options: str = SHORT_LIVED,
        secure: bool = False,
        proxied: Sequence[str] = (),
        access_rules: bool = False,
        users: Sequence[str] = (),
        version: str = VERSION,
        extra_jars: Sequence[Path] = (),
        properties: Mapping[str, str] | None = None,
        ports: Mapping[str, int] | None = None,
        log4j2_yaml: str = "",
    ) -> None:
        """Not started yet.

        Args:
            folder: of its own.
            heap_mb: of its JVM.
            jvm_options: of its JVM; the default starts in half the time and is slow under load.
            secure: also listen with TLS.
            proxied: names of more listeners (letters), whose clients are sent on to the second port
                of ``proxy_ports``.
            access_rules: obey ACLs; all clients are User:ANONYMOUS, unless they log in.
            users: may log in with ``SASL_PASSWORD``; with access rules they may do only what these
                allow. ANONYMOUS is a superuser then.
            version: of the server.
            extra_jars: in front of the server's in its class path.
            properties: more lines of its properties file; they replace those of the same name.
            ports: of PLAINTEXT and CONTROLLER; None: free ones.
            log4j2_yaml: what it logs, on its standard output; "": warnings, and when it serves.
        """
        self._folder = folder
        options = [f"-Xmx{heap_mb}m", *jvm_options.split()]
        self._log4j2 = folder / ("log4j2.yaml" if log4j2_yaml else "log4j2.properties")
        self._logging = log4j2_yaml or _LOG4J
        options += [f"-Dlog4j2.configurationFile={self._log4j2}"]
        self._classpath = os.pathsep.join([*map(str, extra_jars), f"{kafka_jars(version)}/*"])
        self._more = dict(properties or {})
        command = [java(), *options, "-cp", self._classpath, "kafka.Kafka", f"{folder}/{_CONF}"]
        super().__init__("Kafka", folder / "server.log", command)
        self._access_rules, self._users = access_rules, users
        plain, controller, tls, sasl = free_ports(4)
        self._ports = dict(ports or {"PLAINTEXT": plain, "CONTROLLER": controller})
        self._proxies = dict(zip(proxied, free_ports(len(proxied)), strict=True))
        self._ports |= dict(zip(proxied, free_ports(len(proxied)), strict=True))
        self.certificates: Certificates | None = None
        if secure:
            self.certificates = make_certificates(folder / "certificates")
            self._ports |= {"SSL": tls, "SASL_SSL": sasl}

    def bootstrap(self, listener: str = "PLAINTEXT") -> str:
        """``host:port`` of a listener: PLAINTEXT, and with ``secure`` SSL and SASL_SSL."""
        return f"127.0.0.1:{self._ports[listener]}"

    def login(self, user: str = SASL_USER, password: str = SASL_PASSWORD) -> dict[str, Any]:
        """Settings of a transport that logs in; with ``secure`` only."""
        login = {"sasl_mechanism": "PLAIN", "username": user, "password": password}
        return self._encrypted("SASL_SSL", **login)

    def mutual_tls(self) -> dict[str, Any]:
        """Settings of a transport that shows a certificate; with ``secure`` only."""
        assert self.certificates is not None
        certificate, key = self.certificates.client_certificate, self.certificates.client_key
        return self._encrypted("SSL", certificate_file=str(certificate), key_file=str(key))

    def _encrypted(self, listener: str, **security: str) -> dict[str, Any]:
        assert self.certificates is not None
        security |= {"protocol": listener, "ca_file": str(self.certificates.authority)}
        return {"bootstrap_servers": self.bootstrap(listener), "security": security}

    def proxy_ports(self, listener: str) -> tuple[int, int]:
        """Ports of a listener in ``proxied``: its proxy's, and the server's own."""
        return self._proxies[listener], self._ports[listener]

    @property
    def bootstrap_servers(self) -> str:
        return self.bootstrap()

    def start(self) -> None:
        """Start and wait until it serves.

        Raises:
            AssertionError: it did not come up; the message ends with its log.
        """
        self.launch()
        self.wait_until_ready()

    def launch(self) -> None:
        """Start without waiting; with an empty folder its storage is formatted before."""
        properties = self._folder / _CONF
        if not properties.exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            properties.write_text(self._properties())
            self._log4j2.write_text(self._logging)
            tool = [java(), *SHORT_LIVED.split(), "-cp", self._classpath]
            tool += ["kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties)]
            run("formatting Kafka's storage", tool)
        super().start()

    def wait_until_ready(self) -> None:
        """Wait until it serves.

        Raises:
            AssertionError: it did not come up; the message ends with its log.
        """
        self.wait_until(lambda: _READY in self.said())

    def more_properties(self, properties: Mapping[str, str]) -> None:
        """Add lines to its properties file, before it is started."""
        self._more |= properties

    def create_topic(
        self, name: str, *, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Create a topic and return its name once it has leaders."""
        options: dict[str, Any] = {"num_partitions": partitions, "replication_factor": 1}
        options["configs"] = dict(configs or {})
        admin = KafkaAdminClient(bootstrap_servers=self.bootstrap_servers)
        try:
            admin.create_topics({name: options}, wait_for_metadata=True)
        finally:
            admin.close()
        return name

    def data(self, topic: str) -> list[Path]:
        """The files with a topic's records, as it keeps them."""
        return sorted((self._folder / "data").glob(f"{topic}-*/*.log"))

    def _properties(self) -> str:
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items())
        names = [*self._ports]
        advertised = ",".join(
            f"{name}://127.0.0.1:{self._proxies.get(name, port)}"
            for name, port in self._ports.items()
            if name != "CONTROLLER"
        )
        plain = {"CONTROLLER", *self._proxies}
        lines = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.quorum.voters": f"1@{self.bootstrap('CONTROLLER')}",
            "listeners": listeners,
            "advertised.listeners": advertised,
            "listener.security.protocol.map": ",".join(
                f"{name}:{'PLAINTEXT' if name in plain else name}" for name in names
            ),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(self._folder / "data"),
            "auto.create.topics.enable": "false",
            "message.max.bytes": str(_MAX_MESSAGE_BYTES),
            "replica.fetch.max.bytes": str(_MAX_MESSAGE_BYTES),
            "num.partitions": "1",
            "offsets.topic.replication.factor": "1",
            "offsets.topic.num.partitions": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
            # Tests send records dated tomorrow and months ago. Retention goes by the record's own
            # time, so it would delete the old ones half a minute after the start.
            "log.message.timestamp.after.max.ms": str(2**63 - 1),
            "log.retention.ms": "-1",
        }
        if self._access_rules:
            lines |= {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "allow.everyone.if.no.acl.found": "false" if self._users else "true",
            }
            if self._users:
                lines["super.users"] = "User:ANONYMOUS"
        if self.certificates is not None:
            lines |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(self.certificates.server_keystore),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.certificates.authority),
                "listener.name.ssl.ssl.client.auth": "required",
                "listener.name.sasl_ssl.sasl.enabled.mechanisms": "PLAIN",
                "listener.name.sasl_ssl.plain.sasl.jaas.config": _server_jaas(self._users),
            }
        return "".join(f"{name}={value}\n" for name, value in {**lines, **self._more}.items())


_LOG4J: Final = """\
status=error
rootLogger.level=warn
rootLogger.appenderRef.console.ref=console
appender.console.type=Console
appender.console.name=console
appender.console.layout.type=PatternLayout
appender.console.layout.pattern=%d %p %c{1}: %m%n
logger.ready.name=kafka.server.KafkaRaftServer
logger.ready.level=info
logger.plugin.name=io.quotaplane.kafka
logger.plugin.level=info
"""


def kafka_jars(version: str = VERSION) -> Path:
    """Return the folder of the server's jars, fetched at the first call on this machine.

    Raises:
        RuntimeError: they could not be fetched; the message is the resolver's.
    """
    with tempfile.NamedTemporaryFile("w", prefix="kafka-", suffix=".xml") as wanted:
        wanted.write(JARS.read_text().replace(VERSION, version))
        wanted.flush()
        path = Path(wanted.name)

        def fetch(jars: Path) -> None:
            ivy_retrieve(path, ["jar", "bundle"], f"{jars}/[artifact]-[revision].[ext]")

        return fetched_once("kafka-server", path, fetch)


def _server_jaas(users: Sequence[str]) -> str:
    from quotaplane.transport.kafka_options import jaas_config

    client = jaas_config("PLAIN", SASL_USER, SASL_PASSWORD)
    secret = client.partition(" password=")[2].rstrip(";")
    logins = "".join(f" user_{user}={secret}" for user in (SASL_USER, *users))
    line = client.rstrip(";") + f"{logins};"
    return line.replace("\\", "\\\\")  # once more for the properties file
