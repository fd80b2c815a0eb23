"""The collector and the executor, on a fake cluster that does what real ones do at bad moments."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from pydantic import SecretStr

from quotabalance.agent.bundle_mover import BundleMover, MoveResult
from quotabalance.agent.collector import Collector
from quotabalance.agent.executor import TOLERANCE, Executor
from quotabalance.agent.plan_follower import PlanFollower
from quotabalance.agent.plans_listener import PlansListener
from quotabalance.job.plan_finisher import BalanceFinisher
from quotabalance.planning.approval import Tolerance
from quotabalance.planning.decisions import Decisions, Move
from quotabalance.settings import Balance, Collect, Execute
from quotabalance.wire.balance_plans import PlanMessage, decode_plan, encode_plan
from quotabalance.wire.broker_loads import BrokerLoad
from quotabalance.wire.load_reports import decode_load_report
from quotaplane.agents.conditions import Conditions, Say
from quotaplane.errors import HistoryError, InputError
from quotaplane.model import Round
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.settings.signing import Signing
from quotaplane.transport.base import Polled, Portion
from quotaplane.wire.signatures import SigningKeys
from tests.unit.balance.balance_cluster import BROKERS, HALVES, FakeBundles, message
from tests.virtual_loop import run_virtually

A, B = (f"acme/orders/{half}" for half in HALVES)
QUICK = Execute()
ONE_AT_ONCE = Execute(max_moves_at_once=1)
WIDE = Tolerance(receiver_share=9.0)


def balance_of(settings: Execute = QUICK, draining: tuple[str, ...] = ("h:0",)) -> Balance:
    """Settings of an executor that takes out ``h:0``."""
    return Balance(execute=settings, collect=Collect(draining=draining))


def bundles_of(count: int) -> list[str]:
    return [f"acme/orders/0x{place}0000000_0x{place + 1}0000000" for place in range(count)]


def move(bundle: str, source: int, target: int, bytes_per_s: float = 0.0) -> Move:
    return Move(bundle, BROKERS[source], BROKERS[target], bytes_per_s, "Drain", "")


def with_cluster(
    cluster: FakeBundles, work: Callable[[Rest], Awaitable[Any]], say: Say = print
) -> Any:
    async def inside() -> Any:
        conditions = Conditions(say, clock=asyncio.get_running_loop().time)
        async with cluster.rest(conditions) as rest:
            return await work(rest)

    return run_virtually(inside())


def moved(cluster: FakeBundles) -> MoveResult:
    """The first bundle is to go from h:0 to h:1."""

    async def work(rest: Rest) -> MoveResult:
        executor = Executor(balance_of(), rest, "blue", None, print)
        view = (await executor.check(message(Decisions()))).view
        return await BundleMover(rest, "blue", view.addresses, 60.0).move(move(A, 0, 1))

    return with_cluster(cluster, work)


def executed(
    cluster: FakeBundles,
    plan: Decisions,
    settings: Execute = QUICK,
    ended: Callable[[], str] = lambda: "",
    say: Callable[[str], None] = print,
    record: Any = None,
) -> dict[str, int]:
    async def work(rest: Rest) -> dict[str, int]:
        executor = Executor(balance_of(settings), rest, "blue", record, say, tolerance=WIDE)
        verdict = await executor.check(message(plan))
        assert verdict.whole == ()
        return dict(await executor.execute(message(plan), verdict, ended))

    return with_cluster(cluster, work)


def refused(
    cluster: FakeBundles,
    plan: Decisions,
    age_s: float = 0.0,
    balance: Balance | None = None,
    tolerance: Tolerance = TOLERANCE,
) -> tuple[str, ...]:
    async def work(rest: Rest) -> tuple[str, ...]:
        executor = Executor(balance or balance_of(), rest, "blue", None, print, tolerance=tolerance)
        return (await executor.check(message(plan, age_s=age_s))).whole

    return with_cluster(cluster, work)


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
    assert executed(cluster, plan, say=said.append) == {"failed": 3, "not done": 5}
    assert said[-1].endswith(": 5 moves not done: 3 moves in a row failed")


def test_a_stop_ends_what_is_under_way_and_says_what_was_not_done() -> None:
    cluster = FakeBundles({A: "h:0", B: "h:0"})
    cluster.unload_s = 0.1
    plan = Decisions([move(A, 0, 1), move(B, 0, 1)])
    counts = executed(cluster, plan, ended=lambda: "stopped" if cluster.paths("PUT") else "")
    assert counts == {"done": 1, "not done": 1}
    assert sorted(cluster.owned.values()) == ["h:0", "h:1"]
    # What is there is seen by the next run, which does the rest.
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


class Outbox:
    """A link that keeps what is sent, and gives out plans."""

    def __init__(self) -> None:
        self.loads: list[BrokerLoad] = []
        self.plans: list[bytes] = []

    def send_reports(self, reports: Sequence[tuple[str, bytes, int]]) -> None:
        self.loads += [decode_load_report(value) for _, value, _ in reports]

    def poll_limits(self) -> Portion:
        plans, self.plans = self.plans, []
        return Portion([Polled("blue", value, "p") for value in plans], False, True)

    def close(self) -> None: ...


def test_the_collector_reports_what_brokers_answer_and_nothing_else() -> None:
    cluster = FakeBundles({A: "h:0", B: "h:1"})
    cluster.rates = {A: 3e6}
    cluster.silent = {"h:2"}
    outbox, said = Outbox(), list[str]()
    clock = [1_000_000_000]

    async def work(rest: Rest) -> dict[str, Any]:
        settings = Collect(draining=("h:1",))
        collector = Collector(settings, rest, outbox, now_ms=lambda: clock[0])
        await collector.start()
        await collector.collect()
        clock[0] += 10_000
        cluster.rates = {A: 4e6}
        cluster.silent = set()
        await collector.collect()
        return collector.status()

    status = with_cluster(cluster, work, said.append)
    assert [(load.broker, load.sequence) for load in outbox.loads] == [
        *(("h:0", 1), ("h:1", 1)),
        *(("h:0", 2), ("h:1", 2), ("h:2", 2)),
    ]
    assert [load.draining for load in outbox.loads[:2]] == [False, True]
    assert outbox.loads[0].rates[0].tolist() == [3e6, 0.0, 0.0, 0.0]
    # New numbers are from after the previous read; unchanged ones may be a minute old.
    ages = [clock[0] - load.measured_at_ms for load in outbox.loads[2:4]]
    assert ages == [10_000, 60_000]
    assert "h:2" in said[0]
    assert said[-1].startswith("load of brokers: over after ")
    assert (status["silent_brokers"], status["reports_published"]) == ([], 5)


def plan_bytes(plan: Decisions, seq: int, mode: str = "auto") -> bytes:
    now_ms = int(time.time() * 1000)
    return encode_plan(plan, epoch=1, seq=seq, decided_at_ms=now_ms, mode=mode)


def heard(*plans: bytes, signing: Signing | None = None) -> tuple[PlansListener, list[str]]:
    """A listener that has read these plans, and what it said."""
    outbox, said = Outbox(), list[str]()
    outbox.plans = [*plans]
    listener = PlansListener(outbox, Conditions(said.append), 1800.0, signing=signing)
    run_virtually(listener.catch_up())
    return listener, said


def test_plans_are_found_by_hash_and_damaged_ones_are_refused() -> None:
    first, second = Decisions((move(A, 0, 1),)), Decisions((move(B, 0, 1),))
    sent = [plan_bytes(second, 2), b"junk", plan_bytes(first, 1), plan_bytes(Decisions(), 3)]
    listener, said = heard(*sent)
    assert listener.newest.plan_hash == ""
    assert listener.newest_to_do.decisions == second
    assert listener.with_hash(decode_plan(sent[2]).plan_hash).seq == 1
    assert (listener.refused, len(said)) == (1, 1)
    with pytest.raises(InputError, match="no such plan"):
        listener.with_hash("0123456789abcdef")


def test_a_second_plan_of_a_hash_is_refused() -> None:
    plan = Decisions([move(A, 0, 1)])
    now_ms = int(time.time() * 1000)
    first, newer, auto = (
        encode_plan(plan, epoch=1, seq=seq, decided_at_ms=now_ms, mode=mode)
        for seq, mode in ((1, "propose"), (2, "propose"), (1, "auto"))
    )
    listener, said = heard(first, newer, auto, first)
    assert listener.refused == 2
    assert f"another plan has the hash {plan.plan_hash(now_ms)}: epoch 1, seq 1" in said[0]
    assert listener.newest == listener.newest_to_do == decode_plan(first)
    assert listener.with_hash(plan.plan_hash(now_ms)) == decode_plan(first)


def test_with_keys_only_the_plans_that_the_job_signed_are_found() -> None:
    signing = Signing(keys={"a": SecretStr("s" * 32)}, sign_with="a")
    forger = SigningKeys({"a": "f" * 32}, sign_with="a")
    job = BalanceFinisher(Balance(signing=signing), 1200.0, lambda _: {})
    plan, other = Decisions((move(A, 0, 1),)), Decisions((move(B, 0, 1),))
    finished = job.finish(Round(1, 1, 0), {"plan": [plan_bytes(plan, 1)]})
    forged = [plan_bytes(other, 2), forger.sign(plan_bytes(other, 2))]
    on_topic = [*forged, *(sent.value for sent in finished.messages), *forged]
    listener, said = heard(*on_topic, signing=signing)
    assert listener.newest_to_do.decisions == plan
    assert (listener.refused, len(said)) == (4, 1)  # a flood does not fill the log
    assert "not signed at its end" in said[0]
    assert "s" * 32 not in str(said)
    # Without keys the forged ones, which have a higher number, would count.
    assert heard(*on_topic)[0].newest_to_do.decisions == other


def test_a_plan_with_a_number_that_is_too_high_stands_in_the_way_for_a_while_only() -> None:
    now_ms, plans = 1e12, [Decisions((move(name, 0, 1),)) for name in (A, B)]
    said: list[str] = []
    listener = PlansListener(Outbox(), Conditions(said.append), 1800.0, lambda: now_ms)

    def sent(plan: Decisions, seq: int, later_s: float) -> Decisions:
        decided_at_ms = int(1e12 + later_s * 1000)
        data = encode_plan(plan, epoch=seq, seq=seq, decided_at_ms=decided_at_ms, mode="auto")
        listener.take(decode_plan(data))
        return listener.newest_to_do.decisions

    forged = sent(plans[0], 2**63 - 1, 0)
    now_ms += 1_900_000
    assert sent(plans[1], 7, 1700) == forged
    assert sent(plans[1], 8, 1801) == plans[1]
    with pytest.raises(InputError, match="it was decided 100 s in the future"):
        sent(plans[0], 2**63 - 1, 2000)


class NoRecord:
    """A record that is kept in memory."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    async def write(self, plan: PlanMessage, *rows: Any) -> None:
        self.rows += [(plan.plan_hash, row.action, row.outcome) for row in rows]


