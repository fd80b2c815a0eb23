"""Follows the plans topic and executes each plan of a balancer in mode auto."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any, Final

from quotabalance.agent.executor import Executor
from quotabalance.agent.plans_listener import PlansListener
from quotabalance.balancer_conditions import CHECK_OF_PLAN
from quotabalance.wire.balance_plans import PlanMessage
from quotaplane.agents.conditions import Say
from quotaplane.agents.periodic import waited
from quotaplane.errors import QuotaplaneError

_LOOK_EVERY_S: Final = 1.0


class PlanFollower:
    """Executes the newest plan, one at a time. A newer plan with something to do replaces it: what
    is under way ends, and the rest is not begun.
    """

    def __init__(self, executor: Executor, listener: PlansListener, say: Say) -> None:
        self._executor, self._listener, self._say = executor, listener, say
        self._done: PlanMessage | None = None
        """The latest plan that was executed, refused or left to an approval."""
        self.plans_executed = 0
        self.plans_refused = 0
        self.awaiting_approval = ""
        """Hash of the newest plan, if its balancer is in mode propose."""

    async def run(self, stop: asyncio.Event) -> None:
        """Follow the topic until ``stop``; moves that are under way then end first."""
        looking = asyncio.create_task(self._look(stop))
        try:
            while not stop.is_set():
                plan = self._next()
                if plan is not None:
                    await self._take(plan, stop)
                await waited(stop, _LOOK_EVERY_S / 2)
        finally:
            looking.cancel()
            with suppress(asyncio.CancelledError):
                await looking

    async def _look(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self._listener.look()
            await asyncio.sleep(_LOOK_EVERY_S)

    def _next(self) -> PlanMessage | None:
        """The newest plan, if nothing was done about it yet."""
        plan = self._listener.newest_to_do
        if plan is None or plan is self._done:
            return None
        if plan.mode != "auto":
            self._done, self.awaiting_approval = plan, plan.plan_hash
            self._say(
                f"plan {plan.plan_hash} needs an approval: balance.mode of its job is propose"
            )
            return None
        return plan

    async def _take(self, plan: PlanMessage, stop: asyncio.Event) -> None:
        try:
            verdict = await self._executor.check(plan)
        except QuotaplaneError as error:
            self._listener.conditions.note(CHECK_OF_PLAN, plan.plan_hash, error)
            await asyncio.sleep(_LOOK_EVERY_S)
            return
        self._listener.conditions.note(CHECK_OF_PLAN, plan.plan_hash, None)
        self._done, self.awaiting_approval = plan, ""
        if verdict.whole:
            self.plans_refused += 1
            why = await self._executor.refuse(plan, verdict)
            self._say(f"plan {plan.plan_hash} refused: {why}")
            return

        def ended() -> str:
            if stop.is_set():
                return "the executor was stopped"
            newest = self._listener.newest_to_do
            if newest is None or newest.plan_hash == plan.plan_hash:
                return ""
            return f"plan {newest.plan_hash} replaces it"

        await self._executor.execute(plan, verdict, ended)
        self.plans_executed += 1

    def status(self) -> dict[str, Any]:
        """Counts for the status line."""
        return {
            "plans_executed": self.plans_executed,
            "plans_refused": self.plans_refused,
            "awaiting_approval": self.awaiting_approval,
            **self._executor.status(),
        }
