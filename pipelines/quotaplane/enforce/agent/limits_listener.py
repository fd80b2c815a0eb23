"""Takes limits from their topic into the book, as far as they can be the quota job's."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeAlias

from quotaplane.agents.failures import Say
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.enforce.limits_received import Book
from quotaplane.errors import InputError, QuotaplaneError
from quotaplane.settings import Settings
from quotaplane.transport.base import BrokerLink, Polled
from quotaplane.wire.limits import LimitsMessage, decode_limits
from quotaplane.wire.reasons import shown

_PORTIONS: Final = 20
"""So many follow each other while there is more; then it is somebody else's turn."""
_TOLD_EVERY_S: Final = 60.0
"""A line about refused messages comes no more often: who sends them must not fill the log."""
_FORGET_EVERY_S: Final = 60.0
_EPOCHS_EVERY_S: Final = 1.0
_EPOCHS_AFTER_FAILURE_S: Final = 30.0
"""For an epoch that is not known the history is read no more often."""

Decoded: TypeAlias = "list[tuple[Polled, LimitsMessage | Exception]]"


class LimitsListener:
    """The limits that came over a link are in ``book``.

    A message that can't be used, whatever is wrong with it, is counted, told with its position, and
    costs no other one.
    """

    def __init__(
        self,
        link: BrokerLink,
        table: QuotaTable,
        settings: Settings,
        say: Say,
        now_ms: Callable[[], float],
    ) -> None:
        self.book = Book()
        self.caught_up = False
        """Whether all is known that was told before: what is behind it would be written for
        nothing."""
        self.refused = 0
        """So many messages were not used."""
        self._link, self._table, self._say, self._now_ms = link, table, say, now_ms
        self._skew_s = settings.reports.max_clock_skew_s
        self._lease_s = settings.limits.lease_s
        self._told_not_enforced = False
        self._told_at: float | None = None
        self._untold = 0
        self._epochs_from_s = self._forgot_s = float("-inf")

    async def listen(self) -> None:
        """Take in what came since the last call.

        Raises:
            TransportError: the limits can't be read.
        """
        for _ in range(_PORTIONS):
            decoded, more, caught_up = await asyncio.to_thread(self._poll)
            await self._take(decoded)
            self.caught_up = self.caught_up or caught_up
            if not more:
                break
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._forgot_s + _FORGET_EVERY_S:
            self._forgot_s = now_s
            self.book.forget(self._now_ms())
        if self.book.not_enforced and not self._told_not_enforced:
            self._told_not_enforced = True
            self._say(
                "limits on totals or mutations, or terms of throttling, were told: stock brokers "
                "can't be held to them, only to publish and dispatch (docs/enforcer.md)"
            )

    def age_ms(self) -> float:
        """How long ago the newest of all messages was decided."""
        return max(self._now_ms() - self.book.issued_at_ms, 0.0)

    def _poll(self) -> tuple[Decoded, bool, bool]:
        portion = self._link.poll_limits()
        decoded: Decoded = []
        for polled in portion.messages:
            try:
                decoded.append((polled, decode_limits(polled.value)))
            except Exception as error:
                # Any exception: the messages behind this one must not be lost with it.
                decoded.append((polled, error))
        return decoded, portion.more, portion.caught_up

    async def _take(self, decoded: Decoded) -> None:
        unknown: list[tuple[Polled, LimitsMessage]] = []
        for polled, message in decoded:
            await asyncio.sleep(0)  # at the start there may be hours of them, of many groups each
            if isinstance(message, Exception):
                self._refuse(polled, message)
            elif self._is_known(message.epoch):
                self._receive(polled, message)
            else:
                unknown.append((polled, message))
        if unknown:
            # The job writes a round to the history before it tells its limits.
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
        now_ms = self._now_ms()
        try:
            self._check(message, now_ms)
            self.book.receive(message, now_ms)
        except Exception as error:
            self._refuse(polled, error)

    def _check(self, message: LimitsMessage, now_ms: float) -> None:
        """Refuse what the quota job can't have told.

        Raises:
            InputError: it can't have.
        """
        ahead_s = (message.issued_at_ms - now_ms) / 1000.0
        if ahead_s > self._skew_s:
            raise InputError(
                f"decided {ahead_s:.0f} s ahead of this host's clock (reports.max_clock_skew_s is "
                f"{self._skew_s:g}); synchronise the clocks of the job's host and this one"
            )
        if message.lease_ms > self._lease_s * 1000.0:
            raise InputError(
                f"its lease is {message.lease_ms / 1000.0:g} s (limits.lease_s is "
                f"{self._lease_s:g}); give the job and the enforcer the same settings"
            )
        newest = self._table.newest_epoch
        if newest is not None and message.epoch > newest:
            raise InputError(
                f"epoch {message.epoch} is later than all of the history's rounds (the newest is "
                f"of {newest}); give the job and the enforcer the same history.path"
            )
        if newest is None and message.epoch > now_ms / 1000.0 + self._skew_s:
            raise InputError(
                f"epoch {message.epoch} is ahead of this host's clock, and the history, which "
                "could tell that it is the job's, can't be read"
            )

    def _refuse(self, polled: Polled, error: Exception) -> None:
        self.refused += 1
        now_s = asyncio.get_running_loop().time()
        if self._told_at is not None and now_s < self._told_at + _TOLD_EVERY_S:
            self._untold += 1
            return
        kind = "" if isinstance(error, QuotaplaneError) else f"{type(error).__name__}: "
        more = f"; so were {self._untold} more since the last such line" if self._untold else ""
        self._say(
            f"limits topic: {polled.position}: a message for {shown(polled.key)} is refused: "
            f"{kind}{error}{more}"
        )
        self._told_at, self._untold = now_s, 0
