"""Collect, plan and execute on stock clusters of two brokers, one with the modular and one with the
extensible load manager, through the commands themselves.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from deltalake import DeltaTable

from quotabalance.planning.decisions import Decisions, Move, Split
from quotabalance.wire.balance_plans import encode_plan
from quotabalance.wire.broker_loads import BrokerLoad
from quotabalance.wire.load_reports import decode_load_report
from quotaplane.cli.main import main
from quotaplane.history.store import ensure_tables
from quotaplane.settings import Settings, load_settings
from quotaplane.transport import open_broker_link, open_transport
from quotaplane.transport.base import Message, Topics
from tests.job import ROOT, write_conf
from tests.servers.pulsar_clients import pulsar_transport, quiet_client
from tests.servers.pulsar_cluster import MANAGERS, PulsarCluster

pytestmark = pytest.mark.nightly

TOPICS = Topics("load-reports", "balance-plans")
RANGES = ("0x00000000_0x80000000", "0x80000000_0xffffffff")


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

    def namespace(self, name: str) -> str:
        """A namespace of two bundles, with two topics in each, all of it on the first broker."""
        namespace = self.cluster.rest().create_namespace(f"public/{name}", bundles=2)
        for part in range(2):
            for topic in topics_in(namespace, part):
                self.cluster.rest().create_topic(topic)
            self.cluster.move(topics_in(namespace, part)[0], 0)
        return namespace

    def owner(self, bundle: str) -> str:
        """The broker that owns the bundle; asking assigns nothing."""
        for broker in self.brokers:
            path = f"brokers/quotaplane/{broker}/ownedNamespaces"
            if bundle in self.cluster.rest().call("GET", path):
                return broker
        return ""

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


def topics_in(namespace: str, part: int) -> list[str]:
    """Two topics in one half of a namespace."""
    names = (f"persistent://{namespace}/topic-{number}" for number in range(100))
    return [name for name in names if zlib.crc32(name.encode()) >> 31 == part][:2]


@pytest.fixture(scope="module", params=MANAGERS)
def rig(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rig]:
    folder = tmp_path_factory.mktemp("balance")
    settings = {"statsUpdateInitialDelayInSecs": "1", **MANAGERS[request.param]}
    with PulsarCluster(
        folder / "cluster", brokers=2, stats_interval_s=1, broker_settings=settings
    ) as cluster:
        yield Rig(cluster, folder)


def test_collected_planned_executed(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    namespace = rig.namespace("orders")
    heavy = f"{namespace}/{RANGES[0]}"
    client = quiet_client(rig.cluster.service_url)
    producer, _ = (
        client.create_producer(topic, block_if_queue_full=True) for topic in topics_in(namespace, 0)
    )
    load = None
    for _ in range(20):
        for _ in range(50):
            producer.send_async(bytes(1000), lambda result, position: None)
        producer.flush()
        time.sleep(0.2)
        assert rig.run("collect", "--once") == 0
        load = rig.loads()[rig.brokers[0]]
        if heavy in load.bundles:
            at = load.bundles.index(heavy)
            if load.rates[at, 0] > 1000.0 and load.topics[at] == 2:
                break
    assert load is not None
    at = load.bundles.index(heavy)
    assert load.rates[at, 0] > 1000.0
    assert load.topics[at] == 2
    assert load.sessions[at] == 2
    assert load.limit[0] > 0  # processors
    assert 0 <= time.time() * 1000 - load.measured_at_ms < 30_000
    assert rig.loads().keys() == set(rig.brokers)

    move = Move(heavy, *rig.brokers, float(load.rates[at, :2].sum()), "Overloaded", "it is")
    plan = rig.propose(Decisions([move]))
    capsys.readouterr()
    assert rig.run("execute") == 0
    shown = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (shown[0]["move"], shown[-1]["plan"]) == (heavy, plan)
    assert rig.owner(heavy) == rig.brokers[0]  # a dry run
    producer.send(bytes(1000))

    assert rig.run("execute", "--plan", "0123456789abcdef", "--why", "a test") == 2
    assert "no such plan" in capsys.readouterr().err
    assert rig.run("execute", "--plan", plan) == 2
    assert "--why" in capsys.readouterr().err
    assert rig.owner(heavy) == rig.brokers[0]


def test_moves_are_made_verified_and_recorded(rig: Rig) -> None:
    first, second = rig.namespace("moved"), rig.namespace("moved-too")
    # Both namespaces have the same ranges, which Pulsar 4.0 mixes up when they move at once.
    bundles = [f"{namespace}/{range_}" for range_ in RANGES for namespace in (first, second)]
    moves = [Move(bundle, *rig.brokers, 0.0, "Drain", "maintenance") for bundle in bundles]
    plan = rig.propose(Decisions(moves))
    before = len(rig.actions())
    assert rig.run("execute", "--plan", plan, "--why", "maintenance") == 0
    assert {rig.owner(bundle) for bundle in bundles} == {rig.brokers[1]}
    rows = rig.actions()[before:]
    assert [row["action"] for row in rows] == ["plan", *["move"] * 4, "plan"]
    assert {row["outcome"] for row in rows[1:-1]} == {"done"}
    assert {(row["why"], row["mode"], row["plan_hash"]) for row in rows} == {
        ("maintenance", "manual", plan)
    }
    # A killed executor begins again like this: owners are read, nothing is done twice.
    assert rig.run("execute", "--plan", plan, "--why", "again") == 0
    assert {row["outcome"] for row in rig.actions()[-5:-1]} == {"already there"}


def test_a_plan_is_refused_when_a_bundle_is_elsewhere(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    namespace = rig.namespace("gone")
    low, high = (f"{namespace}/{range_}" for range_ in RANGES)
    plan = rig.propose(
        Decisions(
            [
                Move(low, *rig.brokers, 0.0, "Drain", ""),
                Move(high, *reversed(rig.brokers), 0.0, "Drain", ""),
            ]
        )
    )
    rig.cluster.move(topics_in(namespace, 1)[0], 1)
    back = rig.propose(Decisions([Move(low, rig.brokers[1], "h:1", 0.0, "Drain", "")]))
    assert rig.run("execute", "--plan", back, "--why", "test") == 8
    assert "broker h:1 is not in the cluster any more" in capsys.readouterr().err
    rig.cluster.rest().call("PUT", f"namespaces/{namespace}/{RANGES[0]}/unload")
    assert rig.run("execute", "--plan", plan, "--why", "test") == 8
    assert f"bundle {low} has no owner" in capsys.readouterr().err
    assert rig.owner(high) == rig.brokers[1]  # nothing was done, not even what could have been
    assert rig.actions()[-1]["outcome"] == "refused"


def test_the_clusters_policies_are_printed(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    namespace = rig.cluster.rest().create_namespace("public/apart")
    rig.cluster.rest().call("POST", f"namespaces/{namespace}/antiAffinity", "group-1")
    policy = {
        "namespaces": ["public/alone"],
        "primary": [rig.brokers[0]],
        "secondary": [rig.brokers[1]],
        "auto_failover_policy": {
            "policy_type": "min_available",
            "parameters": {"min_limit": "2", "usage_threshold": "80"},
        },
    }
    path = "clusters/quotaplane/namespaceIsolationPolicies/alone"
    rig.cluster.rest().call("POST", path, policy)
    rack = "clusters/quotaplane/failureDomains/rack"
    rig.cluster.rest().call("POST", rack, {"brokers": rig.brokers[:1]})
    try:
        capsys.readouterr()
        assert rig.run("collect", "--policies") == 0
        assert yaml.safe_load(capsys.readouterr().out) == {
            "balance": {
                "policies": {
                    "isolation": {
                        "alone": {
                            "namespaces": ["public/alone"],
                            "primary": [rig.brokers[0]],
                            "secondary": [rig.brokers[1]],
                            "min_primary": 2,
                        }
                    },
                    "anti_affinity": {namespace: "group-1"},
                    "failure_domains": {"rack": rig.brokers[:1]},
                }
            }
        }
    finally:
        rig.cluster.rest().call("DELETE", path)
        rig.cluster.rest().call("DELETE", rack)


def test_a_bundle_is_split_at_its_topics(rig: Rig) -> None:
    namespace = rig.namespace("split")
    bundle = f"{namespace}/{RANGES[0]}"
    hashes = sorted(zlib.crc32(topic.encode()) for topic in topics_in(namespace, 0))
    plan = rig.propose(Decisions([], [Split(bundle, rig.brokers[0], (), "TooBig", "")]))
    assert rig.run("execute", "--plan", plan, "--why", "test") == 0
    bounds = rig.cluster.rest().call("GET", f"namespaces/{namespace}/bundles")["boundaries"]
    assert len(bounds) == 4
    assert hashes[0] < int(bounds[1], 16) <= hashes[1]
    given = (0xA0000000, 0xC0000000, 0xE0000000)
    plan = rig.propose(
        Decisions([], [Split(f"{namespace}/{RANGES[1]}", rig.brokers[0], given, "TooBig", "")])
    )
    assert rig.run("execute", "--plan", plan, "--why", "test") == 0
    bounds = rig.cluster.rest().call("GET", f"namespaces/{namespace}/bundles")["boundaries"]
    assert {f"0x{bound:08x}" for bound in given} <= set(bounds)
    assert rig.owner(f"{namespace}/0xc0000000_0xe0000000") == rig.brokers[0]
    assert rig.run("execute", "--plan", plan, "--why", "again") == 8  # it is not there any more


def test_a_killed_executor_goes_on_or_refuses(rig: Rig, capsys: pytest.CaptureFixture[str]) -> None:
    namespace = rig.cluster.rest().create_namespace("public/killed", bundles=16)
    topics: dict[int, str] = {}
    for number in range(400):
        topic = f"persistent://{namespace}/topic-{number}"
        topics.setdefault(zlib.crc32(topic.encode()) >> 28, topic)
    for topic in topics.values():
        rig.cluster.rest().create_topic(topic)
        rig.cluster.move(topic, 0)
    edges = [f"0x{place << 28:08x}" for place in range(16)] + ["0xffffffff"]
    bundles = [f"{namespace}/{low}_{high}" for low, high in itertools.pairwise(edges)]
    moves = [Move(bundle, *rig.brokers, 0.0, "Drain", "") for bundle in bundles]
    plan = rig.propose(Decisions(moves))
    command = [sys.executable, "-m", "quotaplane", "balance", "execute", "--conf", str(rig.conf)]
    running = subprocess.Popen(
        [*command, "--plan", plan, "--why", "test"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "pipelines")},
    )
    while not any(rig.owner(bundle) == rig.brokers[1] for bundle in bundles):
        assert running.poll() is None
    running.kill()
    running.wait()
    code = rig.run("execute", "--plan", plan, "--why", "again")
    if code == 8:  # it was killed between an unload and its claim
        assert "has no owner" in capsys.readouterr().err
        return
    assert code == 0
    assert {rig.owner(bundle) for bundle in bundles} == {rig.brokers[1]}
    outcomes = [row["outcome"] for row in rig.actions()[-17:-1]]
    assert set(outcomes) == {"done", "already there"}
