"""The quota job beside a stock Pulsar: an administrator only uses Pulsar's own REST API."""

from __future__ import annotations

import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from quotaplane.errors import ClusterError, TransportError
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import list_groups
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import BrokerLink
from quotaplane.wire.limits import decode_limits
from tests.job import ROOT, RunningJob, write_conf
from tests.servers.proxy import NetFault, Proxies
from tests.servers.pulsar_clients import publishing, pulsar_transport
from tests.servers.pulsar_server import PulsarServer
from tests.servers.tools import free_ports

REPORTS_EVERY_S = 2.0
BY = "pulsar:quotaplane"


@pytest.fixture
def namespace(pulsar_server: PulsarServer) -> str:
    """A namespace of a new tenant."""
    rest = pulsar_server.rest
    tenant = rest.create_tenant(f"acme-{uuid.uuid4().hex[:8]}")
    return rest.create_namespace(f"{tenant}/orders")


@pytest.fixture
def busy(pulsar_server: PulsarServer, namespace: str) -> Iterator[None]:
    """Publish to the namespace, 100 messages a second if not throttled."""
    with publishing(pulsar_server.service_url, f"persistent://{namespace}/topic", per_s=100):
        yield


class ReceivedLimits:
    """The limits of one broker and group, read from the limits topic."""

    def __init__(self, link: BrokerLink, broker: str, group: str) -> None:
        self._link, self._broker, self._group = link, broker, group
        self._limits: list[float] | None = None

    def are(self, publish_messages: float, dispatch_bytes: float = np.inf) -> bool:
        """Whether these are the limits now."""
        limits = self._newest() or [-1.0] * 4
        return (limits[0], limits[3]) == (publish_messages, dispatch_bytes)

    def are_removed(self) -> bool:
        """Whether the group was removed."""
        return self._newest() is None

    def _newest(self) -> list[float] | None:
        for key, value, _ in self._link.poll_limits().messages:
            update = decode_limits(value)
            assert update.broker == key == self._broker
            limits = dict(zip(update.groups, update.limits.tolist(), strict=True))
            self._limits = limits.get(self._group, self._limits)
            if self._group in update.removed_groups:
                self._limits = None
        return self._limits


