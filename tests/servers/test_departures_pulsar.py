"""A broker of a real Pulsar cluster is stopped, or killed: how soon the job ends its leases."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from quotaplane.history.store import ensure_tables
from quotaplane.settings import load_settings
from tests.job import RunningJob, history_table, write_conf
from tests.servers.pulsar_clients import publishing, pulsar_transport
from tests.servers.pulsar_cluster import PulsarCluster

pytestmark = pytest.mark.nightly

INTERVAL_S = 5
LIMITS = "persistent://public/quotaplane/limits"
LOST = 2
"""The broker that ends."""


def limits_of(job: RunningJob, broker: str, since_s: float) -> list[dict[str, Any]]:
    """Rows of ``limits`` that the job wrote about a broker since a time."""
    rows = history_table(job.settings, "limits").to_pylist()
    mine = [row for row in rows if row["broker"] == broker]
    return [row for row in mine if row["round_at"].timestamp() > since_s]


class Watched:
    """Rows that the job wrote about a broker since a moment."""

    def __init__(self, job: RunningJob, cluster: PulsarCluster, broker: int) -> None:
        self._job, self._cluster = job, cluster
        self._name, self._broker = cluster.service_urls[broker], broker
        self._since_s = time.time()

    def ended(self) -> dict[str, Any] | None:
        """The row of ``limits`` with which the broker's lease ended."""
        rows = limits_of(self._job, self._name, self._since_s)
        return next((row for row in rows if row["ended"]), None)

    def listed(self) -> bool:
        return self._cluster.listed(self._broker)

    def seconds(self, end: Callable[[], None]) -> tuple[float, float, str]:
        """From the end of the broker: to the list without it, to the end of its lease; and why."""
        ending = threading.Thread(target=end)
        begun_s = time.time()
        ending.start()
        self._job.wait_until(lambda: not self.listed())
        left_s = time.time() - begun_s
        self._job.wait_until(lambda: self.ended() is not None)
        ending.join()
        row = self.ended()
        assert row is not None
        return left_s, row["round_at"].timestamp() - begun_s, row["ended_because"]


def test_a_broker_that_ends_loses_its_share(tmp_path: Path) -> None:
    settings = {"metadataStoreSessionTimeoutMillis": "6000"}
    with PulsarCluster(
        tmp_path / "cluster", report_interval_s=INTERVAL_S, broker_settings=settings
    ) as cluster:
        rest = cluster.rest()
        rest.create_namespace("public/quotaplane")
        rest.create_topic(LIMITS)
        group = rest.put_group("of-acme", publish_messages_per_s=60)
        rest.create_tenant("acme")
        namespace = rest.create_namespace("acme/orders", bundles=16)
        rest.attach(namespace, group)
        topics = [cluster.topic_on(broker, namespace) for broker in range(3)]
        conf = write_conf(
            tmp_path,
            pulsar_transport(cluster.service_urls[0], cluster.admin_urls[0], LIMITS),
            cluster={},
            reports={"interval_s": INTERVAL_S},
            trigger={"interval_s": 1.0},
            shards=1,
        )
        ensure_tables(load_settings(conf).history)
        # A broker that ends takes the connections of its topics' clients with it.
        load = publishing(cluster.service_urls[0], *topics, per_s=20)
        with load, RunningJob(conf) as job:

            def limited(broker: int, since_s: float) -> bool:
                rows = limits_of(job, cluster.service_urls[broker], since_s)
                return any(not row["ended"] for row in rows)

            job.wait_until(lambda: all(limited(broker, 0.0) for broker in range(3)))
            watched = Watched(job, cluster, LOST)
            stopped = watched.seconds(lambda: cluster.stop_broker(LOST))
            print(f"stopped: {stopped}")
            cluster.start_broker(LOST)
            cluster.move(topics[LOST], LOST)
            back_s = time.time()
            job.wait_until(lambda: limited(LOST, back_s))
            watched = Watched(job, cluster, LOST)
            killed = watched.seconds(lambda: cluster.kill_broker(LOST))
            print(f"killed: {killed}")
            print("\n".join(job.printed()))
    for left_s, ended_s, why in (stopped, killed):
        assert why == "departed"
        assert left_s < ended_s < left_s + 2 * INTERVAL_S
