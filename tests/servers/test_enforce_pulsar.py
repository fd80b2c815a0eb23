"""The enforcer, in its own process, makes a stock Pulsar obey limits."""

from __future__ import annotations

import threading
import time
import urllib.request
import uuid
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pulsar
import pytest
import yaml

from quotaplane.model import DIMENSIONS
from quotaplane.registry.table import put_groups
from quotaplane.settings import Settings
from tests.job import begin_history
from tests.servers.enforcer_process import EnforcerProcess, Limits, conf_for
from tests.servers.pulsar_clients import publishing, quiet_client
from tests.servers.pulsar_rest import PulsarRest
from tests.servers.pulsar_server import PulsarServer
from tests.servers.tools import free_ports
from tests.unit.metrics.metrics_cases import Series, parsed
from tests.waiting import meanwhile

MEASURED_S = 4.0
HELD = 0.08
"""Relative tolerance of a rate measured over a few seconds on a busy machine."""


@dataclass
class Scene:
    """A namespace attached to a group, and a publisher of limits."""

    server: PulsarServer
    namespace: str
    group: str
    limits: Limits
    conf: Path
    settings: Settings

    @property
    def rest(self) -> PulsarRest:
        return self.server.rest

    def topic(self, name: str, partitions: int = 0) -> str:
        """Create a topic and make a broker load it."""
        topic = self.rest.create_topic(
            f"persistent://{self.namespace}/{name}", partitions=partitions
        )
        parts = [f"{topic}-partition-{number}" for number in range(partitions)] or [topic]
        assert [self.rest.owner(part) for part in parts] == [self.server.service_url] * len(parts)
        return topic

    def again(self, **enforce: Any) -> Path:
        """Write a settings file with other settings of the enforcer."""
        transport = self.settings.transport
        return conf_for(self.server, self.conf.parent, transport.limits_topic, **enforce)  # type: ignore[union-attr]

    def rate(self, topic: str, kind: str = "publish") -> int | None:
        """The topic's rate in messages."""
        policy = self.rest.call("GET", f"{topic}/{kind}Rate")
        return policy[f"{kind}ThrottlingRateInMsg"] if policy else None

    def per_s(self, topic: str, counter: str = "msgInCounter") -> float:
        """Measure a rate, after waiting for the burst that a write allows."""
        time.sleep(1.5)
        return self.rest.per_s(topic, MEASURED_S, counter)


@pytest.fixture
def scene(pulsar_server: PulsarServer, tmp_path: Path) -> Iterator[Scene]:
    rest, name = pulsar_server.rest, uuid.uuid4().hex[:8]
    tenant = rest.create_tenant(f"acme-{name}")
    namespace = rest.create_namespace(f"{tenant}/orders", bundles=4)
    group = rest.put_group(f"rg-{name}")
    rest.attach(namespace, group)
    limits_topic = rest.create_topic(f"persistent://public/default/limits-{name}")
    conf = conf_for(pulsar_server, tmp_path, limits_topic)
    settings = begin_history(conf)
    limits = Limits(settings, pulsar_server.service_url, group)
    yield Scene(pulsar_server, namespace, group, limits, conf, settings)
    limits.close()


