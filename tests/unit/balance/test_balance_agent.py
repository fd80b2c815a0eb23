"""The collector, the listener for plans and the follower of plans, on a fake cluster."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import SecretStr

from quotabalance.agent.collector import Collector
from quotabalance.agent.executor import Executor
from quotabalance.agent.plan_follower import PlanFollower
from quotabalance.agent.plans_listener import PlansListener
from quotabalance.job.plan_finisher import BalanceFinisher
from quotabalance.planning.decisions import Decisions
from quotabalance.settings import Balance, Collect
from quotabalance.wire.balance_plans import decode_plan, encode_plan
from quotabalance.wire.broker_loads import BrokerLoad
from quotabalance.wire.load_reports import decode_load_report
from quotaplane.agents.conditions import Conditions
from quotaplane.errors import InputError
from quotaplane.model import Round
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.settings.signing import Signing
from quotaplane.transport.base import Polled, Portion
from quotaplane.wire.signatures import SigningKeys
from tests.unit.balance.agent_cases import (
    ONE_AT_ONCE,
    A,
    B,
    NoRecord,
    balance_of,
    bundles_of,
    move,
    with_cluster,
)
from tests.unit.balance.balance_cluster import FakeBundles
from tests.virtual_loop import run_virtually


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
        follower = PlanFollower(executor, listener, said.append)  # type: ignore[arg-type]
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
