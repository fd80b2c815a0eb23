"""Put a contender through all scenarios on a fresh cluster, and measure what gets through."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.pulsar_proof import contenders
from benchmarks.pulsar_proof.contenders import Contender, Start, tenant_of
from benchmarks.pulsar_proof.load import Place
from benchmarks.pulsar_proof.scenarios import (
    ALL,
    BASE_S,
    MUTED_FOR_S,
    PARTS,
    REPORT_INTERVAL_S,
    SWITCHED_ON,
    WATCH_S,
    Scenario,
)
from benchmarks.quota_proof.load import Load, rates
from benchmarks.quota_proof.record import SLOTS_PER_S, Record, by_broker, held
from tests.servers.pulsar_cluster import PulsarCluster

BROKERS: Final = 3
_CLIENTS: Final = "benchmarks.pulsar_proof.load"
_SETTLE_S: Final = 4.0 * REPORT_INTERVAL_S
_WARM_UP_S: Final = 60.0
"""Brokers that have just started use the processor for themselves."""
_CONNECTED_WITHIN_S: Final = 90.0
_BUNDLES: Final = 16
_BUNDLES_OF_MANY: Final = 4
"""Where a broker's topics share one: names are tried until enough of them are in it."""


def run(contender: Contender, folder: Path, say: Callable[[str], None]) -> list[Record]:
    """Measure every scenario; some nine minutes.

    Args:
        contender: The controller to measure.
        folder: Empty; logs and counts go there.
        say: Called with each line about the progress.
    """

    def tell(words: str) -> None:
        say(f"{contender.title}: {words}")

    with ExitStack() as held:
        cluster = PulsarCluster(
            folder / "cluster", brokers=BROKERS, report_interval_s=REPORT_INTERVAL_S
        )
        tell(f"starting a cluster of {BROKERS} brokers")
        held.enter_context(cluster)
        stages = {scene.name: _Stage(scene, contender, cluster, folder) for scene in ALL}
        for stage in stages.values():
            held.callback(stage.stop)
            stage.put_quota()
        begin = [stages[scene.name] for scene in (*SWITCHED_ON, *PARTS[0])]
        for stage in begin:
            stage.start()
        tell("the load is on")
        time.sleep(_WARM_UP_S)
        for scene in SWITCHED_ON:
            stages[scene.name].want_after()
        time.sleep(MUTED_FOR_S)
        tell("starting")
        told = [stage.told for stage in stages.values()]
        start = held.enter_context(contender.control(cluster, told, folder))
        for what, after_s in start.milestones.items():
            tell(f"after {after_s:.1f} s {what}")
        for scene in SWITCHED_ON:
            stages[scene.name].begin_at(start.taken_over_s[scene.name])
        time.sleep(WATCH_S + 1.0)
        records = [stages[scene.name].end(start) for scene in SWITCHED_ON]
        for part in PARTS:
            tell(", ".join(scene.name for scene in part))
            of_part = [stages[scene.name] for scene in part]
            if part is not PARTS[0]:
                _prepare(of_part, contender, cluster)
            time.sleep(BASE_S)
            for stage in of_part:
                stage.happen()
            time.sleep(WATCH_S + 1.0)
            records += [stage.end(start) for stage in of_part]
        return records


def _prepare(stages: Sequence[_Stage], contender: Contender, cluster: PulsarCluster) -> None:
    """Bring a part's topics and load to a steady state."""
    for stage in stages:
        stage.start()
    for stage in stages:
        if (kill := stage.told.scene.kill) is not None:
            # The harder case: without this broker no usage is known until another one has the
            # topic. Otherwise chance decides it.
            cluster.move(contender.reports_topic, kill)
    begun_s = time.monotonic()
    if contender.takes_over:
        contenders.wait_for_control(cluster.rest(), [stage.told for stage in stages])
    time.sleep(max(begun_s + _SETTLE_S - time.monotonic(), _SETTLE_S / 2))