def metrics_at(port: int) -> Series:
    """Metrics of the enforcer, by the names behind ``quotaplane_enforcer_``."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
        found = parsed(answer.read().decode())
    return defaultdict(dict, {n.removeprefix("quotaplane_enforcer_"): v for n, v in found.items()})


def test_a_producer_is_held_to_limits_as_they_move_and_run_out(scene: Scene) -> None:
    topic = scene.topic("a topic & more")
    (port,) = free_ports(1)
    conf = yaml.safe_load(scene.conf.read_text("utf-8")) | {"metrics": {"enforcer_port": port}}
    scene.conf.write_text(yaml.safe_dump(conf), encoding="utf-8")
    scene.limits.send(publish=100)
    with publishing(scene.server.service_url, topic), EnforcerProcess(scene.conf) as enforcer:
        enforcer.wait_until(lambda: scene.rate(topic) == 100)
        enforcer.wait_until(lambda: metrics_at(port)["rates_in_force"] == {(): 1})
        assert metrics_at(port)["rate_writes_total"][("written",)] == 1
        assert scene.per_s(topic) == pytest.approx(100, rel=HELD)
        scene.limits.send(publish=40, safe_publish=20, lease_s=12)
        enforcer.wait_until(lambda: scene.rate(topic) == 40)
        assert scene.per_s(topic) == pytest.approx(40, rel=HELD)
        enforcer.wait_until(lambda: scene.rate(topic) == 20)
        enforcer.wait_until(lambda: metrics_at(port)["ended_limits"] == {(): 1})
        assert metrics_at(port)["failures_total"] == {}
        assert enforcer.stop()["written"] == 3
        assert not enforcer.errors()


@pytest.mark.nightly
def test_consumers_are_held_too(scene: Scene) -> None:
    topic = scene.topic("backlog")
    client = quiet_client(scene.server.service_url)
    consumer = client.subscribe(topic, "reader", receiver_queue_size=10)
    producer = client.create_producer(topic)
    for _ in range(2000):
        producer.send_async(b"x", None)
    producer.flush()

    def consume(over: threading.Event) -> None:
        while not over.is_set():
            with suppress(pulsar.Timeout):
                consumer.acknowledge(consumer.receive(100))

    scene.limits.send(dispatch=60)
    with EnforcerProcess(scene.conf) as enforcer:
        enforcer.wait_until(lambda: scene.rate(topic, "dispatch") == 60)
        with meanwhile(consume):
            # Brokers dispatch a second's worth at once, so the window has one batch more or less.
            batch_per_s = 60 / MEASURED_S
            dispatched_per_s = scene.per_s(topic, "msgOutCounter")
            assert dispatched_per_s == pytest.approx(60, abs=batch_per_s + 60 * HELD)
            assert scene.rate(topic) is None
        enforcer.stop()
    client.close()


@pytest.mark.nightly
def test_what_one_topic_leaves_the_others_have(scene: Scene) -> None:
    one, other = scene.topic("one"), scene.topic("other", partitions=3)
    scene.limits.send(publish=100)
    with EnforcerProcess(scene.conf) as enforcer:
        with publishing(scene.server.service_url, one):
            enforcer.wait_until(lambda: (scene.rate(one) or 0) > 80)
            # The idle one has a floor on top: a tenth of its even share for each partition.
            assert (scene.rate(one) or 0) + (scene.rate(other) or 0) <= 115
        with publishing(scene.server.service_url, f"{other}-partition-1"):
            # Its other partitions want nothing, and have the same rate.
            enforcer.wait_until(lambda: (scene.rate(other) or 0) > 80)
            assert (scene.rate(one) or 0) + (scene.rate(other) or 0) <= 115
            assert scene.per_s(f"{other}-partition-1") > 75
        assert enforcer.stop()["errors"] == 0


@pytest.mark.nightly
def test_killed_and_started_again_it_writes_nothing_that_is_there(scene: Scene) -> None:
    topics = [scene.topic(f"t{i}") for i in range(5)]
    scene.limits.send(publish=100, dispatch=50)
    with EnforcerProcess(scene.conf) as enforcer:
        enforcer.wait_until(lambda: [scene.rate(t) for t in topics] == [20] * 5)
        enforcer.wait_until(lambda: [scene.rate(t, "dispatch") for t in topics] == [10] * 5)
        enforcer.kill()
    tried = EnforcerProcess(scene.conf, "--dry-run")
    assert tried.ended() == []
    new = scene.topic("t5")
    tried = EnforcerProcess(scene.conf, "--dry-run")
    posts = {line["path"].rpartition("/orders/")[2]: line["body"] for line in tried.ended()}
    assert posts["t5/publishRate"]["publishThrottlingRateInMsg"] in (16, 17)
    with EnforcerProcess(scene.conf) as enforcer:
        enforcer.wait_until(lambda: scene.rate(new, "dispatch") in (8, 9))
        enforcer.wait_until(lambda: sum(scene.rate(t) or 0 for t in [*topics, new]) <= 100)
        figures = enforcer.stop()
        # The new one's two, and what has to come down for it.
        assert 4 <= figures["written"] <= 2 + 2 * 5


def test_a_topic_is_held_from_its_first_message_on_though_nobody_is_there(scene: Scene) -> None:
    rest, namespace = scene.rest, f"namespaces/{scene.namespace}"
    rest.call("PUT", f"{namespace}/properties", {"owner": "orders team"})
    # A group that neither the table nor the cluster has a quota of would keep its rates.
    rest.put_group(scene.group, publish_messages_per_s=1000)
    known = scene.topic("known")
    scene.limits.send(publish=60, dispatch=80, safe_publish=60, safe_dispatch=80)

    def default(kind: str = "publish") -> int | None:
        held = rest.call("GET", f"{namespace}/{kind}Rate")
        return held[f"{kind}ThrottlingRateInMsg"] if held else None

    with EnforcerProcess(scene.conf) as enforcer:
        enforcer.wait_until(lambda: (default(), default("dispatch")) == (30, 40))
        enforcer.wait_until(lambda: scene.rate(known, "dispatch") == 80)
        enforcer.kill()
    new = f"persistent://{scene.namespace}/new"
    with publishing(scene.server.service_url, new):
        assert scene.per_s(new) == pytest.approx(30, rel=HELD)
    client = quiet_client(scene.server.service_url)
    reader = client.create_reader(new, pulsar.MessageId.earliest)
    time.sleep(1.0)
    assert scene.rest.counter(new, "msgOutCounter") <= 80  # a second's worth at once, and then 40
    client.close()
    del reader
    # Started again it knows what is its own, and takes that off.
    with EnforcerProcess(scene.again(on_exit="remove")) as enforcer:
        enforcer.wait_until(lambda: scene.rate(new) is not None)
        assert enforcer.stop()["errors"] == 0, enforcer.errors()
    assert (default(), default("dispatch"), scene.rate(new)) == (None, None, None)
    assert rest.call("GET", f"{namespace}/properties") == {"owner": "orders team"}


@pytest.mark.nightly
@pytest.mark.parametrize("on_exit", ["keep", "safe", "remove"])
def test_a_clean_stop_leaves_what_on_exit_says(scene: Scene, on_exit: str) -> None:
    topics = [scene.topic("a"), scene.topic("b", partitions=2)]
    scene.rest.put_group(scene.group, publish_messages_per_s=90, dispatch_messages_per_s=70)
    quotas = np.full((1, len(DIMENSIONS)), np.nan)
    quotas[0, 0] = 90
    put_groups(scene.settings.history, [scene.group], quotas, "test")
    scene.limits.send(publish=90, safe_publish=30)
    deleted = scene.topic("deleted")
    path = f"resourcegroups/{scene.group}"
    with EnforcerProcess(scene.again(on_exit=on_exit, take_over=True)) as enforcer:
        enforcer.wait_until(lambda: None not in [scene.rate(t) for t in [*topics, deleted]])
        enforcer.wait_until(lambda: scene.rest.call("GET", path)["publishRateInMsgs"] == -1)
        # A stop would come before the enforcer has read it back.
        enforcer.wait_until(lambda: enforcer.status().get("taken_over"))
        assert scene.rest.call("GET", f"{path}.taken-over")["publishRateInMsgs"] == 90
        scene.rest.call("DELETE", deleted)
        before = [scene.rate(topic) for topic in topics]
        figures = enforcer.stop()
        assert figures["taken_over"] == 1
        assert figures["errors"] == 0, enforcer.errors()
    held = scene.rest.call("GET", path)
    assert held["dispatchRateInMsgs"] == 70
    assert held["publishRateInMsgs"] == (90 if on_exit == "remove" else -1)
    left = [scene.rate(topic) for topic in topics]
    if on_exit == "safe":
        # 30 over three parts, or four where the deleted topic was not yet missed.
        assert all(rate in (7, 8, 10) for rate in left)
    else:
        assert left == (before if on_exit == "keep" else [None, None])
