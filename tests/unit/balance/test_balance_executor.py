"""The executor on a fake cluster that does what real ones do at bad moments."""

from __future__ import annotations

from typing import Any

import pytest

from quotabalance.agent.bundle_mover import ATTEMPTS
from quotabalance.agent.executor import Executor
from quotabalance.planning.decisions import Decisions, Move
from quotabalance.settings import Balance, Collect
from quotabalance.wire.balance_plans import PlanMessage
from quotaplane.errors import HistoryError
from quotaplane.pulsar_admin.rest import Rest
from tests.unit.balance.agent_cases import (
    ONE_AT_ONCE,
    QUICK,
    WIDE,
    A,
    B,
    NoRecord,
    balance_of,
    bundles_of,
    executed,
    move,
    moved,
    refused,
    with_cluster,
)
from tests.unit.balance.balance_cluster import HALVES, FakeBundles, message
from tests.unit.pulsar_admin.cluster_cases import Answer


@pytest.mark.parametrize(
    ("owner", "awkward", "found"),
    [
        pytest.param("h:0", {}, ("done", "h:1", 1), id="verified"),
        pytest.param(
            "h:0",
            {"snatched": 2},
            ("done", "h:1", 3),
            id="another lookup snatched it twice, so it is moved again",
        ),
        pytest.param("h:0", {"snatched": 3}, ("missed", "h:2", 3), id="snatched"),
        pytest.param("h:0", {"refuse_unloads": 1}, ("done", "h:1", 2), id="refused once"),
        pytest.param("h:0", {"refuse_unloads": 9}, ("failed", "h:0", 3), id="refused"),
        pytest.param("h:2", {}, ("moved on", "h:2", 0), id="it left its source"),
        pytest.param("h:1", {}, ("already there", "h:1", 0), id="somebody else moved it"),
    ],
)
def test_a_move(owner: str, awkward: dict[str, int], found: tuple[str, str, int]) -> None:
    cluster = FakeBundles({A: owner})
    cluster.snatched[A] = awkward.get("snatched", 0)
    cluster.refuse_unloads = awkward.get("refuse_unloads", 0)
    result = moved(cluster)
    assert (result.outcome, result.owner, result.attempts) == found
    assert cluster.owned == {A: found[1] or owner}
    assert bool(cluster.paths("PUT")) == (found[2] > 0)
    messages = {"missed": "h:2 has it", "failed": "500 broken"}
    assert messages.get(result.outcome, "") in result.message


def test_a_bundle_that_comes_after_the_last_look_is_moved() -> None:
    class Late(FakeBundles):
        def _unload(self, bundle: str, target: str) -> Answer:
            if len(self.paths("PUT")) == ATTEMPTS:
                self.owned[bundle] = target
            return Answer(500, {"reason": "timeout"})

    result = moved(Late({A: "h:0"}))
    assert (result.outcome, result.owner, result.attempts) == ("done", "h:1", ATTEMPTS)


def test_bundles_of_one_range_never_move_at_once() -> None:
    bundles = [f"acme/ns-{place}/{half}" for place in range(6) for half in HALVES]
    cluster = FakeBundles(dict.fromkeys(bundles, "h:0"))
    cluster.unload_s = 0.05
    settings = QUICK.model_copy(update={"max_moves_at_once": 8})
    counts = executed(cluster, Decisions([move(name, 0, 1) for name in bundles]), settings)
    assert counts == {"done": 12}
    assert cluster.clashes == []
    assert cluster.most_under_way == 2  # the two ranges


def test_the_traffic_under_way_is_bounded() -> None:
    bundles = bundles_of(8)
    cluster = FakeBundles(dict.fromkeys(bundles, "h:0"))
    cluster.rates = dict.fromkeys(bundles, 10e6)
    cluster.unload_s = 0.05
    settings = QUICK.model_copy(update={"max_bytes_at_once_per_s": 25e6})
    plan = Decisions([move(name, 0, 1 + place % 2, 10e6) for place, name in enumerate(bundles)])
    assert executed(cluster, plan, settings) == {"done": 8}
    assert cluster.most_under_way == 2


def test_repeated_failures_end_a_plan() -> None:
    bundles = bundles_of(8)
    cluster = FakeBundles(dict.fromkeys(bundles, "h:0"))
    cluster.refuse_unloads = 1000
    said: list[str] = []
    plan = Decisions([move(name, 0, 1) for name in bundles])
    assert executed(cluster, plan, say=said.append) == {"failed": 3, "refused": 5}
    assert said[-1].endswith(": 5 moves not done: 3 moves in a row failed")


