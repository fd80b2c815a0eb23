"""Plans of quotaplane's strategy on stock clusters with isolation policies, executed under load.

With three brokers one policy leaves a single broker to all other namespaces; with four there are
two pools. The brokers have addresses of their own, as policies name hosts.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import pytest
import yaml

from quotabalance.cli.balance import AS_TRUE
from quotabalance.planning.balance_state import BalanceState
from quotabalance.planning.cases import BrokerLoadCase, loads_of
from quotabalance.planning.decisions import Decisions, Move
from quotabalance.planning.options import read_options
from quotabalance.planning.planner import BalanceRound, decide
from quotabalance.planning.policies import read_policies
from quotabalance.record import outcomes
from tests.servers.balance_rig import Rig, quick_cluster
from tests.servers.pulsar_clients import publishing
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly

BUNDLES = 8
ROUNDS = 10
CALM = {"resources": [], "max_bytes_share_per_round": 1, "start_above": 0.4, "stop_below": 0.3}
"""Options: all brokers are on one machine, so bytes count, and the rates of a second are noisy."""
CLUSTERS = (("modular", 3), ("modular", 4), ("extensible", 4))


class Pools(Rig):
    """A cluster whose first two brokers are the pool of the tenant ``left``."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        hosts = [re.escape(broker.partition(":")[0]) for broker in self.brokers]
        self.pools = {"left": hosts[:2], "right": hosts[2:]}
        self.two = len(hosts) == 4

    def owners(self, namespace: str) -> dict[str, str]:
        """Brokers by bundle."""
        found: dict[str, str] = {}
        for place, broker in enumerate(self.brokers):
            for bundle in self.owned(place):
                if bundle.startswith(f"{namespace}/"):
                    assert bundle not in found, f"{broker} and {found[bundle]} have {bundle}"
                    found[bundle] = broker
        return found

    def take_policies(self, capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
        """Write the cluster's policies into our settings, as an administrator does."""
        capsys.readouterr()
        assert self.run("collect", "--policies") == 0
        policies = yaml.safe_load(capsys.readouterr().out)["balance"]["policies"]
        conf = yaml.safe_load(self.conf.read_text())
        conf["balance"]["policies"] = policies | {"excluded_namespaces": ["public/.*"]}
        self.conf.write_text(yaml.safe_dump(conf))
        found: dict[str, Any] = conf["balance"]["policies"]
        return found

    def decided(self, policies: dict[str, Any], measured: set[str], **options: Any) -> Decisions:
        """Decisions of the strategy on freshly collected loads; ``measured``: bundles in them."""
        cases: dict[str, BrokerLoadCase] = {}
        topics: dict[str, int] = {}

        def collected() -> bool:
            assert self.run("collect", "--once") == 0
            cases.clear()
            seen = set()
            for broker, load in self.loads().items():
                rates = dict(zip(load.bundles, load.rates.tolist(), strict=True))
                cases[broker] = BrokerLoadCase(bundles=rates)
                topics.update(zip(load.bundles, load.topics.tolist(), strict=True))
                seen |= {name for name, row in rates.items() if row[0] > 0}
            # The numbers of the second before may still show a bundle at the broker that had it.
            owned = {broker: self.owned(place) for place, broker in enumerate(self.brokers)}
            at_owners = all(
                measured.intersection(case.bundles) <= owned[broker]
                for broker, case in cases.items()
            )
            bundles = [name for case in cases.values() for name in case.bundles]
            return measured <= seen and at_owners and len(bundles) == len(set(bundles))

        wait_until(collected, every_s=1.0)
        (load,) = loads_of([cases], "collected", topics)
        brokers = len(load.brokers)
        round_ = BalanceRound(load, 0.0, np.zeros(brokers), np.zeros(brokers, np.bool_))
        chosen = read_options({**AS_TRUE, **CALM, **options})
        return decide(BalanceState.empty(), round_, chosen, read_policies(policies))[1]

    def execute(self, plan: Decisions) -> tuple[int, list[dict[str, Any]]]:
        """Execute a plan; returns the exit code, and the rows of its moves and splits."""
        hash_ = self.propose(plan)
        code = self.run("execute", "--plan", hash_, "--why", "policies")
        rows = [row for row in self.actions() if row["plan_hash"] == hash_]
        return code, [row for row in rows if row["action"] != "plan"]


@pytest.fixture(scope="module", params=CLUSTERS, ids=lambda param: f"{param[0]}-{param[1]}")
def rig(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pools]:
    manager, brokers = request.param
    folder = tmp_path_factory.mktemp("policies")
    with quick_cluster(folder, manager, brokers, own_hosts=True) as cluster:
        for tenant in ("left", "right"):
            cluster.rest().create_tenant(tenant)
        yield Pools(cluster, folder)


def balance_until_done(rig: Pools, policies: dict[str, Any], bundles: set[str]) -> None:
    """Decide and execute until nothing is left to do. What policies demand is made at once; what
    only evens out load may be refused, as the rates of a second are noisy.
    """
    for _ in range(ROUNDS):
        plan = rig.decided(policies, bundles)
        if not plan.moves:
            return
        code, rows = rig.execute(plan)
        demanded = {move.bundle for move in plan.moves if move.label == "Policy"}
        made = {row["bundle"] for row in rows if row["outcome"] == outcomes.DONE}
        assert demanded <= made, rows
        assert code == (0 if len(made) == len(plan.moves) else 1 if made else 8)
    raise AssertionError(f"the cluster is not balanced after {ROUNDS} plans")


def test_policies_are_set_changed_and_broken(
    rig: Pools, capsys: pytest.CaptureFixture[str]
) -> None:
    left, topics = rig.place("left/orders", BUNDLES, on=2)
    right, more_topics = rig.place("right/bills", BUNDLES)
    bundles = {*left, *right}
    # Pulsar itself leaves the bundles where they are.
    isolate = partial(rig.cluster.rest().put_isolation, unload_scope="none")
    isolate("left", "left/.*", rig.pools["left"])
    if rig.two:
        isolate("right", "right/.*", rig.pools["right"])
    # All bundles stand where their policies, or those of others, forbid them.
    assert set(rig.owners("left/orders").values()) == {rig.brokers[2]}
    assert set(rig.owners("right/bills").values()) == {rig.brokers[0]}
    with publishing(rig.cluster.service_url, *topics, *more_topics, per_s=20):
        balance_until_done(rig, rig.take_policies(capsys), bundles)
        shares = list(rig.owners("left/orders").values())
        assert set(shares) == set(rig.brokers[:2])
        assert set(rig.owners("right/bills").values()) == set(rig.brokers[2:])
        assert max(shares.count(broker) for broker in rig.brokers[:2]) <= BUNDLES // 2 + 1

        # The pool is cut to one broker, which then carries far more than the mean of all.
        isolate("left", "left/.*", rig.pools["left"][:1])
        balance_until_done(rig, rig.take_policies(capsys), bundles)
        assert set(rig.owners("left/orders").values()) == {rig.brokers[0]}

        # A policy that matches no broker: its bundles stay, and it is named once.
        isolate("left", "left/.*", ["10[.]9[.]9[.]9"])
        before = rig.owners("left/orders")
        plan = rig.decided(rig.take_policies(capsys), bundles)
        assert not any(move.bundle.startswith("left/") for move in plan.moves)
        named = [skip.label for skip in plan.skips if "isolation policy left" in skip.reason]
        assert named == ["Policy"]
        bundle = min(before)
        wrong = Move(bundle, before[bundle], rig.brokers[1], 1.0, "Policy", "")
        assert rig.execute(Decisions([wrong]))[0] == 8
        assert rig.owners("left/orders") == before


@pytest.mark.parametrize(("most", "held"), [(5, [3, 3]), (2, None)])
def test_a_bundle_with_too_many_topics_is_divided_by_topics(
    rig: Pools, capsys: pytest.CaptureFixture[str], most: int, held: list[int] | None
) -> None:
    rest = rig.cluster.rest()
    namespace = rest.create_namespace(f"right/at-most-{most}", bundles=1)
    topics = [f"persistent://{namespace}/topic-{number}" for number in range(6)]
    for topic in topics:
        rest.create_topic(topic)
    rig.cluster.move(topics[0], 2)
    rig.cluster.rest().put_isolation("left", "left/.*", rig.pools["left"], unload_scope="none")
    policies = rig.take_policies(capsys)

    def connections() -> dict[str, list[str]]:
        found = {}
        for topic in topics:
            publishers = rest.call("GET", f"{topic}/stats")["publishers"]
            found[topic] = [one["connectedSince"] for one in publishers]
        return found

    with publishing(rig.cluster.service_url, *topics, per_s=20):
        wait_until(lambda: all(connections().values()))
        begin = connections()
        for _ in range(ROUNDS):
            plan = rig.decided(policies, with_topics(rig, topics), max_bundle_topics=most)
            wanted = [split for split in plan.splits if split.bundle.startswith(f"{namespace}/")]
            if not wanted:
                break
            assert {split.label for split in wanted} == {"Topics"}
            code, _ = rig.execute(Decisions([], wanted))
            assert code == 0
        assert connections() == begin
    found = [rest.bundle(topic) for topic in topics]
    counts = sorted(found.count(bundle) for bundle in set(found))
    assert max(counts) <= most
    assert counts == held or held is None
    assert set(rig.owners(namespace).values()) == {rig.brokers[2]}


def with_topics(rig: Pools, topics: Sequence[str]) -> set[str]:
    """The bundles of these topics."""
    return {f"{'/'.join(t.split('/')[2:4])}/{rig.cluster.rest().bundle(t)}" for t in topics}