@pytest.mark.nightly
def test_groups_and_tenants_of_the_cluster_reach_its_broker(
    pulsar_server: PulsarServer, namespace: str, busy: None, tmp_path: Path
) -> None:
    rest, tenant = pulsar_server.rest, namespace.partition("/")[0]
    group = f"rg-{tenant}"
    topic = rest.create_topic(f"persistent://{rest.create_namespace(f'{tenant}/ops')}/limits")
    (port,) = free_ports(1)
    with Proxies() as proxies:
        proxy = proxies.open(port, int(pulsar_server.admin_url.rpartition(":")[2]))
        conf = write_conf(
            tmp_path,
            pulsar_transport(
                pulsar_server.service_url, f"http://127.0.0.1:{port}", topic, timeout_s=10
            ),
            reports={"interval_s": REPORTS_EVERY_S},
            brokers={"stale_after_intervals": 60, "expire_after_intervals": 60},
            trigger={"interval_s": 0.3},
            cluster={"poll_interval_s": 0.3, "tenants": {tenant: group}},
        )
        with RunningJob(conf) as job:
            log = job.log
            link = open_broker_link(job.settings.transport, limits_from="earliest")
            received = ReceivedLimits(link, pulsar_server.service_url, group)
            job.wait_until(lambda: f"no resource group '{group}'" in log.read_text())

            # An administrator makes a group. The tenant's namespaces are attached, old and new.
            rest.put_group(group, publish_messages_per_s=120)
            job.wait_until(lambda: group_of(pulsar_server, namespace) == group)
            later = rest.create_namespace(f"{tenant}/later")
            job.wait_until(lambda: group_of(pulsar_server, later) == group)
            job.wait_until(lambda: received.are(120))

            # Another quota; then the enforcer hides it in a take-over (ADR 0024).
            rest.put_group(group, publish_messages_per_s=60, dispatch_bytes_per_s=5000)
            job.wait_until(lambda: received.are(60, 5000))
            version = len(group_changes(job.settings.history))
            rest.put_group(group, dispatch_bytes_per_s=5000)
            answered = proxy.answers
            job.wait_until(lambda: proxy.answers > answered + 40)
            assert len(group_changes(job.settings.history)) == version

            # The API is gone, then it is slow: the job goes on, reports it once, and catches up.
            rounds = job.rounds()
            proxy.set(NetFault("cut"))
            rest.put_group(group, publish_messages_per_s=90)
            connections = proxy.connections
            job.wait_until(lambda: proxy.connections > connections + 3)
            job.wait_until(lambda: job.rounds() > rounds)
            assert received.are(60, 5000)
            answered = proxy.answers
            proxy.set(NetFault("delay", to_server=False, delay_s=2.0))
            job.wait_until(lambda: proxy.answers > answered)
            proxy.set(None)
            job.wait_until(lambda: received.are(90))
            sync = re.compile(r" quotaplane: (?:warning|recovered): resource group sync: ")
            lines = [line for line in log.read_text().splitlines() if sync.search(line)]
            assert len(lines) == 2, lines
            assert " quotaplane: warning: " in lines[0]
            assert f"Pulsar's REST API at http://127.0.0.1:{port}: " in lines[0]
            assert "resource group sync: over after" in lines[1]

            # Pulsar refuses to delete a group that is attached to a namespace.
            other = rest.put_group(f"other-{tenant}")
            for each in (namespace, later, f"{tenant}/ops"):
                rest.attach(each, other)
            rest.call("DELETE", f"resourcegroups/{group}")
            job.wait_until(received.are_removed)

            # The other group never had a publish quota: it is unlimited until it gets one.
            def publish_quota_of(name: str) -> float | None:
                rows = list_groups(job.settings.history).select(["group", "publish_messages_per_s"])
                return dict(zip(*rows.to_pydict().values(), strict=True)).get(name, np.nan)

            job.wait_until(lambda: publish_quota_of(other) is None)
            rest.put_group(other, publish_messages_per_s=70)
            job.wait_until(lambda: publish_quota_of(other) == 70)
            assert np.isnan(publish_quota_of(group))

            link.close()
            job.stop()
    changes = group_changes(job.settings.history, group)
    assert [change["by"] for change in changes] == [BY] * 4
    assert (changes[0]["from"], changes[-1]["to"]) == (None, None)
    assert "Traceback" not in log.read_text()


def group_of(server: PulsarServer, namespace: str) -> str | None:
    found = server.rest.call("GET", f"namespaces/{namespace}").get("resource_group_name")
    assert found is None or isinstance(found, str)
    return found


@pytest.mark.nightly
@pytest.mark.parametrize("may_use_topics", [False, True])
def test_a_token_that_may_not_is_one_line(
    secure_pulsar_server: PulsarServer, tmp_path: Path, may_use_topics: bool
) -> None:
    server, role = secure_pulsar_server, f"reader-{uuid.uuid4().hex[:8]}"
    token = server.token(role)
    topic = server.rest.create_topic(f"persistent://public/default/limits-{role}")
    if may_use_topics:
        for namespace in ("public/default", "pulsar/system"):
            path = f"namespaces/{namespace}/permissions/{role}"
            server.rest.call("POST", path, ["produce", "consume"])
    transport = pulsar_transport(server.service_url, server.admin_url, topic, timeout_s=10)
    conf = write_conf(tmp_path, transport | {"security": {"token": token}}, cluster={})
    done = subprocess.run(
        [ROOT / "spark-submit.sh", "quota", "--conf", str(conf)],
        capture_output=True,
        text=True,
        timeout=120,
    )
    # Brokers that leave cannot be followed either, but that alone would not stop the job.
    also = (": history: created", "warning: list of brokers: ")
    lines = [line for line in done.stderr.splitlines() if not any(a in line for a in also)]
    assert len(lines) == 1, done.stderr
    assert token not in done.stderr
    assert "check transport.security and what its role may do" in done.stderr
    if may_use_topics:  # but is no superuser, which groups need
        assert done.returncode == ClusterError.exit_code
        assert "brokers/configuration/runtime: 401 " in done.stderr
    else:
        assert done.returncode in (ClusterError.exit_code, TransportError.exit_code)
        assert topic.rpartition("/")[2] in done.stderr