@pytest.mark.parametrize(
    ("age_s", "targets", "outcomes"),
    [
        (0.0, (1, 1), ["refused", "refused"]),  # each by itself
        (4000.0, (1, 1), ["not done", "not done"]),  # neither was looked at
        (4000.0, (0, 1), ["already there", "not done"]),
    ],
)
def test_a_refused_plan_has_a_row_for_each_move(
    age_s: float, targets: tuple[int, ...], outcomes: list[str]
) -> None:
    cluster, record = FakeBundles({A: "h:0", B: "h:0"}), NoRecord()
    moves = [
        move(name, 2, target)._replace(label="Overloaded")
        for name, target in zip((A, B), targets, strict=True)
    ]
    plan = message(Decisions(moves), age_s=age_s)

    async def work(rest: Rest) -> str:
        executor = Executor(balance_of(), rest, "blue", record, print)  # type: ignore[arg-type]
        return await executor.refuse(plan, await executor.check(plan))

    why = with_cluster(cluster, work)
    assert ("s old" if age_s else f"{A} is at h:0 now, not at h:2") in why
    found = [(action, outcome) for _, action, outcome in record.rows]
    assert found == [("plan", "refused"), *(("move", outcome) for outcome in outcomes)]


def test_a_stop_ends_what_is_under_way_and_says_what_was_not_done() -> None:
    cluster = FakeBundles({A: "h:0", B: "h:0"})
    cluster.unload_s = 0.1
    plan = Decisions([move(A, 0, 1), move(B, 0, 1)])
    counts = executed(cluster, plan, ended=lambda: "stopped" if cluster.paths("PUT") else "")
    assert counts == {"done": 1, "not done": 1}
    assert sorted(cluster.owned.values()) == ["h:0", "h:1"]
    # The next run sees what is there, and does the rest.
    again = FakeBundles(cluster.owned)
    assert executed(again, plan) == {"already there": 1, "done": 1}


def test_what_cannot_be_recorded_is_not_begun() -> None:
    class FullDisk(NoRecord):
        async def write(self, plan: PlanMessage, *rows: Any) -> None:
            if len(self.rows) >= 2:
                raise HistoryError("no space left")
            await super().write(plan, *rows)

    bundles = bundles_of(6)
    cluster = FakeBundles(dict.fromkeys(bundles, "h:0"))
    plan, said = Decisions([move(name, 0, 1) for name in bundles]), list[str]()
    counts = executed(cluster, plan, ONE_AT_ONCE, say=said.append, record=FullDisk())
    assert counts == {"done": 2, "not done": 4}
    assert "no space left; no further move is begun" in said[0]
    assert said[-1].endswith("4 moves not done: actions can't be recorded")


def test_plans_that_must_not_be_executed() -> None:
    plan = Decisions([move(A, 0, 1)])
    assert refused(FakeBundles({A: "h:0"}), plan) == ()
    assert "is at h:2 now" in refused(FakeBundles({A: "h:2"}), plan)[0]
    assert "it is 4000 s old" in refused(FakeBundles({A: "h:0"}), plan, age_s=4000)[0]
    isolated = FakeBundles({A: "h:0"})
    isolated.policies = {
        "p": {
            "namespaces": ["acme/.*"],
            "primary": ["elsewhere"],
            "secondary": [],
            "auto_failover_policy": {
                "policy_type": "min_available",
                "parameters": {"min_limit": "1", "usage_threshold": "80"},
            },
        }
    }
    assert refused(isolated, plan) == (f"a policy keeps bundle {A} away from h:1",)
    nowhere = Decisions([Move(A, "h:0", "", 0.0, "Overloaded", "")])
    assert refused(FakeBundles({A: "h:0"}), nowhere) == (
        f"the plan leaves it to Pulsar where bundle {A} goes",
    )


def test_a_label_of_a_plan_does_not_take_a_broker_out() -> None:
    """Only the executor's own settings say which brokers are drained: a drain skips the checks of
    an imbalance, so everybody who writes to the topic would pass them with a word.
    """

    def refusals(label: str, balance: Balance) -> tuple[str, ...]:
        cluster = FakeBundles({A: "h:0", B: "h:1"})
        cluster.rates = {A: 5e6, B: 5e6}
        plan = Decisions([move(A, 0, 1, 5e6)._replace(label=label)])
        return refused(cluster, plan, balance=balance, tolerance=WIDE)

    settings = Balance()
    would_not_help = refusals("Overloaded", settings)
    assert "it would not help any more" in would_not_help[0]
    takes_out = (
        "it takes out broker h:0, which neither balance.collect.draining nor"
        " balance.policies.drained_brokers of the executor's own settings has"
    )
    assert refusals("Drain", settings) == (takes_out,)
    collect, policies = Collect(draining=("h:0",)), {"drained_brokers": ["h:0"]}
    for own in ({"collect": collect}, {"policies": policies}):
        assert refusals("Drain", settings.model_copy(update=own)) == ()


def test_the_owner_counts_not_the_broker_with_old_statistics() -> None:
    cluster = FakeBundles({A: "h:1", B: "h:0"})
    cluster.rates = {A: 5e6, B: 5e6}
    cluster.reported_by = {A: "h:0"}
    assert "is at h:1 now, not at h:0" in refused(cluster, Decisions([move(A, 0, 2, 5e6)]))[0]
