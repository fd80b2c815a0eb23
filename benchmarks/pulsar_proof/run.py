"""Put a contender through scenarios on a fresh cluster, and measure what gets through."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.pulsar_proof.contenders import Contender, tenant_of
from benchmarks.pulsar_proof.load import Client
from benchmarks.pulsar_proof.record import SLOTS_PER_S, Record, by_broker
from benchmarks.pulsar_proof.scenarios import (
    ALONE,
    BASE_S,
    REPORT_INTERVAL_S,
    TOGETHER,
    WATCH_S,
    Scenario,
)
from quotaplane.settings.transports import STOCK_REPORTS
from tests.servers.pulsar_cluster import PulsarCluster

BROKERS: Final = 3
_SETTLE_S: Final = 4.0 * REPORT_INTERVAL_S
_CONNECTED_WITHIN_S: Final = 60.0
_BUNDLES: Final = 16


def run(contender: Contender, folder: Path, say: Callable[[str], None]) -> list[Record]:
    """Measure every scenario; some five minutes.

    Args:
        contender: Who is in control.
        folder: Empty; logs and counts go there.
        say: Is told what goes on.
    """
    scenes = (*TOGETHER, *ALONE)
    with ExitStack() as held:
        cluster = PulsarCluster(
            folder / "cluster", brokers=BROKERS, report_interval_s=REPORT_INTERVAL_S
        )
        say(f"{contender.title}: starting a cluster of {BROKERS} brokers")
        held.enter_context(cluster)
        stages = {scene.name: _Stage(scene, contender, cluster, folder) for scene in scenes}
        for stage in stages.values():
            held.callback(stage.stop)
            stage.start()
        for scene in ALONE:
            if scene.kill is not None:
                # The harder case: no report arrives until another broker has the topic. Otherwise
                # chance decides it.
                cluster.move(STOCK_REPORTS, scene.kill)
        say(f"{contender.title}: the load is on")
        held.enter_context(contender.control(cluster, scenes, folder))
        time.sleep(_SETTLE_S)
        records = []
        for part in (TOGETHER, ALONE):
            say(f"{contender.title}: {', '.join(scene.name for scene in part)}")
            time.sleep(BASE_S)
            for scene in part:
                stages[scene.name].happen()
            time.sleep(WATCH_S + 1.0)
            for scene in part:
                records.append(stages[scene.name].record())
                stages[scene.name].stop()
        return records


class _Stage:
    """A scenario's topics and clients on the cluster."""

    def __init__(
        self, scene: Scenario, contender: Contender, cluster: PulsarCluster, folder: Path
    ) -> None:
        self._scene, self._contender, self._cluster = scene, contender, cluster
        self._folder = folder / scene.name
        self._folder.mkdir()
        self._clients: list[Client] = []
        self._producers: list[Client] = []
        self._topics: list[str] = []
        self._counts: list[Path] = []
        self._event_s = 0.0
        self._quota_from_s = 0.0
        self._owners: list[list[tuple[float, int | None]]] = []
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def start(self) -> None:
        """Create topics and the group, and connect clients that want what they want at first."""
        scene, rest = self._scene, self._cluster.rest()
        self._put_quota(scene.quota)
        if scene.tenant:
            rest.create_tenant(tenant_of(scene))
        namespaces: list[str] = []
        for place in range(len(scene.before)):
            if scene.tenant or not namespaces:
                name = f"{tenant_of(scene)}/{scene.name}-{place}"
                namespaces.append(rest.create_namespace(name, bundles=_BUNDLES))
            self._topics.append(self._cluster.topic_on(place, namespaces[-1]))
            self._owners.append([(0.0, place)])
        # No stock broker knows groups of tenants; ours is told of them by its settings.
        if not scene.tenant:
            rest.attach(namespaces[0], scene.name)
        for place, topic in enumerate(self._topics):
            url = self._cluster.service_url
            counts = self._folder / f"produced-{place}.csv"
            self._producers.append(Client("produce", url, topic, counts))
            if scene.dispatch:
                counts = self._folder / f"consumed-{place}.csv"
                self._clients.append(Client("consume", url, topic, counts))
            self._counts.append(counts)
        self._clients += self._producers
        deadline = time.monotonic() + _CONNECTED_WITHIN_S
        while not all(client.connected for client in self._clients):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{scene.name}: a client does not connect")
            time.sleep(0.1)
        self._want(scene.before)
        if scene.unload or scene.kill is not None:
            self._watcher.start()

    def happen(self) -> None:
        """Let the event happen now."""
        scene = self._scene
        self._event_s = self._quota_from_s = time.time()
        self._want(scene.after)
        if scene.quota_after is not None:
            self._put_quota(scene.quota_after)
            self._quota_from_s = time.time()
        if scene.unload is not None:
            topic, broker = scene.unload
            self._cluster.move(self._topics[topic], broker)
        if scene.kill is not None:
            self._cluster.kill_broker(scene.kill)

    def record(self) -> Record:
        """What was measured around the event."""
        scene = self._scene
        slots = round((BASE_S + WATCH_S) * SLOTS_PER_S)
        times = self._event_s - BASE_S + np.arange(slots) / SLOTS_PER_S
        after = times >= self._event_s
        quota_after = scene.quota if scene.quota_after is None else scene.quota_after
        quota = np.where(times >= self._quota_from_s, quota_after, scene.quota)
        wants = [
            np.where(after, then, first).tolist()
            for first, then in zip(scene.before, scene.after, strict=True)
        ]
        owners = [_held(seen, times.tolist()) for seen in self._owners]
        counts = [_rates(path, times[0], slots) for path in self._counts]
        return Record(
            scenario=scene.name,
            contender=self._contender.name,
            from_s=-BASE_S,
            quota=tuple(quota.tolist()),
            demand=by_broker(wants, owners, BROKERS),
            usage=by_broker(counts, owners, BROKERS),
        )

    def stop(self) -> None:
        self._over.set()
        if self._watcher.is_alive():
            self._watcher.join()
        for client in self._clients:
            client.stop()
        self._clients = []

    def _put_quota(self, quota: float) -> None:
        dimension = "dispatch_messages_per_s" if self._scene.dispatch else "publish_messages_per_s"
        self._cluster.rest().put_group(self._scene.name, **{dimension: round(quota)})

    def _want(self, rates: Sequence[float]) -> None:
        for producer, rate in zip(self._producers, rates, strict=True):
            producer.want(rate)

    def _watch(self) -> None:
        """Write down which broker has each topic, whenever that changes."""
        while not self._over.wait(0.2):
            for topic, seen in zip(self._topics, self._owners, strict=True):
                with suppress(Exception):  # a broker that dies answers nothing, or with an error
                    owner = self._cluster.broker_of(topic)
                    dead = self._scene.kill if self._event_s else None
                    seen.append((time.time(), None if owner == dead else owner))


def _held(seen: Sequence[tuple[float, int | None]], times: Sequence[float]) -> list[int | None]:
    """Who was the owner at each time: the one seen last."""
    at = np.searchsorted([when for when, _ in seen], times, side="right") - 1
    return [seen[place][1] for place in at.tolist()]


def _rates(path: Path, from_s: float, slots: int) -> list[float]:
    """Messages per second in each slot, from the lines that a client wrote."""
    counts = np.zeros(slots)
    for line in path.read_text().splitlines():
        when, count = line.split(",")
        slot = round((float(when) - from_s) * SLOTS_PER_S)
        if 0 <= slot < slots:
            counts[slot] += int(count)
    return (counts * SLOTS_PER_S).tolist()
