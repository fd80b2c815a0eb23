"""An administrator's own rates hold beside an enforcer of a stock cluster of three brokers."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from quotaplane.registry.recorded_rates import list_administrator_rates
from tests.job import begin_history
from tests.servers.enforcer_process import EnforcerProcess, Limits, conf_for
from tests.servers.pulsar_clients import publishing
from tests.servers.pulsar_cluster import PulsarCluster
from tests.servers.pulsar_rest import dispatch_rate, publish_rate
from tests.servers.pulsar_roles import CLUSTER

pytestmark = pytest.mark.nightly

LIMIT = 300
MEASURED_S = 4.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarCluster]:
    settings = {"maxPublishRatePerTopicInMessages": "200"}
    with PulsarCluster(tmp_path_factory.mktemp("cluster"), broker_settings=settings) as cluster:
        cluster.rest().create_tenant("acme")
        yield cluster


def test_rates_of_administrators_hold_survive_and_come_back(
    cluster: PulsarCluster, tmp_path: Path
) -> None:
    rest = cluster.rest()
    own = rest.create_namespace("acme/own", bundles=8)
    spaced = rest.create_namespace("acme/spaced", bundles=8)
    # A group that neither the table nor the cluster has a quota of would keep its rates.
    group = rest.put_group("orders", publish_messages_per_s=1_000_000)
    for namespace in (own, spaced):
        rest.attach(namespace, group)
    held, high = cluster.topics_on(0, own, 2)
    far, under = cluster.topic_on(1, own), cluster.topic_on(2, spaced)

    def path(topic: str, kind: str = "publish") -> str:
        return f"{topic}/{kind}Rate"

    def rate(topic: str, kind: str = "publish") -> Any:
        return rest.call("GET", path(topic, kind))

    before = {
        path(held): publish_rate(5),
        path(high): publish_rate(4000, 50_000_000),
        path(far, "dispatch"): dispatch_rate(6000, period_s=60),
        path(high, "dispatch"): dispatch_rate(7),
    }
    for place, policy in before.items():
        rest.call("POST", place, policy)
    rest.call("POST", f"namespaces/{spaced}/publishRate", publish_rate(50))

    server: Any = SimpleNamespace(service_url=cluster.service_url, admin_url=cluster.admin_urls[0])
    limits_topic = rest.create_topic("persistent://public/default/limits")
    conf = conf_for(server, tmp_path, limits_topic)
    settings = begin_history(conf)
    limits = [Limits(settings, broker, group) for broker in cluster.service_urls]

    def send(publish: float) -> None:
        for each in limits:
            each.send(publish=publish, dispatch=90, safe_publish=publish, safe_dispatch=90)

    def all_in_force() -> bool:
        return (
            # The broker's other topic has the rest of its limit, which the one of 5 may not use.
            rate(held) == publish_rate(5)
            and (rate(high) or {}).get("publishThrottlingRateInMsg", 0) in range(250, LIMIT)
            and rate(far) == publish_rate(200, -2)  # the brokers' own
            and rate(under) == publish_rate(50, -2)  # the namespace's
            and rate(far, "dispatch") == dispatch_rate(90) | {"dispatchThrottlingRateInByte": -3}
            and rate(high, "dispatch") == dispatch_rate(7)
        )

    send(LIMIT)
    with EnforcerProcess(conf) as enforcer, publishing(cluster.service_url, held, high):
        enforcer.wait_until(all_in_force)
        assert "administrators' rates: found on" in enforcer.errors()
        assert rest.per_s(held, MEASURED_S) <= 5 + 5 / MEASURED_S
        enforcer.kill()
    with EnforcerProcess(conf) as enforcer, publishing(cluster.service_url, high):
        enforcer.wait_until(lambda: all_in_force() and enforcer.status().get("leads"))
        # By hand, right before it would be overwritten.
        before[path(high)] = publish_rate(60, 50_000_000)
        rest.call("POST", path(high), before[path(high)])
        send(LIMIT / 2)
        enforcer.wait_until(
            lambda: any(
                (row.place, row.messages_per_s) == (high, 60)
                for row in list_administrator_rates(settings.history, CLUSTER)
            )
        )
        time.sleep(2.0)
        assert rate(high) == before[path(high)]
        figures = enforcer.stop()
        assert (figures["administrators_rates"], figures["errors"]) == (5, 0), enforcer.errors()
    (figures,) = EnforcerProcess(conf, "--remove").ended()
    assert figures["left"] == figures["failed"] == 0
    assert figures["given_back"] == 1
    for topic in (held, high, far, under):
        for kind in ("publish", "dispatch"):
            assert rate(topic, kind) == before.get(path(topic, kind)), (topic, kind)
    assert rest.call("GET", f"namespaces/{spaced}/publishRate") == publish_rate(50)
    assert rest.call("GET", f"namespaces/{own}/publishRate") is None
    assert list_administrator_rates(settings.history, CLUSTER) == []
    for each in limits:
        each.close()
