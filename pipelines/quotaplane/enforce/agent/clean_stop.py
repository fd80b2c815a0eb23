"""Stops the enforcer cleanly: brings safe limits into force or removes all rates (``on_exit``)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import numpy as np

from quotaplane.agents.conditions import Say
from quotaplane.enforce.agent.administrator_rates import AdministratorRates
from quotaplane.enforce.agent.custodian import Custodian
from quotaplane.enforce.agent.namespace_defaults import NamespaceDefaults
from quotaplane.enforce.agent.rate_writer import RateWriter
from quotaplane.enforce.rate_writes import Moves, Rates
from quotaplane.enforce.rates_in_force import RatesInForce
from quotaplane.enforce.topic_division import removal
from quotaplane.texts import first_few

_WITHIN_S: Final = 20.0
_GIVE_BACK_WITHIN_S: Final = 12.0
PATIENCE_S: Final = 2.0
"""How long a stop waits for requests in flight."""
_TICK_S: Final = 0.02


class CleanStop:
    """Brings a cluster into the state that ``on_exit`` names; reports what was not done in time.

    ``cause`` is in these reports.
    """

    def __init__(
        self,
        ledger: RatesInForce,
        writer: RateWriter,
        administrators: AdministratorRates,
        defaults: NamespaceDefaults,
        say: Say,
        refresh: Callable[[float], None],
        cause: str,
    ) -> None:
        self._ledger, self._writer, self._defaults = ledger, writer, defaults
        self._administrators = administrators
        self._say, self._refresh, self._cause = say, refresh, cause

    async def safe(self, moves_of: Callable[[Rates], Moves]) -> None:
        """Bring the safe limits into force; ``moves_of`` plans the writes for them.

        The defaults of namespaces follow the safe limits at any time.
        """
        await self._writer.idle(PATIENCE_S)
        await self._write_all(moves_of, _WITHIN_S)

    async def remove(self, custodian: Custodian, within_s: float | None = None) -> int:
        """Give all topics and namespaces back, after the cluster has its quotas back.

        See ``Custodian.give_all_back``. Returns how many rates and quotas of ours are left.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + (within_s or _WITHIN_S)
        await self._writer.idle(PATIENCE_S)
        # The brokers' own calculator takes over before our rates go: no topic is unlimited between.
        groups = self._ledger.layout.groups
        without_quota = await custodian.give_all_back(groups, _GIVE_BACK_WITHIN_S)
        if without_quota:
            self._say(
                f"{self._cause}: the publish quotas of {first_few(sorted(without_quota))} could "
                "not be given back to the cluster: the rates of their topics stay"
            )
        # Namespaces before topics: a topic without a rate is held to its namespace's default.
        namespaces = await self._remove_defaults(without_quota, (until_s - loop.time()) / 2.0)
        rates = await self._write_all(
            lambda rates: removal(self._ledger.layout, rates, without_quota), until_s - loop.time()
        )
        self._administrators.drop_given_back()
        await self._administrators.look()
        return len(without_quota) + namespaces + rates

    async def _remove_defaults(self, stay: set[str], within_s: float) -> int:
        loop = asyncio.get_running_loop()
        self._defaults.hurry()
        until_s = loop.time() + within_s
        await self._defaults.idle(PATIENCE_S)
        while True:
            remaining = self._defaults.begin_removal(self._ledger.layout, stay, loop.time())
            if not remaining or loop.time() > until_s:
                break
            await self._defaults.idle(max(until_s - loop.time(), 0.0))
            await asyncio.sleep(_TICK_S)
        if remaining:
            self._say(
                f"{self._cause}: the rates of {remaining} namespaces were not removed in time"
            )
        return remaining

    async def _write_all(self, moves_of: Callable[[Rates], Moves], within_s: float) -> int:
        """Write, without a budget, until nothing is left or the time is over; what is left."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._until_written(moves_of), within_s)
        await self._writer.idle(PATIENCE_S)
        remaining = self._remaining(moves_of)
        if remaining:
            self._say(f"{self._cause}: {remaining} rates were not written in time")
        return remaining

    async def _until_written(self, moves_of: Callable[[Rates], Moves]) -> None:
        loop = asyncio.get_running_loop()
        self._writer.hurry()
        self._ledger.retry_now()
        while True:
            now_s = loop.time()
            self._refresh(now_s)
            moves = moves_of(self._ledger.rates(now_s))
            if not len(moves.topic) and self._writer.at_rest and not self._remaining(moves_of):
                return
            self._writer.begin(moves, now_s)
            self._writer.read_unknown(moves)
            await asyncio.sleep(_TICK_S)

    def _remaining(self, moves_of: Callable[[Rates], Moves]) -> int:
        """How many rates are wrong or unknown, including those paused after a failure."""
        rates = self._ledger.rates(0.0)
        moves = moves_of(rates._replace(idle=np.ones_like(rates.idle)))
        open_rates = moves.unread.copy()
        open_rates[moves.topic, moves.kind] = True
        return int(open_rates.sum()) + len(self._ledger.to_remove)
