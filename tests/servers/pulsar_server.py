"""Runs a real Pulsar on loopback for the contract tests: one broker, its bookie, its metadata.

The stock distribution comes from Maven once (240 MB, kept unpacked in the user's cache). Broker and
bookie run in one process, the metadata in a folder beside them; ready in about 10 s. Not ``pulsar
standalone``: that takes no settings for its bookie (messages above 5 MB kill it), chooses the
bookie's port anew, and has to be started twice before the usage transport comes up.

    with PulsarServer(Path("/some/empty/folder")) as pulsar:
        namespace = pulsar.rest.create_namespace("public/tests")
        topic = pulsar.rest.create_topic(f"persistent://{namespace}/reports")
        ... pulsar.service_url ...
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.servers.certificates import Certificates, make_certificates
from tests.servers.pulsar_rest import PulsarRest
from tests.servers.pulsar_roles import (
    CLUSTER,
    Role,
    bookie_conf,
    broker_conf,
    initialize_metadata,
    usage_transport,
    write_conf,
)
from tests.servers.pulsar_security import ADMIN, Tokens
from tests.servers.tools import free_ports

_PROVIDERS = "org.apache.pulsar.broker.authentication.AuthenticationProvider"


class PulsarServer(Role):
    """One server. ``stop`` and ``start`` again keep its data and its ports.

    With ``secure`` it also listens with TLS, and requires a token (that of ``ADMIN`` may do
    everything) or the client certificate, which is an admin's.
    """

    rest: PulsarRest
    """A client with the admin's rights; exists once the server runs."""

    def __init__(
        self,
        folder: Path,
        *,
        heap_mb: int = 768,
        report_interval_s: int = 2,
        stats_interval_s: int = 5,
        secure: bool = False,
        cluster: str = CLUSTER,
    ) -> None:
        self._folder = folder
        self.cluster = cluster
        self._metadata = f"rocksdb://{folder / 'metadata'}"
        self._port, self._web_port, bookie, self._tls_port, self._web_tls_port = free_ports(5)
        self.certificates: Certificates | None = None
        self.tokens: Tokens | None = None
        broker = broker_conf(self._metadata, self._port, self._web_port)
        # One broker has nothing to balance; it takes every topic.
        broker |= {"loadBalancerEnabled": "false", "clusterName": cluster}
        broker |= usage_transport(report_interval_s, stats_interval_s)
        # By default the first update is after a minute, and a young broker differs from others.
        broker |= {"statsUpdateInitialDelayInSecs": str(stats_interval_s)}
        if secure:
            self.certificates = make_certificates(folder / "certificates")
            self.tokens = Tokens(folder)
            broker |= self._security(self.certificates, self.tokens)
        conf = write_conf(folder / "broker.conf", broker, "broker.conf")
        bookies = write_conf(folder / "bookie.conf", bookie_conf(folder, self._metadata, bookie))
        options = ["--run-bookie", "--bookie-conf", str(bookies)]
        super().__init__(folder, "broker", heap_mb, conf, *options)

    @property
    def service_url(self) -> str:
        return f"pulsar://127.0.0.1:{self._port}"

    @property
    def admin_url(self) -> str:
        return f"http://127.0.0.1:{self._web_port}"

    def token(self, role: str = ADMIN) -> str:
        """With ``secure`` only."""
        assert self.tokens is not None
        return self.tokens.sign(role)

    def tls(self, **security: Any) -> dict[str, Any]:
        """Settings of a transport that uses TLS; with ``secure`` only."""
        assert self.certificates is not None
        return {
            "service_url": f"pulsar+ssl://127.0.0.1:{self._tls_port}",
            "admin_url": f"https://127.0.0.1:{self._web_tls_port}",
            "security": {"ca_file": str(self.certificates.authority), **security},
        }

    def start(self) -> None:
        """Start and wait until it serves.

        Raises:
            AssertionError: it did not come up; the message ends with its log.
        """
        if not (self._folder / "metadata").exists():
            urls = self.admin_url, self.service_url
            initialize_metadata(self._folder, self._metadata, *urls, self.cluster)
        super().start()
        self.rest = PulsarRest(self.admin_url, token=self.token() if self.tokens else None)
        self.wait_until(self.rest.is_ready)

    def stop(self) -> None:
        """Stop it cleanly, or by force after 20 s."""
        super().stop()
        self.rest.close()

    def _security(self, certificates: Certificates, tokens: Tokens) -> dict[str, str]:
        return {
            "brokerServicePortTls": str(self._tls_port),
            "webServicePortTls": str(self._web_tls_port),
            "tlsCertificateFilePath": str(certificates.server_certificate),
            "tlsKeyFilePath": str(certificates.server_key),
            "tlsTrustCertsFilePath": str(certificates.authority),
            "authenticationEnabled": "true",
            "authenticationProviders": f"{_PROVIDERS}Tls,{_PROVIDERS}Token",
            "tokenSecretKey": f"file://{tokens.key_file}",
            "authorizationEnabled": "true",
            "superUserRoles": f"{ADMIN},{certificates.client_name}",
            # The broker's own client, which uses the topics of reports and policies.
            "brokerClientAuthenticationPlugin": (
                "org.apache.pulsar.client.impl.auth.AuthenticationToken"
            ),
            "brokerClientAuthenticationParameters": f"token:{tokens.sign(ADMIN)}",
        }