@pytest.mark.parametrize("mode", ["auto", "propose"])
def test_plans_of_mode_auto_are_followed_and_a_newer_one_replaces_the_rest(mode: str) -> None:
    bundles = bundles_of(6)
    cluster = FakeBundles(dict.fromkeys(bundles, "h:0"))
    cluster.unload_s = 0.4
    old = Decisions([move(name, 0, 1) for name in bundles])
    new = Decisions([move(bundles[5], 0, 2)])
    outbox, said, record = Outbox(), [], NoRecord()
    sent = [plan_bytes(old, 1, mode), plan_bytes(new, 2, mode)]
    old_hash, new_hash = (decode_plan(value).plan_hash for value in sent)
    outbox.plans = sent[:1]

    async def work(rest: Rest) -> dict[str, Any]:
        executor = Executor(balance_of(ONE_AT_ONCE), rest, "blue", record, said.append)  # type: ignore[arg-type]
        listener = PlansListener(outbox, Conditions(said.append), 1800.0)
        follower = PlanFollower(executor, listener, record, said.append)  # type: ignore[arg-type]
        stop = asyncio.Event()
        running = asyncio.create_task(follower.run(stop))
        await asyncio.sleep(1.0)
        outbox.plans = sent[1:]
        for _ in range(100):
            await asyncio.sleep(0.05)
            if cluster.owned[bundles[5]] == "h:2" or mode == "propose":
                break
        await asyncio.sleep(1.2 if mode == "propose" else 0.2)
        stop.set()
        await running
        return follower.status()

    status = with_cluster(cluster, work)
    if mode == "propose":
        assert not cluster.paths("PUT")
        assert status["awaiting_approval"] == new_hash
        return
    assert cluster.owned[bundles[5]] == "h:2"
    assert "h:0" in cluster.owned.values()  # of the old plan, what had not begun
    assert any(f"plan {new_hash} replaces it" in line for line in said)
    assert status["plans_executed"] == 2
    assert (old_hash, "move", "not done") in record.rows
