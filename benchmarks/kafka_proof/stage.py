"""A scenario on a cluster: its topic, its clients, its event, and the record of it."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
from confluent_kafka import Producer

from benchmarks.kafka_proof.admin import Metadata, elect_preferred_leaders
from benchmarks.kafka_proof.contenders import BROKERS, Control
from benchmarks.kafka_proof.load import PRODUCER, Place
from benchmarks.kafka_proof.measured import (
    longest_throttle_s,
    longest_waits,
    message_kb,
    once_served,
    rows_of,
)
from benchmarks.kafka_proof.record import KafkaRecord
from benchmarks.kafka_proof.scenarios import BASE_S, GONE_S, Scenario
from benchmarks.quota_proof.load import Load, rates
from benchmarks.quota_proof.record import SLOTS_PER_S, by_broker, held
from quotaplane.model import FloatArray
from tests.servers.kafka_cluster import KafkaCluster

VICTIM: Final = 1
"""The broker that is killed, or stopped; numbered from 0."""
BYSTANDER: Final = Scenario(
    "bystander", "Nobody's tenant", 1e9, (50, 50, 50), (50, 50, 50), 1_000, copies=2
)
"""It has no quota, and runs beside all scenarios."""
_CLIENTS: Final = "benchmarks.kafka_proof.load"
_CONNECTED_WITHIN_S: Final = 60.0
_HEADERS_BYTES: Final = 120
"""About what a request with one message has; what they had is measured."""
_QUEUE_S: Final = 0.5
_LEAST_PENDING: Final = 4
_KB: Final = 1000.0


class Stage:
    """A scenario's topics and clients on the cluster."""

    def __init__(self, scene: Scenario, cluster: KafkaCluster, folder: Path) -> None:
        self.scene, self._cluster = scene, cluster
        self._folder = folder / scene.name
        self._folder.mkdir()
        self._load: Load | None = None
        self._places = [
            self._place(client, at) for client in scene.clients for at in range(BROKERS)
        ]
        self._metadata = Metadata(cluster.bootstrap_servers)
        self._event_s = self._noticed_s = 0.0
        self._owners: list[list[tuple[float, int | None]]] = [[(0.0, at)] for at in range(BROKERS)]
        self._over = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def _place(self, client: str, broker: int) -> Place:
        scene = self.scene
        most = max(scene.before[broker], scene.after[broker]) * _KB
        pending = max(_LEAST_PENDING, round(_QUEUE_S * most / scene.payload_bytes))
        backlog = scene.backlog_mb > 0 and not scene.before[broker]
        at = (scene.name, broker, scene.payload_bytes, pending)
        return Place(client, *at, scene.arrivals, scene.fetch, backlog)

    def prepare(self) -> None:
        """Create the topic, connect clients that want what they want at first."""
        scene = self.scene
        nodes = list(range(1, BROKERS + 1))
        self._cluster.create_topic(scene.name, nodes, copies=scene.copies)
        if scene.backlog_mb:
            self._fill()
        if scene.event == "elect":
            self._move_leaders_away()
        address = self._cluster.bootstrap_servers
        self._load = Load(_CLIENTS, address, self._places, self._folder)
        deadline = time.monotonic() + _CONNECTED_WITHIN_S
        while not self._load.connected:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{scene.name}: a client does not connect")
            time.sleep(0.1)
        self._want(scene.after if scene.before_control else scene.before)
        if scene.copies > 1 or scene.event == "restart":
            self._watcher.start()

    def happen(self, control: Control, bystander: Stage) -> None:
        """Let the event happen now; a job that was gone decides again then."""
        scene = self.scene
        if scene.before_control:
            control.put([scene])
            control.begin()
        if scene.quota_after is not None:
            control.put([replace(scene, quota=scene.quota_after)])
        self._event_s = time.time()
        self._want(scene.after)
        victim = self._cluster.servers[VICTIM]
        if scene.event == "kill":
            victim.kill()
            for stage in (self, bystander):
                stage.lose_victim()
        elif scene.event == "elect":
            elect_preferred_leaders(self._cluster.bootstrap_servers, scene.name, BROKERS)
        elif scene.event == "restart":
            victim.stop()
            self.lose_victim()
            victim.start()
        elif scene.event == "job_gone":
            control.leave()
            time.sleep(max(self._event_s + GONE_S - time.time(), 0.0))
            control.come_back()
            self._noticed_s = time.time()

    def lose_victim(self) -> None:
        """The victim leads nothing from now on; the cluster's metadata shows it later."""
        for seen in self._owners:
            if seen[-1][1] == VICTIM:
                seen.append((time.time(), None))

    def wait_until_watched(self) -> None:
        time.sleep(max(self._event_s + self.scene.watch_s + 1.0 - time.time(), 0.0))

    def records(
        self, contender: str, bystander: Stage, start: Mapping[str, float]
    ) -> list[KafkaRecord]:
        """A record of each tenant, and the bystander's fate in it."""
        scene = self.scene
        times = self._times()
        quota_after = scene.quota if scene.quota_after is None else scene.quota_after
        quota = np.where(times >= self._event_s, quota_after, scene.quota)
        unit = message_kb(self._rows("wire.csv", 3), self._event_s)
        counted = self._counted(times)
        seen, owners = counted * unit, self._owners_in(times, counted)
        mutes = self._waits(self._event_s, times[-1])
        throttle_s = longest_throttle_s(self._rows("throttles.csv", 2), self._event_s)
        refused, others_mute_s = bystander.fate(times)
        mean_demand = None
        if scene.arrivals != "even":
            wants = zip(scene.before, scene.after, strict=True)
            means = [
                np.where(times >= self._event_s, then, first).tolist() for first, then in wants
            ]
            scale = unit * _KB / self._nominal_bytes
            mean_demand = by_broker((np.array(means) * scale).tolist(), owners, BROKERS)
        noticed_s = max(self._noticed_s - self._event_s, 0.0) if self._noticed_s else 0.0
        records = []
        for tenant in range(scene.tenants):
            own = slice(tenant * BROKERS, (tenant + 1) * BROKERS)
            wanted, done = np.moveaxis(seen[own], 2, 0).tolist()
            records.append(
                KafkaRecord(
                    scenario=scene.name,
                    contender=contender,
                    from_s=-BASE_S,
                    quota=tuple(quota.tolist()),
                    demand=by_broker(wanted, owners, BROKERS),
                    usage=by_broker(done, owners, BROKERS),
                    mean_demand=mean_demand,
                    received=scene.fetch,
                    noticed_s=noticed_s,
                    start=dict(start),
                    tenant=tenant,
                    mute_s=max(mutes[own]),
                    throttle_s=throttle_s,
                    others_refused=refused,
                    others_mute_s=others_mute_s,
                )
            )
        return records

    def fate(self, times: FloatArray) -> tuple[float, float]:
        """Part of the demand that was refused after another stage's event, and the longest mute.

        Args:
            times: The other stage's.
        """
        event_s = times[0] + BASE_S
        seen = self._counted(times)
        owners = self._owners_in(times, seen)
        led = np.array([[owner is not None for owner in row] for row in owners])
        wanted, done = (seen[:, times >= event_s] * led[:, times >= event_s, None]).sum(axis=(0, 1))
        waits = self._waits(event_s, times[-1])
        return float(max(1.0 - done / wanted, 0.0)), max(waits)

    def stop(self) -> None:
        """End the clients; a second call does nothing."""
        self._over.set()
        if self._watcher.is_alive():
            self._watcher.join()
        if self._load is not None:
            self._load.stop()
            self._load = None

    def _times(self) -> FloatArray:
        slots = round((BASE_S + self.scene.watch_s) * SLOTS_PER_S)
        times: FloatArray = self._event_s - BASE_S + np.arange(slots) / SLOTS_PER_S
        return times

    def _counted(self, times: FloatArray) -> FloatArray:
        """Messages a second, shape (places, slots, 2): wanted and done."""
        paths = [self._folder / f"counts-{number}.csv" for number in range(len(self._places))]
        return np.stack([rates(path, times[0], len(times)) for path in paths])

    @property
    def _nominal_bytes(self) -> float:
        return float(self.scene.payload_bytes + min(_HEADERS_BYTES, 0.2 * self.scene.payload_bytes))

    def _owners_in(self, times: FloatArray, counted: FloatArray) -> list[list[int | None]]:
        """For each broker's partition its leader in each slot, as clients know it."""
        done = counted[..., 1].reshape(self.scene.tenants, BROKERS, len(times)).sum(axis=0)
        leaders = (held(seen, times.tolist()) for seen in self._owners)
        return [once_served(each, got) for each, got in zip(leaders, done, strict=True)]

    def _rows(self, name: str, columns: int) -> FloatArray:
        return rows_of(self._folder / name, columns)

    def _waits(self, from_s: float, to_s: float) -> list[float]:
        waits = self._rows("waits.csv", 3)
        return longest_waits(waits, len(self._places), self._owners, from_s, to_s)

    def _want(self, wanted: tuple[float, ...]) -> None:
        assert self._load is not None
        each = [rate * _KB / self._nominal_bytes for rate in wanted]
        self._load.want(each * self.scene.tenants)

    def _fill(self) -> None:
        """Give the partitions whose readers catch up something to read."""
        producer = Producer({"bootstrap.servers": self._cluster.bootstrap_servers, **PRODUCER})
        payload = bytes(self.scene.payload_bytes)
        for place in self._places:
            if place.backlog:
                for _ in range(round(self.scene.backlog_mb * 1e6 / len(payload))):
                    producer.produce(place.topic, payload, partition=place.partition)
                    producer.poll(0)
        producer.flush()

    def _move_leaders_away(self) -> None:
        """Stop a broker, whose partitions then get other leaders, and start it again."""
        victim = self._cluster.servers[VICTIM]
        victim.stop()
        victim.start()
        deadline = time.monotonic() + _CONNECTED_WITHIN_S
        while min(self._metadata.layout(self.scene.name).in_sync) < self.scene.copies:
            if time.monotonic() > deadline:
                raise TimeoutError("a replica does not catch up")
            time.sleep(0.2)
        owner = self._metadata.layout(self.scene.name).leaders[VICTIM]
        self._owners[VICTIM] = [(0.0, owner)]

    def _watch(self) -> None:
        """Write down which broker has each partition, whenever that changes."""
        while not self._over.wait(0.2):
            with suppress(Exception):  # a broker that dies does not answer
                layout = self._metadata.layout(self.scene.name)
                dead = VICTIM if self._is_dead() else None  # also when the answer was on its way
                for leader, seen in zip(layout.leaders, self._owners, strict=True):
                    owner = None if leader == dead else leader
                    if owner != seen[-1][1]:
                        seen.append((time.time(), owner))
                self._notice(layout.brokers)

    def _is_dead(self) -> bool:
        return self._cluster.servers[VICTIM].pid < 0

    def _notice(self, brokers: frozenset[int]) -> None:
        """Note when the cluster knows that the broker is gone, or when all are led again."""
        if not self._event_s or self._noticed_s:
            return
        event = self.scene.event
        if event == "kill" and self._is_dead() and VICTIM not in brokers:
            self._noticed_s = time.time()
        lost = self._owners[VICTIM][-1]
        if event == "restart" and len(self._owners[VICTIM]) > 1 and lost[1] is not None:
            self._noticed_s = time.time()
