"""The enforcer of one Pulsar cluster: a program that turns brokers' limits into rates of topics.

It runs periodic parts: reading limits, quotas, brokers, topics and usage; and the division, which
writes the rates.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

import numpy as np

from quotaplane.agents.known_conditions import (
    CROWDED_GROUPS,
    CUT_GROUPS,
    ENFORCER,
    JOB_GONE,
    MISSING_GROUPS,
    STUCK_GROUPS,
)
from quotaplane.agents.periodic import Periodic, run_parts, waited
from quotaplane.enforce.agent.clean_stop import stop_cleanly
from quotaplane.enforce.agent.enforcer_parts import EnforcerParts
from quotaplane.enforce.agent.enforcer_status import EnforcerStatus, enforcer_readings
from quotaplane.enforce.agent.leader_election import taking_part
from quotaplane.enforce.groups_in_force import GroupsInForce
from quotaplane.enforce.topic_division import DivisionMemory, TopicDivision, divide
from quotaplane.metrics.readings import Readings

_BROKERS_EVERY_S: Final = 1.0
_TOPICS_EVERY_S: Final = 2.0
_TAKE_OVER_EVERY_S: Final = 2.0
_QUOTAS_EVERY_S: Final = 2.0
_ADMINISTRATORS_EVERY_S: Final = 1.0
_QUIET_TICKS: Final = 3
"""A dry run ends after this many divisions in a row without anything to write."""

_OF_THE_LEADER: Final = (MISSING_GROUPS, CROWDED_GROUPS, STUCK_GROUPS, CUT_GROUPS, JOB_GONE)
"""Conditions that only the leader looks for."""


class Enforcer:
    """One cluster's enforcer: the loop around ``divide``."""

    def __init__(self, parts: EnforcerParts) -> None:
        self.parts = parts
        self._enforce, self._conditions = parts.settings, parts.conditions
        self._led = parts.election is None
        self._memory, self._how = DivisionMemory(), parts.division_settings
        self._news = asyncio.Event()
        self._quiet_ticks = self._waiting = 0

    async def run(self, stop: asyncio.Event) -> None:
        """Enforce until ``stop`` is set, then do what ``on_exit`` says."""
        parts = self.parts
        async with taking_part(parts.election):
            await self._until(stop)
            await parts.muted.stop()
            await stop_cleanly(parts)

    async def run_dry(self, stop: asyncio.Event) -> None:
        """Run until there is nothing left to write; ``on_exit`` is ignored."""
        parts = self.parts
        self._how = self._how._replace(patient=False)
        parts.writer.hurry()
        parts.defaults.hurry()
        parts.administrators.only_in_memory()
        running = asyncio.create_task(self._until(stop))
        while not (stop.is_set() or self._quiet_ticks >= _QUIET_TICKS):
            await waited(stop, self._enforce.interval_s)
        stop.set()
        await running

    async def _until(self, stop: asyncio.Event) -> None:
        """Run all periodic parts until ``stop`` is set."""
        parts, interval_s = self.parts, self._enforce.interval_s
        observer = parts.observer
        periodic = [
            Periodic("limits", interval_s, self._listen),
            Periodic("quotas", _QUOTAS_EVERY_S, parts.quotas.look),
            Periodic("brokers", _BROKERS_EVERY_S, observer.look_at_brokers),
            Periodic("topics", _TOPICS_EVERY_S, observer.look_at_topics),
            Periodic("use of topics", observer.look_every_s, self._look_at_usage),
            Periodic("administrators' rates", _ADMINISTRATORS_EVERY_S, self._keep_record),
            Periodic("division", interval_s, self._tick, self._news),
        ]
        if parts.reports is not None:
            periodic.append(Periodic("usage reports", 0.0, parts.reports.publish))
        if self._enforce.take_over or self._enforce.without_limits == "give_back":
            periodic.append(Periodic("take over", _TAKE_OVER_EVERY_S, self._look_after_quotas))
        await run_parts(periodic, stop, partial(self._conditions.note, ENFORCER))
        await observer.stop()

    async def _listen(self) -> None:
        """Read new limits messages."""
        parts = self.parts
        # Few limits of unlisted brokers and groups are kept, so the cluster's must be known first.
        if parts.observer.listed:
            parts.refresh(asyncio.get_running_loop().time())
            newest_ms = parts.listener.arrived_ms
            await parts.listener.listen()
            if parts.listener.arrived_ms != newest_ms:
                self._news.set()

    async def _look_at_usage(self) -> None:
        """Read the usage of topics, and divide again at once."""
        await self.parts.observer.look_at_usage()
        self._news.set()

    async def _tick(self) -> None:
        """Divide the limits over topics, and begin the writes that are needed."""
        parts = self.parts
        self._news.clear()
        if self._not_yet_read() is not None:
            return
        now_s = asyncio.get_running_loop().time()
        parts.refresh(now_s)
        if not parts.leads():
            if self._led:
                for what in _OF_THE_LEADER:
                    self._conditions.set(what, [])
            self._waiting, self._led = 0, False
            return
        if not self._led:
            await self._begin_to_lead()
        if parts.administrators.looked:
            readings = parts.readings(now_s, parts.steady_ms())
            self._do(divide(readings, self._memory, self._how), now_s)

    def _do(self, division: TopicDivision, now_s: float) -> None:
        """Begin what a division wants."""
        parts = self.parts
        layout, moves, self._memory = parts.topic_rates.layout, division.moves, division.memory
        if division.keep_defaults is None:
            parts.defaults.begin(layout, division.memory.default_rates, now_s)
        else:
            parts.defaults.begin_removal(layout, division.keep_defaults, now_s)
        self._conditions.set(CROWDED_GROUPS, division.memory.crowded.groups)
        parts.topic_rates.note_wanted(division.wanted.rates, now_s)
        self._waiting = parts.writer.begin(division.writes, now_s)
        implausible = parts.observer.usage.take_implausible()
        parts.writer.read_unknown(moves, implausible, division.wanted.limited)
        parts.writer.check(now_s)
        at_rest = parts.writer.at_rest and parts.defaults.at_rest
        quiet = at_rest and not (len(moves.topic) or moves.unread.any())
        self._quiet_ticks = self._quiet_ticks + 1 if quiet else 0

    def _not_yet_read(self) -> str | None:
        """The first input that was not read since the start; None: all were."""
        parts = self.parts
        missing = {
            "cluster": not parts.observer.ready,
            "limits_topic": not parts.listener.caught_up,
            "history": not parts.quotas.looked,
        }
        return next((name for name, misses in missing.items() if misses), None)

    def _waits_for(self) -> str | None:
        """The first thing that is missing before rates can be written; None: nothing is."""
        parts = self.parts
        unread = self._not_yet_read()
        if unread is not None:
            return unread
        if not parts.leads():
            return "leadership"
        if not parts.administrators.looked:
            return "history"
        return None if parts.listener.received.issued_at_ms else "limits"

    async def _begin_to_lead(self) -> None:
        """Forget rates and what was given back: another enforcer may have changed that."""
        self._led = True
        self._memory = self._memory._replace(in_force=GroupsInForce())
        await self.parts.begin_to_lead()

    async def _keep_record(self) -> None:
        """Record administrators' rates; give those back whose topics belong to no group now."""
        parts = self.parts
        if not self._led:
            return
        if parts.administrators.loaded:
            parts.administrators.namespaces_have(
                parts.defaults.administrators(), parts.defaults.changes
            )
        await parts.administrators.look()
        if parts.observer.placed:
            parts.administrators.leave_others()

    async def _look_after_quotas(self) -> None:
        """Hide quotas in the cluster, or give them back; report groups that the table lost.

        Groups that rates can't limit keep their quota in the cluster; so do all while the job is
        gone, if the settings want that.
        """
        parts = self.parts
        if not self._led:
            return
        layout = parts.topic_rates.layout
        parts.job.look(parts.listener.arrived_ms / 1000.0, parts.steady_ms() / 1000.0)
        if parts.job.gone:
            await parts.custodian.tend(layout.groups, layout.groups, {})
        elif self._enforce.take_over:
            self._conditions.set(MISSING_GROUPS, parts.allowed.lost(layout))
            in_force = self._memory.in_force.since_ms
            await parts.custodian.tend(layout.groups, self._memory.crowded.groups, in_force)
            parts.muted.begin(parts.custodian.hidden, layout)
        self._conditions.set(STUCK_GROUPS, parts.custodian.stuck)

    def status(self) -> EnforcerStatus:
        """Counts since the start and the current state."""
        parts = self.parts
        layout, writes, reports = parts.topic_rates.layout, parts.writer.counts, parts.reports
        age_s = round(parts.listener.age_ms() / 1000.0, 1)
        return EnforcerStatus(
            leads=parts.leads(),
            waits_for=self._waits_for(),
            brokers=len(layout.brokers),
            groups=len(layout.groups),
            topics=len(layout.topics),
            administrators_rates=len(parts.administrators),
            limited=int(np.isfinite(parts.topic_rates.in_force).any(axis=1).sum()),
            waiting=self._waiting,
            written=writes["written"],
            removed=writes["removed"],
            given_back=writes["given_back"],
            read=writes["read"],
            vanished=writes["vanished"],
            failed=writes["failed"],
            taken_over=parts.custodian.taken,
            quotas_given_back=parts.custodian.given_back,
            closed_connections=parts.muted.closed,
            namespaces=parts.defaults.written,
            refused_messages=parts.listener.refused + parts.listener.received.ignored,
            cut_groups=parts.allowed.cut,
            crowded_groups=len(self._memory.crowded.groups),
            usage_reports=0 if reports is None else reports.sent,
            observed_every_s=None if reports is None else reports.longest_window_s,
            errors=self._conditions.failures.total(),
            conditions=self._conditions.active(),
            clock_steps=parts.listener.clock.steps,
            limits_on_arrival_s=parts.listener.clock.age_s,
            newest_limits_s=age_s if parts.listener.received.issued_at_ms else None,
        )

    def readings(self) -> Readings:
        """The numbers of the metrics."""
        return enforcer_readings(self.status(), self.parts)
