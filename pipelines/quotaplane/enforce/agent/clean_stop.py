"""A clean stop: leaves the safe limits, or no rates at all (``on_exit``)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from functools import partial
from typing import Final

import numpy as np

from quotaplane.agents.failures import Say, first_names
from quotaplane.enforce.agent.namespace_defaults import NamespaceDefaults
from quotaplane.enforce.agent.rate_writer import RateWriter
from quotaplane.enforce.agent.take_over import TakeOver
from quotaplane.enforce.rate_writes import Moves, Rates, plan
from quotaplane.enforce.rates_in_force import RatesInForce
from quotaplane.enforce.subdivide import Subdivision
from quotaplane.model import BASIC

_WITHIN_S: Final = 20.0
_HAND_BACK_WITHIN_S: Final = 12.0
PATIENCE_S: Final = 2.0
"""With what is under way when it is time to stop."""
_SOON_S: Final = 0.02


class CleanStop:
    """Leaves a cluster, and tells how much could not be done in time."""

    def __init__(
        self,
        ledger: RatesInForce,
        writer: RateWriter,
        defaults: NamespaceDefaults,
        say: Say,
        refresh: Callable[[float], None],
    ) -> None:
        self._ledger, self._writer, self._defaults = ledger, writer, defaults
        self._say, self._refresh = say, refresh

    async def safe(self, moves_of: Callable[[Rates], Moves]) -> None:
        """Bring the safe limits into force, of which ``moves_of`` makes moves.

        The rates of namespaces are made of them already.
        """
        await self._writer.idle(PATIENCE_S)
        await self._write_all(moves_of, _WITHIN_S)

    async def remove(self, take_over: TakeOver, *, taking_over: bool) -> None:
        """Take all rates off, once the cluster has its quotas again (``TakeOver.hand_back``)."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _WITHIN_S
        await self._writer.idle(PATIENCE_S)
        # First back to the brokers' own calculator: nobody is without a limit in between.
        groups = self._ledger.layout.groups
        kept = await take_over.hand_back(groups, _HAND_BACK_WITHIN_S, taking_over=taking_over)
        if kept:
            self._say(
                f"on_exit: remove: the publish quotas of {first_names(kept)} could not be handed "
                "back to the cluster: their rates stay"
            )
        # Namespaces before topics: one without a rate would be held to that of its namespace.
        await self._remove_defaults(kept, (until_s - loop.time()) / 2.0)
        await self._write_all(partial(self._removal, kept), until_s - loop.time())

    async def _remove_defaults(self, kept: set[str], within_s: float) -> None:
        loop = asyncio.get_running_loop()
        self._defaults.hurry()
        until_s = loop.time() + within_s
        await self._defaults.idle(PATIENCE_S)
        while True:
            begun = self._defaults.begin_removal(self._ledger.layout, kept, loop.time())
            if not begun or loop.time() > until_s:
                break
            await self._defaults.idle(max(until_s - loop.time(), 0.0))
            await asyncio.sleep(_SOON_S)
        if begun:
            self._say(f"on_exit: the rates of {begun} namespaces were not taken off in time")

    def _removal(self, kept: set[str], in_force: Rates) -> Moves:
        """All rates off but those of some groups; what is not known is read before."""
        layout = self._ledger.layout
        limits, rates, shares = (
            np.full((len(things), BASIC), np.inf)
            for things in (layout.pairs.broker, layout.topics, layout.parts)
        )
        stays = np.array([group in kept for group in layout.groups], np.bool_)[layout.group]
        rates[stays] = np.nan
        shares[stays[layout.topic]] = np.nan
        unlimited = Subdivision(rates, shares, rates)
        return plan(layout, limits, unlimited, in_force, significant_change=0.0)

    async def _write_all(self, moves_of: Callable[[Rates], Moves], within_s: float) -> None:
        """Write until nothing is left; there is no budget for this any more."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._until_written(moves_of), within_s)
        await self._writer.idle(PATIENCE_S)
        left = self._left(moves_of)
        if left:
            self._say(f"on_exit: {left} rates were not written in time")

    async def _until_written(self, moves_of: Callable[[Rates], Moves]) -> None:
        loop = asyncio.get_running_loop()
        self._writer.hurry()
        self._ledger.at_once()
        while True:
            now_s = loop.time()
            self._refresh(now_s)
            moves = moves_of(self._ledger.rates(now_s))
            if not len(moves.topic) and self._writer.at_rest and not self._left(moves_of):
                return
            self._writer.begin(moves, now_s)
            self._writer.read_unknown(moves)
            await asyncio.sleep(_SOON_S)

    def _left(self, moves_of: Callable[[Rates], Moves]) -> int:
        """How many rates are not as they should be, or nobody knows; also where something failed
        lately.
        """
        rates = self._ledger.rates(0.0)
        moves = moves_of(rates._replace(free=np.ones_like(rates.free)))
        left = moves.unread.copy()
        left[moves.topic, moves.kind] = True
        return int(left.sum()) + len(self._ledger.leaving)
