"""The executor beside others that unload and move bundles: each outcome is as it really was."""

from __future__ import annotations

from typing import Any

import pytest

from quotabalance.agent.action_record import Action
from quotabalance.agent.executor import Executor
from quotabalance.planning.decisions import Decisions
from quotabalance.wire.balance_plans import PlanMessage
from quotaplane.pulsar_admin.rest import Rest
from tests.unit.balance.agent_cases import (
    ONE_AT_ONCE,
    A,
    B,
    balance_of,
    bundles_of,
    executed,
    move,
    with_cluster,
)
from tests.unit.balance.balance_cluster import FakeBundles, message

SHEDDING = {"loadBalancerSheddingEnabled": "true", "loadBalancerAutoBundleSplitEnabled": "false"}


class Rows:
    """A record that keeps whole rows."""

    def __init__(self) -> None:
        self.rows: list[Action] = []

    async def write(self, _: PlanMessage, *rows: Action) -> None:
        self.rows += rows

    def moves(self) -> list[tuple[str, str, str]]:
        """Bundle, outcome and owner afterwards."""
        rows = [row for row in self.rows if row.action == "move"]
        return [(row.bundle, row.outcome, row.owner) for row in rows]


def run(cluster: FakeBundles, plan: Decisions, said: list[str]) -> tuple[dict[str, int], Rows]:
    rows = Rows()
    return executed(cluster, plan, ONE_AT_ONCE, say=said.append, record=rows), rows


@pytest.mark.parametrize(("owner", "where"), [("h:2", "is at h:2"), ("", "has no owner")])
def test_a_bundle_that_somebody_else_moves_after_its_move(owner: str, where: str) -> None:
    cluster, said = FakeBundles({A: "h:0", B: "h:0"}), list[str]()
    cluster.moved_after = {A: owner}
    counts, rows = run(cluster, Decisions([move(A, 0, 1), move(B, 0, 1)]), said)
    assert counts == {"done": 1, "moved on": 1}
    assert rows.moves() == [(A, "done", "h:1"), (B, "done", "h:1"), (A, "moved on", owner)]
    assert rows.rows[-2].message == f"it {where} by now: somebody else unloaded it after this move"
    assert rows.rows[-1].message == "1 done, 1 moved on"
    assert len(cluster.paths("PUT")) == 2  # it is not fetched back
    assert len(said) == 1
    assert f"1 of 2 moved bundles were unloaded by somebody else since: {A}" in said[0]


def test_bundles_that_others_take_all_the_time_end_a_plan() -> None:
    bundles = bundles_of(6)
    cluster, said = FakeBundles(dict.fromkeys(bundles, "h:0")), list[str]()
    cluster.snatched.update(dict.fromkeys(bundles, 1000))
    counts, rows = run(cluster, Decisions([move(name, 0, 1) for name in bundles]), said)
    assert counts == {"missed": 3, "refused": 3}
    assert [row[1:] for row in rows.moves()] == [("missed", "h:2")] * 3 + [("refused", "")] * 3
    assert len(cluster.paths("PUT")) == 9  # three attempts each, and no more


def test_the_brokers_own_balancing_is_said_once_and_when_it_is_over() -> None:
    cluster, said = FakeBundles({A: "h:0"}), list[str]()
    cluster.settings = {"h:1": SHEDDING, "h:2": SHEDDING}

    async def work(rest: Rest) -> Any:
        executor = Executor(balance_of(), rest, "blue", None, said.append)
        for _ in range(3):
            await executor.check(message(Decisions([move(A, 0, 1)])))
        active = executor.status()["conditions"]
        cluster.settings = {"h:1": {**SHEDDING, "loadBalancerEnabled": "false"}}
        await executor.check(message(Decisions([move(A, 0, 1)])))
        return active

    assert with_cluster(cluster, work, said.append) == {"own balancing": ["h:1", "h:2"]}
    assert len(said) == 2
    assert "brokers h:1, h:2" in said[0]
    assert "(loadBalancerSheddingEnabled=true)" in said[0]
    assert said[1].startswith("own balancing: over")
