"""Plans and bundles for the executor, and its work on a fake cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from quotabalance.agent.bundle_mover import BundleMover, MoveResult
from quotabalance.agent.executor import TOLERANCE, Executor
from quotabalance.planning.approval import Tolerance
from quotabalance.planning.decisions import Decisions, Move
from quotabalance.settings import Balance, Collect, Execute
from quotabalance.wire.balance_plans import PlanMessage
from quotaplane.agents.conditions import Conditions, Say
from quotaplane.pulsar_admin.rest import Rest
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


class NoRecord:
    """A record that is kept in memory."""

    def __init__(self) -> None:
        self.rows: list[Any] = []

    async def write(self, plan: PlanMessage, *rows: Any) -> None:
        self.rows += [(plan.plan_hash, row.action, row.outcome) for row in rows]
