"""Ends an enforcer cleanly: brings safe limits into force or gives everything back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

import numpy as np

from quotaplane.enforce.agent.enforcer_parts import EnforcerParts
from quotaplane.enforce.agent.enforcer_status import GivenBack
from quotaplane.enforce.agent.leader_election import taking_part
from quotaplane.enforce.rate_writes import Moves, Rates
from quotaplane.enforce.topic_division import planned, removal
from quotaplane.errors import ClusterError, HistoryError
from quotaplane.texts import first_few
from quotaplane.topics.topic_layout import KINDS

_WITHIN_S: Final = 20.0
_GIVE_BACK_WITHIN_S: Final = 12.0
_GIVEN_BACK_WITHIN_S: Final = 60.0
"""How long ``give_back`` tries, beside the time that reading takes."""
_AGAIN_S: Final = 1.0
_PATIENCE_S: Final = 2.0
"""How long a stop waits for requests in flight."""
_TICK_S: Final = 0.1


async def stop_cleanly(parts: EnforcerParts) -> None:
    """Do what ``on_exit`` says."""
    on_exit = parts.settings.on_exit
    if on_exit != "keep" and parts.leads():
        clean_stop = _CleanStop(parts, f"on_exit: {on_exit}")
        if not (parts.observer.ready and parts.listener.caught_up):
            parts.say(
                f"on_exit: {on_exit}: skipped; the topics or the limits were not read before the "
                "stop, so no rate was written"
            )
        elif on_exit == "safe":
            await clean_stop.safe()
        else:
            await clean_stop.remove(_WITHIN_S)
    await parts.writer.idle(_PATIENCE_S)
    await parts.defaults.idle(_PATIENCE_S)


async def give_back(parts: EnforcerParts) -> GivenBack:
    """Give everything back to the cluster (``quotaplane enforce --remove``).

    Rates of topics and namespaces are removed, or are administrators' ones again, after the cluster
    has its publish quotas back.

    Raises:
        ClusterError: another enforcer leads, or the cluster can't be read; nothing was done.
        HistoryError: the record of administrators' rates can't be read; nothing was done.
    """
    async with taking_part(parts.election):
        await _read_placement(parts)
        await parts.begin_to_lead()
        if not parts.administrators.loaded:
            raise HistoryError(
                "--remove: the table administrator_rates can't be read; nothing was done"
            )
        parts.refresh(asyncio.get_running_loop().time())
        parts.administrators.leave_others()
        rates = len(KINDS) * len(parts.topic_rates.layout.topics)
        reads_s = 2.0 * rates / parts.settings.max_reads_per_s
        left = await _CleanStop(parts, "--remove").remove(_GIVEN_BACK_WITHIN_S + reads_s)
    writes = parts.writer.counts
    return GivenBack(
        *(writes["removed"], writes["given_back"], writes["failed"]),
        *(parts.defaults.written, parts.custodian.given_back, left),
    )


async def _read_placement(parts: EnforcerParts) -> None:
    """Read brokers and topics, and begin to lead.

    Raises:
        ClusterError: that is not possible within a minute.
    """
    loop, observer = asyncio.get_running_loop(), parts.observer
    until_s = loop.time() + _GIVEN_BACK_WITHIN_S
    while True:
        await observer.look_at_brokers()
        await observer.look_at_topics()
        if observer.placed and parts.leads():
            return
        if loop.time() > until_s:
            raise ClusterError(
                "--remove: another enforcer leads: stop it first; nothing was done"
                if observer.placed
                else "--remove: brokers or topics can't be read; nothing was done"
            )
        await asyncio.sleep(_AGAIN_S)


class _CleanStop:
    """Brings a cluster into a state; reports with the ``cause`` what was not done in time."""

    def __init__(self, parts: EnforcerParts, cause: str) -> None:
        self._parts, self._cause = parts, cause
        self._topic_rates, self._writer = parts.topic_rates, parts.writer
        self._defaults = parts.defaults

    async def safe(self) -> None:
        """Bring the safe limits into force.

        The defaults of namespaces follow the safe limits at any time.
        """
        settings = self._parts.division_settings._replace(significant_change=0.0)

        def moves_of(rates: Rates) -> Moves:
            now_s = asyncio.get_running_loop().time()
            readings = self._parts.readings(now_s, np.inf)._replace(rates=rates, job_gone=False)
            return planned(readings, settings)[1]

        await self._writer.idle(_PATIENCE_S)
        await self._write_all(moves_of, _WITHIN_S)

    async def remove(self, within_s: float) -> int:
        """Give all topics and namespaces back, after the cluster has its quotas back.

        See ``Custodian.give_all_back``. Returns how many rates and quotas of ours are left.
        """
        loop, administrators = asyncio.get_running_loop(), self._parts.administrators
        until_s = loop.time() + within_s
        await self._writer.idle(_PATIENCE_S)
        # The brokers' own calculator takes over before our rates go: no topic is unlimited between.
        groups, custodian = self._topic_rates.layout.groups, self._parts.custodian
        without_quota = await custodian.give_all_back(groups, _GIVE_BACK_WITHIN_S)
        if without_quota:
            self._parts.say(
                f"{self._cause}: the publish quotas of {first_few(sorted(without_quota))} could "
                "not be given back to the cluster: the rates of their topics stay"
            )
        # Namespaces before topics: a topic without a rate is held to its namespace's default.
        namespaces = await self._remove_defaults(without_quota, (until_s - loop.time()) / 2.0)
        rates = await self._write_all(
            lambda rates: removal(self._topic_rates.layout, rates, without_quota),
            until_s - loop.time(),
        )
        administrators.drop_given_back()
        await administrators.finish()
        return len(without_quota) + namespaces + rates

    async def _remove_defaults(self, stay: set[str], within_s: float) -> int:
        loop = asyncio.get_running_loop()
        self._defaults.hurry()
        until_s = loop.time() + within_s
        await self._defaults.idle(_PATIENCE_S)
        while True:
            remaining = self._defaults.begin_removal(self._topic_rates.layout, stay, loop.time())
            if not remaining or loop.time() > until_s:
                break
            await self._defaults.idle(max(until_s - loop.time(), 0.0))
            await asyncio.sleep(_TICK_S)
        if remaining:
            self._parts.say(
                f"{self._cause}: the rates of {remaining} namespaces were not removed in time"
            )
        return remaining

    async def _write_all(self, moves_of: Callable[[Rates], Moves], within_s: float) -> int:
        """Write, without a budget, until nothing is left or the time is over; what is left."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._until_written(moves_of), within_s)
        await self._writer.idle(_PATIENCE_S)
        remaining = self._remaining(moves_of)
        if remaining:
            self._parts.say(f"{self._cause}: {remaining} rates were not written in time")
        return remaining

    async def _until_written(self, moves_of: Callable[[Rates], Moves]) -> None:
        loop = asyncio.get_running_loop()
        self._writer.hurry()
        self._topic_rates.retry_now()
        while True:
            now_s = loop.time()
            self._parts.refresh(now_s)
            moves = moves_of(self._topic_rates.rates(now_s))
            if not len(moves.topic) and self._writer.at_rest and not self._remaining(moves_of):
                return
            self._writer.begin(moves, now_s)
            self._writer.read_unknown(moves)
            await asyncio.sleep(_TICK_S)

    def _remaining(self, moves_of: Callable[[Rates], Moves]) -> int:
        """How many rates are wrong or unknown, including those paused after a failure."""
        rates = self._topic_rates.rates(0.0)
        moves = moves_of(rates._replace(idle=np.ones_like(rates.idle)))
        open_rates = moves.unread.copy()
        open_rates[moves.topic, moves.kind] = True
        return int(open_rates.sum()) + len(self._topic_rates.to_remove)