class _Stage:
    """A scenario's topics and clients on the cluster."""

    def __init__(
        self, scene: Scenario, contender: Contender, cluster: PulsarCluster, folder: Path
    ) -> None:
        self._scene, self._contender, self._cluster = scene, contender, cluster
        self._folder = folder / scene.name
        self._folder.mkdir()
        self._load: Load | None = None
        self._topics: list[tuple[str, ...]] = []
        self._wire_bytes: list[float] = []
        self._event_s = self._quota_from_s = self._noticed_s = 0.0
        self._owners: list[list[tuple[float, int | None]]] = []
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    @property
    def told(self) -> contenders.Stage:
        """The stage as a contender sees it."""
        return contenders.Stage(self._scene, tuple(self._topics))

    def start(self) -> None:
        """Create topics and the group, and connect clients that want what they want at first."""
        scene, rest = self._scene, self._cluster.rest()
        if scene.tenant:
            rest.create_tenant(tenant_of(scene))
        namespaces: list[str] = []
        bundles = _BUNDLES if scene.topics == 1 else _BUNDLES_OF_MANY
        for place in range(len(scene.before)):
            if scene.tenant or not namespaces:
                name = f"{tenant_of(scene)}/{scene.name}-{place}"
                namespaces.append(rest.create_namespace(name, bundles=bundles))
            topics = self._cluster.topics_on(place, namespaces[-1], scene.topics)
            self._topics.append(tuple(topics))
            self._owners.append([(0.0, place)])
        # No stock broker knows groups of tenants; ours is told of them by its settings.
        if not scene.tenant:
            rest.attach(namespaces[0], scene.name)
        places = [
            Place(topics, payload_bytes, scene.arrivals, scene.dispatch, scene.moves)
            for topics, payload_bytes in zip(self._topics, scene.payload_bytes, strict=False)
        ]
        self._load = Load(_CLIENTS, self._cluster.service_url, places, self._folder)
        deadline = time.monotonic() + _CONNECTED_WITHIN_S
        while not self._load.connected:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{scene.name}: a client does not connect")
            time.sleep(0.1)
        self._wire_bytes = [self._bytes_of(place) for place in range(len(places))]
        self._want(scene.before)
        if scene.moves:
            self._watcher.start()

    def begin_at(self, event_s: float) -> None:
        """Count from this moment of the wall clock, without any event of our own."""
        self._event_s = self._quota_from_s = event_s

    def want_after(self) -> None:
        """Let the clients want what they want after the event."""
        self._want(self._scene.after)

    def happen(self) -> None:
        """Let the event happen now."""
        scene = self._scene
        self.begin_at(time.time())
        self.want_after()
        if scene.quota_after is not None:
            self.put_quota(scene.quota_after)
            self._quota_from_s = time.time()
        if scene.unload is not None:
            place, broker = scene.unload
            self._cluster.move(self._topics[place][0], broker)
        if scene.kill is not None:
            self._cluster.kill_broker(scene.kill)

    def record(self, start: Start) -> Record:
        """Record of the time around the event."""
        scene = self._scene
        slots = round((BASE_S + WATCH_S) * SLOTS_PER_S)
        times = self._event_s - BASE_S + np.arange(slots) / SLOTS_PER_S
        quota_after = scene.quota if scene.quota_after is None else scene.quota_after
        quota = np.where(times >= self._quota_from_s, quota_after, scene.quota)
        owners = [held(seen, times.tolist()) for seen in self._owners]
        assert self._load is not None
        counted = [
            rates(path, times[0], slots) * unit
            for path, unit in zip(self._load.counts, self._wire_bytes, strict=True)
        ]
        mean_demand = None
        if scene.arrivals != "even":
            after = times >= self._event_s
            wants = zip(scene.before, scene.after, strict=True)
            means = [np.where(after, then, first).tolist() for first, then in wants]
            mean_demand = by_broker(means, owners, BROKERS)
        noticed_s = max(self._noticed_s - self._event_s, 0.0) if self._noticed_s else 0.0
        return Record(
            scenario=scene.name,
            contender=self._contender.name,
            from_s=-BASE_S,
            quota=tuple(quota.tolist()),
            demand=by_broker([each[:, 0].tolist() for each in counted], owners, BROKERS),
            usage=by_broker([each[:, 1].tolist() for each in counted], owners, BROKERS),
            mean_demand=mean_demand,
            received=scene.dispatch,
            noticed_s=noticed_s,
            start=dict(start.milestones),
        )

    def end(self, start: Start) -> Record:
        """The record; clients and topics then go away, and cost nothing any more."""
        record = self.record(start)
        self.stop()
        for topic in [topic for topics in self._topics for topic in topics]:
            with suppress(Exception):  # the broker may be gone
                self._cluster.rest().call("DELETE", f"{topic.replace('://', '/')}?force=true")
        return record

    def stop(self) -> None:
        """End the clients; a second call does nothing."""
        self._over.set()
        if self._watcher.is_alive():
            self._watcher.join()
        if self._load is not None:
            self._load.stop()
            self._load = None

    def _bytes_of(self, place: int) -> float:
        """One message in the quota's unit: its bytes as a broker counts them, or 1."""
        if not self._scene.in_bytes:
            return 1.0
        topic = self._topics[place][0]
        assert self._load is not None
        self._load.want([1000.0 * (each == place) for each in range(len(self._topics))])
        deadline = time.monotonic() + _CONNECTED_WITHIN_S
        while time.monotonic() < deadline:
            time.sleep(0.5)
            stats = self._cluster.rest().call("GET", f"{topic.replace('://', '/')}/stats")
            if stats["msgInCounter"]:
                return float(stats["bytesInCounter"]) / float(stats["msgInCounter"])
        raise TimeoutError(f"{topic}: the broker counts no message")

    def put_quota(self, quota: float | None = None) -> None:
        """Set the group's quota in the cluster; None: that before the event."""
        quota = self._scene.quota if quota is None else quota
        self._cluster.rest().put_group(self._scene.name, **{self._scene.dimension: round(quota)})

    def _want(self, wanted: Sequence[float]) -> None:
        assert self._load is not None
        units = self._wire_bytes
        self._load.want([rate / unit for rate, unit in zip(wanted, units, strict=True)])

    def _watch(self) -> None:
        """Write down which broker has each topic, whenever that changes."""
        while not self._over.wait(0.2):
            dead = self._scene.kill if self._event_s else None
            with suppress(Exception):
                if dead is not None and not self._noticed_s and not self._cluster.listed(dead):
                    self._noticed_s = time.time()
            for topics, seen in zip(self._topics, self._owners, strict=True):
                with suppress(Exception):  # a broker that dies answers nothing, or with an error
                    owner = self._cluster.broker_of(topics[0])
                    seen.append((time.time(), None if owner == dead else owner))
