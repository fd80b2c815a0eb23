"""Put a contender through the scenes on a fresh cluster, and measure."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx
import numpy as np

from benchmarks.balance_proof.contenders import Contender
from benchmarks.balance_proof.load import LoadProcess, read_seconds
from benchmarks.balance_proof.record import SceneRecord, changes_in
from benchmarks.balance_proof.scenes import (
    BROKERS,
    BUNDLES,
    HOT_BROKER,
    MESSAGE_BYTES,
    POLICY,
    RESTARTED,
    SCENES,
    STATS_INTERVAL_S,
    TENANT,
    Scene,
    first_owners,
    first_rates,
    hash_of,
    rates_in,
    shares_in,
)
from quotaplane.topics.bundle_names import parse_bundle
from tests.servers.pulsar_cluster import PulsarCluster
from tests.servers.pulsar_roles import CLUSTER

_CONNECTED_WITHIN_S: Final = 90.0
_RESTARTED_BROKER: Final = 2
_COPIES: Final = 2
"""A message is counted in and out."""

Owners = dict[str, tuple[int, str]]
"""By topic: its broker and bundle."""


def run(contender: Contender, folder: Path, say: Callable[[str], None]) -> list[SceneRecord]:
    """Measure all scenes; some 14 minutes.

    Args:
        contender: balances the cluster.
        folder: empty; logs and counts go there.
        say: prints a line about the progress.
    """
    with ExitStack() as held:
        say(f"{contender.title}: starting a cluster of {BROKERS} brokers")
        cluster = PulsarCluster(
            folder / "cluster",
            brokers=BROKERS,
            stats_interval_s=STATS_INTERVAL_S,
            broker_settings={
                "statsUpdateInitialDelayInSecs": str(STATS_INTERVAL_S),
                **contender.broker_settings,
            },
            own_hosts=True,  # policies name hosts
        )
        held.enter_context(cluster)
        _create(cluster)
        loads = {
            work: LoadProcess(work, cluster.service_url, folder / f"{work}d.jsonl")
            for work in ("consume", "produce")
        }
        for load in loads.values():
            held.callback(load.stop)
        _connect(loads)
        say(f"{contender.title}: topics are placed, clients connected")
        watch = _Watch(cluster)
        held.callback(watch.stop)
        policies_changed = held.enter_context(contender.control(cluster, folder))
        records = []
        for scene in SCENES:
            say(f"{contender.title}: {scene.title}")
            rates = rates_in(scene)
            if scene is RESTARTED:
                cluster.stop_broker(_RESTARTED_BROKER)
                cluster.start_broker(_RESTARTED_BROKER)
            if scene is POLICY:
                _isolate(cluster)
                policies_changed()
            begun_s = time.time()
            loads["produce"].want(rates)
            time.sleep(scene.watch_s)
            records.append(
                _record(contender.name, scene, rates, begun_s, watch, folder / "produced.jsonl")
            )
        return records


def _create(cluster: PulsarCluster) -> None:
    rest = cluster.rest()
    rest.create_tenant(TENANT)
    rest.create_namespace(f"{TENANT}/orders", retention_minutes=0, bundles=BUNDLES)
    rest.create_namespace(f"{TENANT}/hot", retention_minutes=0, bundles=1)
    owners = first_owners()
    for topic in owners:
        rest.create_topic(topic)
    for topic, broker in owners.items():
        cluster.move(topic, broker)


def _isolate(cluster: PulsarCluster) -> None:
    """Leave a broker to the namespace ``hot``, as an administrator does."""
    host = urlsplit(cluster.admin_urls[HOT_BROKER]).hostname or ""
    cluster.rest().put_isolation("hot", f"{TENANT}/hot", [re.escape(host)])


def _connect(loads: Mapping[str, LoadProcess]) -> None:
    """Connect all clients, with a trickle of messages that shows when all are."""
    trickle = dict.fromkeys(first_rates(), 2.0)
    for load in loads.values():
        load.want(trickle)
    deadline = time.monotonic() + _CONNECTED_WITHIN_S
    while not all(load.counted().keys() == trickle.keys() for load in loads.values()):
        if time.monotonic() > deadline:
            raise TimeoutError("not all clients connect; see produced.log and consumed.log")
        time.sleep(0.5)
    # Silence until the first event: nobody can balance the trickle.
    loads["produce"].want(dict.fromkeys(trickle, 0.0))


class _Watch:
    """Writes down once a second which broker has each topic; looking assigns nothing."""

    def __init__(self, cluster: PulsarCluster) -> None:
        self._cluster = cluster
        self._topics = {topic: hash_of(topic) for topic in first_rates()}
        self.seen: list[tuple[float, Owners]] = []
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _look(self) -> None:
        with httpx.Client(timeout=5.0) as client:
            while not self._over.wait(1.0):
                self.seen.append((time.time(), self._owners(client)))

    def _owners(self, client: httpx.Client) -> Owners:
        owners: Owners = {}
        for broker, url in enumerate(self._cluster.admin_urls):
            address = url.partition("://")[2]
            path = f"{url}/admin/v2/brokers/{CLUSTER}/{address}/ownedNamespaces"
            try:
                owned = client.get(path).raise_for_status().json()
            except (httpx.HTTPError, ValueError):
                continue  # it is down
            for name in owned:
                if not name.startswith(f"{TENANT}/"):
                    continue
                bundle = parse_bundle(name)
                for topic, hashed in self._topics.items():
                    here = topic.startswith(f"persistent://{bundle.namespace}/")
                    if here and bundle.low <= hashed <= bundle.last:
                        owners[topic] = (broker, name)
        return owners


def _record(
    contender: str,
    scene: Scene,
    rates: Mapping[str, float],
    begun_s: float,
    watch: _Watch,
    produced: Path,
) -> SceneRecord:
    bytes_of = {topic: rate * MESSAGE_BYTES * _COPIES for topic, rate in rates.items()}
    seen = [(at - begun_s, owners) for at, owners in list(watch.seen)]
    earlier = [one for one in seen if one[0] <= 0 and one[1]][-1:]
    within = [one for one in seen if 0 < one[0] <= scene.watch_s]
    wanted = np.zeros((int(scene.watch_s), BROKERS))
    last: Owners = {}
    # The last look before the event, or else the first one after it, has the first owners.
    begin = [(0.0, owners) for _, owners in (earlier or within[:1])]
    looks = iter([*begin, *within])
    coming = next(looks, None)
    for second in range(len(wanted)):
        while coming is not None and coming[0] <= second + 1:
            last |= coming[1]
            coming = next(looks, None)
        for topic, (broker, _) in last.items():
            wanted[second, broker] += bytes_of[topic]
    lines = {line["at"] - int(begun_s): line for line in read_seconds(produced)}
    none = {"topics": {}, "p99_s": 0.0, "dropped": 0, "failed": 0}
    seconds = [lines.get(second, none) for second in range(len(wanted))]
    return SceneRecord(
        contender=contender,
        scene=scene.name,
        wanted=tuple(map(tuple, wanted.tolist())),
        longest_ms=tuple(
            1000.0 * max((took for _, took in line["topics"].values()), default=0.0)
            for line in seconds
        ),
        p99_ms=tuple(1000.0 * line["p99_s"] for line in seconds),
        published=tuple(sum(n for n, _ in line["topics"].values()) for line in seconds),
        lost=tuple(line["dropped"] + line["failed"] for line in seconds),
        changes=tuple(changes_in([*earlier, *within], bytes_of)),
        bundles=len({bundle for _, bundle in last.values()}),
        shares=shares_in(scene),
    )
