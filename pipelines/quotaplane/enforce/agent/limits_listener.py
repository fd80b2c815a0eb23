"""Reads the limits topic; refuses messages that the quota job can't have sent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from quotaplane.agents.conditions import Conditions, describe_error
from quotaplane.agents.known_conditions import IGNORED_LIMITS, REFUSED_LIMITS, UNVERIFIED_LIMITS
from quotaplane.enforce.agent.clock_of_limits import ClockOfLimits
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.enforce.limits_received import ClusterLimits
from quotaplane.errors import InputError
from quotaplane.settings import Settings
from quotaplane.transport.base import BrokerLink, Polled
from quotaplane.wire.limits import LimitsMessage, decode_limits
from quotaplane.wire.reasons import shown
from quotaplane.wire.signatures import SigningKeys, seems_signed

_PORTIONS: Final = 20
"""Polls per call of ``listen`` while there are more messages; then other parts get their turn."""
_FORGET_EVERY_S: Final = 60.0
_EPOCHS_EVERY_S: Final = 1.0
"""An unknown epoch makes the listener read the history at most this often."""
_EPOCHS_AFTER_FAILURE_S: Final = 30.0
"""The same after a read that failed."""
_OUTDATED_MS: Final = 3_600_000.0
"""A lease that was over so long before the newest round is no limit of the job any more: it renews
each before its lease ends. Removals are not renewed; ``setup pulsar`` keeps them for so long."""

Decoded: TypeAlias = "list[tuple[Polled, LimitsMessage | Exception]]"


class LimitsListener:
    """Keeps the limits received over a link in ``received``.

    A message that can't be used is counted and reported with its position; the others are used.
    """

    def __init__(
        self,
        link: BrokerLink,
        table: QuotaTable,
        settings: Settings,
        conditions: Conditions,
        now_ms: Callable[[], float],
        steady_ms: Callable[[], float] | None = None,
    ) -> None:
        self.received = ClusterLimits()
        self.caught_up = False
        """Whether the end of the topic was reached once. Before that, limits in ``received`` may be
        outdated, and writing them would waste budget."""
        self._link, self._table, self._now_ms = link, table, now_ms
        self._conditions = conditions
        self._steady_ms = now_ms if steady_ms is None else steady_ms
        self.arrived_ms = 0.0
        """When the last message that was used arrived, on the clock ``steady_ms``; 0: none did."""
        self.clock = ClockOfLimits(settings.limits.lease_s, conditions, now_ms, self._steady_ms)
        self._skew_s = settings.reports.max_clock_skew_s
        self._lease_s = settings.limits.lease_s
        self._keys = SigningKeys.of(settings.limits.signing)
        self._seems_signed = False
        self.refused = 0
        """Messages that were refused."""
        self._epochs_from_s = self._forgot_s = float("-inf")

    async def listen(self) -> None:
        """Take in the messages that arrived since the last call.

        Raises:
            TransportError: the limits topic can't be read.
        """
        self.clock.look()
        for _ in range(_PORTIONS):
            decoded, more, caught_up = await asyncio.to_thread(self._poll)
            await self._take(decoded)
            self.caught_up = self.caught_up or caught_up
            if not more:
                break
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._forgot_s + _FORGET_EVERY_S:
            self._forgot_s = now_s
            self.received.forget(self._steady_ms())
        if self.received.not_enforced:
            text = (
                "limits on totals, controller mutations or request time, and throttle terms, are "
                "ignored: stock brokers enforce only publish and dispatch "
                "(docs/explain/enforcer.md)"
            )
            self._conditions.note(IGNORED_LIMITS, "", text)
        if self._keys is None and self._seems_signed:
            text = (
                "messages are signed, but signatures are not verified here: limits.signing is not "
                "set (docs/explain/enforcer.md)"
            )
            self._conditions.note(UNVERIFIED_LIMITS, "", text)

    def age_ms(self) -> float:
        """Time since the newest message was issued."""
        return max(self._now_ms() - self.received.issued_at_ms, 0.0)

    def _poll(self) -> tuple[Decoded, bool, bool]:
        portion = self._link.poll_limits()
        decoded: Decoded = []
        for polled in portion.messages:
            try:
                decoded.append((polled, decode_limits(polled.value, self._keys)))
                self._seems_signed = self._seems_signed or seems_signed(polled.value)
            except Exception as error:
                # Any exception: the messages behind this one must not be lost with it.
                decoded.append((polled, error))
        return decoded, portion.more, portion.caught_up

    async def _take(self, decoded: Decoded) -> None:
        unknown: list[tuple[Polled, LimitsMessage]] = []
        for polled, message in decoded:
            await asyncio.sleep(0)  # a start may read hours of large messages: let others run
            if isinstance(message, Exception):
                self._refuse(polled, message)
            elif self._is_known(message.epoch):
                self._receive(polled, message)
            else:
                unknown.append((polled, message))
        if unknown:
            # The job writes a round to the history before it publishes the round's limits.
            await self._look_at_epochs()
            for polled, message in unknown:
                await asyncio.sleep(0)
                self._receive(polled, message)

    def _is_known(self, epoch: int) -> bool:
        return self._table.newest_epoch is not None and epoch <= self._table.newest_epoch

    async def _look_at_epochs(self) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._table.newest_epoch is not None:
            await asyncio.sleep(max(self._epochs_from_s - now_s, 0.0))
        elif now_s < self._epochs_from_s:
            return
        await self._table.look_at_epochs()
        failed = self._table.newest_epoch is None
        wait_s = _EPOCHS_AFTER_FAILURE_S if failed else _EPOCHS_EVERY_S
        self._epochs_from_s = asyncio.get_running_loop().time() + wait_s

    def _receive(self, polled: Polled, message: LimitsMessage) -> None:
        now_ms, steady_ms = self._now_ms(), self._steady_ms()
        if not self.caught_up and self._over_for_ms(message, now_ms) > _OUTDATED_MS:
            return  # a topic may keep messages for longer than they are needed
        if self.caught_up:  # before that, messages have waited in the topic
            self.clock.arrived(message.issued_at_ms, now_ms)
        try:
            self._check(message, now_ms)
            self.received.receive(message, steady_ms, now_ms)
            self.arrived_ms = steady_ms
        except Exception as error:
            self._refuse(polled, error)

    def _check(self, message: LimitsMessage, now_ms: float) -> None:
        """Check whether the quota job can have sent a message.

        Raises:
            InputError: it can't; the message says why.
        """
        ahead_s = (message.issued_at_ms - now_ms) / 1000.0
        if ahead_s > self._skew_s:
            raise InputError(
                f"issued {ahead_s:.0f} s ahead of this host's clock (reports.max_clock_skew_s is "
                f"{self._skew_s:g}); synchronise the clocks of the job's host and this one"
            )
        if message.lease_ms > self._lease_s * 1000.0:
            raise InputError(
                f"its lease is {message.lease_ms / 1000.0:g} s (limits.lease_s is "
                f"{self._lease_s:g}); give the job and the enforcer the same settings"
            )
        over_ms = self._over_for_ms(message, now_ms)
        if over_ms > _OUTDATED_MS:
            raise InputError(
                f"its lease was over {over_ms / 1000.0:.0f} s before the newest round in the "
                "history: somebody published an old message again"
            )
        newest = self._table.newest_epoch
        if newest is not None and message.epoch > newest:
            raise InputError(
                f"epoch {message.epoch} is later than that of every round in the history (newest: "
                f"{newest}); give the job and the enforcer the same history.path"
            )
        if newest is None and message.epoch > now_ms / 1000.0 + self._skew_s:
            raise InputError(
                f"epoch {message.epoch} is ahead of this host's clock, and the history, which "
                "would show whether it is the job's, can't be read"
            )

    def _over_for_ms(self, message: LimitsMessage, now_ms: float) -> float:
        """For how long a lease was over when the newest known round was decided.

        Both are times of the job's clock, so a wrong clock here makes no limit outdated. While the
        job is down, its last limits stay what they are, and their safe limits hold.
        """
        newest_ms = min(self._table.newest_round_ms, now_ms)
        return newest_ms - (message.issued_at_ms + message.lease_ms)

    def _refuse(self, polled: Polled, error: Exception) -> None:
        self.refused += 1
        message = f"{polled.position}: message for {shown(polled.key)}"
        text = f"{message} refused: {describe_error(error)}"
        self._conditions.note(REFUSED_LIMITS, "", text, times=1)
