"""The balancer's commands on a stock cluster, and plans as the balance job publishes them."""

from __future__ import annotations

import itertools
import time
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from quotabalance.planning.decisions import Decisions
from quotabalance.wire.balance_plans import encode_plan
from quotabalance.wire.broker_loads import BrokerLoad
from quotabalance.wire.load_reports import decode_load_report
from quotaplane.cli.main import main
from quotaplane.history.store import ensure_tables
from quotaplane.settings import Settings, load_settings
from quotaplane.transport import open_broker_link, open_transport
from quotaplane.transport.base import Message, Topics
from tests.job import write_conf
from tests.servers.pulsar_clients import pulsar_transport
from tests.servers.pulsar_cluster import MANAGERS, PulsarCluster

TOPICS = Topics("load-reports", "balance-plans")


class Rig:
    """A cluster, settings of the commands, and plans on its topic."""

    def __init__(self, cluster: PulsarCluster, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        rest = cluster.rest()
        rest.create_namespace("public/quotaplane")
        for topic in (*TOPICS, "limits"):
            rest.create_topic(f"persistent://public/quotaplane/{topic}")
        topic = "persistent://public/quotaplane/limits"
        transport = pulsar_transport(cluster.service_urls[0], cluster.admin_urls[0], topic)
        self.brokers = [url.partition("://")[2] for url in cluster.admin_urls]
        balance = {
            "policies": {"drained_brokers": self.brokers[:1]},
            # All brokers are on one machine and report its processors: only bytes tell them apart.
            "options": {"resources": []},
        }
        self.conf = write_conf(folder, transport, balance=balance)
        self.settings: Settings = load_settings(self.conf)
        ensure_tables(self.settings.history)
        self._seq = 0

    def place(
        self, namespace: str, bundles: int, on: int = 0, each: int = 1
    ) -> tuple[list[str], list[str]]:
        """The bundles of a new namespace, all on one broker, and topics: first one of each bundle,
        then the others.
        """
        rest = self.cluster.rest()
        rest.create_namespace(namespace, bundles=bundles)
        found: list[list[str]] = [[] for _ in range(bundles)]
        number = 0
        while min(map(len, found)) < each:
            topic = f"persistent://{namespace}/topic-{number}"
            found[zlib.crc32(topic.encode()) * bundles >> 32].append(topic)
            number += 1
        topics = [topic for row in zip(*found, strict=False) for topic in row][: bundles * each]
        for topic in topics:
            rest.create_topic(topic)
        for topic in topics[:bundles]:
            self.cluster.move(topic, on)
        bounds = [f"0x{2**32 * place // bundles:08x}" for place in range(bundles)] + ["0xffffffff"]
        ranges = itertools.pairwise(bounds)
        return [f"{namespace}/{low}_{high}" for low, high in ranges], topics

    @property
    def extensible(self) -> bool:
        """Whether the cluster has the extensible load manager."""
        settings = self.cluster.rest().call("GET", "brokers/configuration/runtime")
        return "extensions" in settings["loadManagerClassName"]

    def bounds(self, namespace: str) -> list[str]:
        """The bounds of a namespace's bundles, as Pulsar writes them."""
        return list(
            self.cluster.rest().call("GET", f"namespaces/{namespace}/bundles")["boundaries"]
        )

    def owned(self, place: int) -> set[str]:
        """The bundles of a broker; asking assigns nothing."""
        path = f"brokers/quotaplane/{self.brokers[place]}/ownedNamespaces"
        return set(self.cluster.rest(place).call("GET", path))

    def owner(self, bundle: str) -> str:
        """The broker that owns the bundle; "" = none."""
        places = (place for place in range(len(self.brokers)) if bundle in self.owned(place))
        return next((self.brokers[place] for place in places), "")

    def propose(self, plan: Decisions) -> str:
        """Publish a plan as the balance job does; returns its hash."""
        self._seq += 1
        now_ms = int(time.time() * 1000)
        value = encode_plan(plan, epoch=1, seq=self._seq, decided_at_ms=now_ms, mode="propose")
        transport = open_transport(self.settings.transport, TOPICS)
        transport.publish([Message("plan", value)])
        transport.close()
        return plan.plan_hash(now_ms)

    def run(self, *words: str) -> int:
        command, *options = words
        return main(["balance", command, "--conf", str(self.conf), *options])

    def loads(self) -> dict[str, BrokerLoad]:
        """The newest load report of each broker on the topic."""
        link = open_broker_link(
            self.settings.transport, limits_from="earliest", topics=Topics(*reversed(TOPICS))
        )
        found = {}
        for message in link.poll_limits().messages:
            found[message.key] = decode_load_report(message.value)
        link.close()
        return found

    def actions(self) -> list[dict[str, Any]]:
        rows = DeltaTable(f"{self.settings.history.path}/balance_actions").to_pyarrow_table()
        return sorted(rows.to_pylist(), key=lambda row: (row["epoch"], row["round_at"], row["seq"]))


@contextmanager
def quick_cluster(
    folder: Path, manager: str, brokers: int, *, own_hosts: bool = False
) -> Iterator[PulsarCluster]:
    """A cluster with one of ``MANAGERS`` that measures each second."""
    with PulsarCluster(
        folder / "cluster",
        brokers=brokers,
        stats_interval_s=1,
        broker_settings={"statsUpdateInitialDelayInSecs": "1", **MANAGERS[manager]},
        own_hosts=own_hosts,
    ) as cluster:
        yield cluster
