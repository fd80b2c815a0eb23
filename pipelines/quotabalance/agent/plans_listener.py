"""Reads the plans topic: the newest plan, and earlier ones that an administrator may approve."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from quotabalance.balancer_conditions import PLANS_TOPIC, REFUSED_PLANS
from quotabalance.wire.balance_plans import PlanMessage as PlanMessage
from quotabalance.wire.balance_plans import decode_plan
from quotaplane.agents.conditions import Conditions
from quotaplane.errors import InputError, QuotaplaneError
from quotaplane.settings.signing import Signing
from quotaplane.transport.base import BrokerLink
from quotaplane.wire.signatures import SigningKeys

_MAX_CLOCK_SKEW_MS: Final = 60_000.0
_KEPT: Final = 1000
"""Plans that are remembered by their hash."""
_KEPT_ACTIONS: Final = 100_000
"""Moves and splits of all these plans; a plan may have 10,000."""


class PlansListener:
    """The plans on the topic, read from its oldest message on.

    A plan with a later (epoch, seq) is newer. So is any plan that was decided ``max_plan_age_s``
    after another one: a plan with a number that is too high does not block the others for longer.
    A message that is not a valid plan, is not signed with one of the keys of ``signing`` (None: no
    signature is needed), has the hash of another plan, or was decided in the future, is refused,
    and said. The newest plans that have ``kept_actions`` moves and splits in all can be approved.
    """

    def __init__(
        self,
        link: BrokerLink,
        conditions: Conditions,
        max_plan_age_s: float,
        now_ms: Callable[[], float] = lambda: time.time() * 1000.0,
        *,
        signing: Signing | None = None,
        kept_actions: int = _KEPT_ACTIONS,
    ) -> None:
        self._link, self._now_ms, self._kept_actions = link, now_ms, kept_actions
        self._keys = SigningKeys.of(signing)
        self._max_age_ms = max_plan_age_s * 1000.0
        self.conditions = conditions
        self.newest: PlanMessage | None = None
        self.newest_to_do: PlanMessage | None = None
        """The newest plan with moves or splits; an empty one revokes nothing."""
        self._by_hash: dict[str, PlanMessage] = {}
        self._actions = 0
        self.refused = 0
        """Messages that were refused."""

    async def catch_up(self) -> None:
        """Read all plans that are on the topic now.

        Raises:
            TransportError: they can't be read.
        """
        while not await self._poll():
            pass

    async def look(self) -> bool:
        """Read what is new; whether there is a newer plan now."""
        before = self.newest
        try:
            while not await self._poll():
                pass
        except QuotaplaneError as error:
            self.conditions.note(PLANS_TOPIC, "", error)
        else:
            self.conditions.note(PLANS_TOPIC, "", None)
        return self.newest is not before

    async def _poll(self) -> bool:
        """One poll; whether nothing more is there now."""
        portion = await asyncio.to_thread(self._link.poll_limits)
        for polled in portion.messages:
            try:
                self.take(decode_plan(polled.value, self._keys))
            except InputError as error:
                self.refused += 1
                text = f"{polled.position}: {error}"
                self.conditions.note(REFUSED_PLANS, "", text, times=1)
        return portion.caught_up and not portion.more

    def take(self, plan: PlanMessage) -> None:
        """Take in a plan.

        Raises:
            InputError: it was decided in the future, or another plan has its hash.
        """
        ahead_ms = plan.decided_at_ms - self._now_ms()
        if ahead_ms > _MAX_CLOCK_SKEW_MS:
            raise InputError(f"it was decided {ahead_ms / 1000.0:.0f} s in the future")
        if plan.plan_hash:
            known = self._by_hash.get(plan.plan_hash)
            if known == plan:  # the job publishes a plan again after a crash
                return
            if known is not None:
                raise InputError(
                    f"another plan has the hash {plan.plan_hash}: epoch {known.epoch}, seq"
                    f" {known.seq}, mode {known.mode}; this one says epoch {plan.epoch}, seq"
                    f" {plan.seq}, mode {plan.mode}"
                )
            self._by_hash[plan.plan_hash] = plan
            self._actions += _actions(plan)
            while len(self._by_hash) > 1 and (
                len(self._by_hash) > _KEPT or self._actions > self._kept_actions
            ):
                self._actions -= _actions(self._by_hash.pop(next(iter(self._by_hash))))
        if self.newest is None or self._replaces(plan, self.newest):
            self.newest = plan
        to_do = self.newest_to_do
        if plan.plan_hash and (to_do is None or self._replaces(plan, to_do)):
            self.newest_to_do = plan

    def with_hash(self, plan_hash: str) -> PlanMessage:
        """The plan that an administrator names.

        Raises:
            InputError: the topic has none.
        """
        if plan_hash in self._by_hash:
            return self._by_hash[plan_hash]
        newest = self.newest.plan_hash if self.newest is not None else ""
        shown = f"the newest is {newest}" if newest else "the newest plan has nothing to do"
        raise InputError(
            f"--plan {plan_hash}: there is no such plan on the topic; "
            + (shown if self.newest is not None else "it has no plans at all")
        )

    def _replaces(self, plan: PlanMessage, other: PlanMessage) -> bool:
        later_ms = plan.decided_at_ms - other.decided_at_ms
        return (plan.epoch, plan.seq) > (other.epoch, other.seq) or later_ms > self._max_age_ms


def _actions(plan: PlanMessage) -> int:
    return len(plan.decisions.moves) + len(plan.decisions.splits)
