"""The enforcer of one Pulsar cluster: a program that turns brokers' limits into rates of topics.

It runs periodic parts: reading limits, quotas, brokers, topics and usage; and the division, which
writes the rates.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

import numpy as np

from quotaplane.agents.conditions import Say
from quotaplane.agents.known_conditions import (
    CROWDED_GROUPS,
    ENFORCER,
    MISSING_GROUPS,
    STUCK_GROUPS,
)
from quotaplane.agents.pace import Pace
from quotaplane.enforce.agent.administrator_rates import AdministratorRates
from quotaplane.enforce.agent.allowed_limits import AllowedLimits
from quotaplane.enforce.agent.clean_stop import PATIENCE_S, CleanStop, removal
from quotaplane.enforce.agent.custodian import Custodian
from quotaplane.enforce.agent.enforcer_readings import enforcer_readings
from quotaplane.enforce.agent.job_watch import JobWatch
from quotaplane.enforce.agent.leader_election import LeaderElection
from quotaplane.enforce.agent.limits_listener import LimitsListener
from quotaplane.enforce.agent.muted_connections import CHECKS_SHARE, MutedConnections, Probe
from quotaplane.enforce.agent.namespace_defaults import NamespaceDefaults, default_rates
from quotaplane.enforce.agent.observer import LIVE_EVERY_S, Observer
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.enforce.agent.rate_writer import RateWriter
from quotaplane.enforce.agent.usage_publisher import Outbox, UsagePublisher
from quotaplane.enforce.crowded_groups import CrowdedGroups
from quotaplane.enforce.groups_in_force import GroupsInForce
from quotaplane.enforce.least_bytes import MOST_RAISED, raised_limits
from quotaplane.enforce.quota_caps import TableQuotas
from quotaplane.enforce.rate_writes import Moves, Rates, plan
from quotaplane.enforce.rates_in_force import RatesInForce
from quotaplane.enforce.subdivide import Subdivision, subdivide
from quotaplane.errors import ClusterError, HistoryError
from quotaplane.metrics.readings import Readings
from quotaplane.model import FloatArray, Transition
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.pulsar_admin.topic_usage import Sample
from quotaplane.settings import Settings
from quotaplane.topics.topic_layout import KINDS, Layout
from quotaplane.transport.base import BrokerLink

_BROKERS_EVERY_S: Final = 1.0
_TOPICS_EVERY_S: Final = 2.0
_TAKE_OVER_EVERY_S: Final = 2.0
_QUOTAS_EVERY_S: Final = 2.0
_ADMINISTRATORS_EVERY_S: Final = 1.0
_DEFAULTS_EVERY_S: Final = 10.0
"""How often the defaults of namespaces are recomputed; at once where topics changed."""
_CHANGED_DEFAULTS_EVERY_S: Final = 1.0
"""How often they are recomputed while quotas or safe limits change."""
_TAKE_OVER_SHARE: Final = 0.25
"""The part of the read budget for checking which groups have a quota in the cluster."""
_SLOW_STATS_S: Final = 10.0
"""If brokers update their statistics less often than this, a warning is printed."""
_SHORTEST_PAUSE_S: Final = 0.02
_CANCEL_AGAIN_S: Final = 0.2
_GIVEN_BACK_WITHIN_S: Final = 60.0
"""How long ``Enforcer.give_back`` tries, beside the time that reading takes."""
_AGAIN_S: Final = 1.0
_DIVISION: Final = "division"
_QUIET_TICKS: Final = 3
"""A dry run ends after so many divisions in a row without anything to write."""


class _Defaults(NamedTuple):
    """Default rates of namespaces by group, and the inputs they were computed from."""

    layout: Layout
    safe_changes: int
    quotas: TableQuotas | None
    at_s: float
    rates: FloatArray
    """(g, 4) publish and dispatch, each in messages and bytes."""


class Enforcer:
    """One cluster's enforcer.

    Args:
        settings: the settings file.
        rest: client of the cluster's REST API.
        link: reads the limits topic.
        say: prints a line for the administrator.
        election: elects one of several enforcers; None: there is no other one.
        open_probe: makes a probe of producers' connections, see ``MutedConnections``.
        now_ms: the wall clock, for comparison with the job's.
        steady_ms: a clock that nobody sets, by which leases end; None: ``now_ms``.
        outbox: sends usage reports to ``enforce.report_topic``; None: there are none.
    """

    def __init__(
        self,
        settings: Settings,
        rest: Rest,
        link: BrokerLink,
        say: Say,
        election: LeaderElection | None = None,
        *,
        open_probe: Callable[[], Probe] | None = None,
        now_ms: Callable[[], float] = lambda: time.time() * 1000.0,
        steady_ms: Callable[[], float] | None = None,
        outbox: Outbox | None = None,
    ) -> None:
        enforce = settings.enforce
        self._enforce, self._say, self._now_ms, self._rest = enforce, say, now_ms, rest
        self._steady_ms = now_ms if steady_ms is None else steady_ms
        strict = settings.limits.transition is Transition.STRICT
        self._most_raised, self._patient = 0.0 if strict else MOST_RAISED, not strict
        self._conditions = rest.conditions
        self._election = election
        self._led = election is None
        reads = Pace(enforce.max_reads_per_s)
        self._quotas = QuotaTable(settings.history, self._conditions, take_over=enforce.take_over)
        self._listener = LimitsListener(
            *(link, self._quotas, settings, self._conditions, now_ms, self._steady_ms)
        )
        self._allowed = AllowedLimits(
            self._listener.received,
            self._quotas,
            self._conditions,
            only_recorded=enforce.take_over,
            over=settings.limits.over,
        )
        self._ledger = RatesInForce()
        most_groups = math.ceil(_TAKE_OVER_SHARE * enforce.max_reads_per_s * _TAKE_OVER_EVERY_S)
        self._custodian = Custodian(rest, self._quotas, reads, self._conditions, most_groups)
        self._administrators = AdministratorRates(
            settings.history, self._ledger, self._conditions, say, now_ms
        )
        self._writer = RateWriter(
            *(rest, self._ledger, self._administrators, reads, enforce, self._conditions),
            self._forget_topic,
        )
        self._defaults = NamespaceDefaults(rest, self._writer.budget, self._conditions)
        self._reports, every_s = None, LIVE_EVERY_S
        if enforce.report_topic is not None and outbox is not None:
            own_every_s = settings.reports.interval_s
            self._reports = UsagePublisher(
                enforce.report_topic, outbox, now_ms, own_every_s, self._conditions
            )
            every_s = enforce.report_interval_s
        self._observer = Observer(
            rest, reads, self._conditions, self._defaults.read, self._report, every_s
        )
        self._muted = MutedConnections(
            *(rest, self._observer, reads, self._writer.budget),
            *(Pace(CHECKS_SHARE * enforce.max_writes_per_s), self._conditions, say),
            *(self._leads, open_probe),
        )
        self._news = asyncio.Event()
        self._namespace_rates: _Defaults | None = None
        self._quiet_ticks = 0
        self._waiting = 0
        self._groups_in_force = GroupsInForce()
        self._crowded = CrowdedGroups()
        self._job = JobWatch(enforce, self._conditions)

    def _report(self, broker: str, sample: Sample) -> None:
        """Report a broker's usage to the quota job; only the leader does."""
        if self._reports is not None and self._observer.ready and self._leads():
            self._reports.note(self._observer.usage.layout, broker, sample)

    def _forget_topic(self, topic: str) -> None:
        self._observer.placement.forget_topic(topic)

    async def start(self) -> None:
        """Read how the cluster is set up.

        Raises:
            ClusterError: the cluster refuses the token, or can't be reached.
        """
        await self._observer.start()
        self._administrators.cluster = self._observer.cluster
        self._defaults.broker_rates = self._observer.broker_rates
        live, interval_s, _ = self._observer.exposure
        if not live and interval_s > _SLOW_STATS_S and self._enforce.divide != "even":
            self._say(
                f"cluster {self._observer.cluster}: brokers update the usage of topics only every "
                f"{interval_s:g} s, so a topic that becomes active waits that long for its share; "
                "set exposeTopicLevelMetricsInPrometheus=true or statsUpdateFrequencyInSecs=5 on "
                "the brokers"
            )

    async def run(self, stop: asyncio.Event) -> None:
        """Enforce until ``stop`` is set, then do what ``on_exit`` says."""
        over = asyncio.Event()
        election = None
        if self._election is not None:
            election = asyncio.create_task(self._election.run(over))
        await self._until(stop)
        await self._muted.stop()
        await self._stop_cleanly()
        over.set()
        if election is not None:
            await election

    async def _stop_cleanly(self) -> None:
        if self._enforce.on_exit != "keep" and self._leads():
            if self._observer.ready and self._listener.caught_up:
                await self._leave()
            else:
                self._say(
                    f"on_exit: {self._enforce.on_exit}: skipped; the topics or the limits were not "
                    "read before the stop, so no rate was written"
                )
        await self._writer.idle(PATIENCE_S)
        await self._defaults.idle(PATIENCE_S)

    async def _leave(self) -> None:
        """Do what ``on_exit`` says: ``safe`` or ``remove``."""
        clean_stop = self._clean_stop(f"on_exit: {self._enforce.on_exit}")
        if self._enforce.on_exit == "safe":
            await clean_stop.safe(lambda rates: self._planned(self._limits(np.inf), rates, 0.0)[0])
        else:
            await clean_stop.remove(self._custodian)

    def _clean_stop(self, cause: str) -> CleanStop:
        return CleanStop(
            *(self._ledger, self._writer, self._administrators, self._defaults),
            *(self._say, self._refresh, cause),
        )

    async def give_back(self) -> dict[str, Any]:
        """Give everything back to the cluster and end; the figures of ``quotaplane enforce``.

        Rates of topics and namespaces are removed, or are administrators' ones again, after the
        cluster has its publish quotas back.

        Raises:
            ClusterError: another enforcer leads, or the cluster can't be read; nothing was done.
            HistoryError: the record of administrators' rates can't be read; nothing was done.
        """
        over = asyncio.Event()
        election = asyncio.create_task(self._election.run(over)) if self._election else None
        try:
            await self._read_placement()
            await self._begin_to_lead()
            if not self._administrators.loaded:
                raise HistoryError(
                    "--remove: the table administrator_rates can't be read; nothing was done"
                )
            self._refresh(asyncio.get_running_loop().time())
            self._administrators.leave_others()
            left = await self._clean_stop("--remove").remove(
                self._custodian, _GIVEN_BACK_WITHIN_S + self._reads_s()
            )
        finally:
            over.set()
            if election is not None:
                await election
        counts = self._writer.counts()
        return {
            **{name: counts[name] for name in ("removed", "given_back", "failed")},
            "namespaces": self._defaults.written,
            "quotas_given_back": self._custodian.given_back,
            "left": left,
        }

    async def _read_placement(self) -> None:
        """Read brokers and topics, and begin to lead.

        Raises:
            ClusterError: that is not possible within a minute.
        """
        loop = asyncio.get_running_loop()
        until_s = loop.time() + _GIVEN_BACK_WITHIN_S
        while True:
            await self._observer.look_at_brokers()
            await self._observer.look_at_topics()
            if self._observer.placed and self._leads():
                return
            if loop.time() > until_s:
                raise ClusterError(
                    "--remove: another enforcer leads: stop it first; nothing was done"
                    if self._observer.placed
                    else "--remove: brokers or topics can't be read; nothing was done"
                )
            await asyncio.sleep(_AGAIN_S)

    def _reads_s(self) -> float:
        """How long reading all rates takes."""
        return 2.0 * len(KINDS) * len(self._ledger.layout.topics) / self._enforce.max_reads_per_s

    async def run_dry(self, stop: asyncio.Event) -> None:
        """Run until there is nothing left to write; ``on_exit`` is ignored."""
        self._patient = False
        self._writer.hurry()
        self._defaults.hurry()
        self._administrators.only_in_memory()
        running = asyncio.create_task(self._until(stop))
        while not (stop.is_set() or self._quiet_ticks >= _QUIET_TICKS):
            await _within(self._enforce.interval_s, stop.wait())
        stop.set()
        await running

    async def _until(self, stop: asyncio.Event) -> None:
        """Run all periodic parts until ``stop`` is set."""
        observer, interval_s = self._observer, self._enforce.interval_s
        parts: list[tuple[str, float, Callable[[], Awaitable[object]]]] = [
            ("limits", interval_s, self._listen),
            ("quotas", _QUOTAS_EVERY_S, self._quotas.look),
            ("brokers", _BROKERS_EVERY_S, observer.look_at_brokers),
            ("topics", _TOPICS_EVERY_S, observer.look_at_topics),
            ("use of topics", observer.look_every_s, self._look_at_usage),
            ("administrators' rates", _ADMINISTRATORS_EVERY_S, self._look_at_administrators),
            (_DIVISION, interval_s, self._tick),
        ]
        if self._reports is not None:
            parts.append(("usage reports", 0.0, self._reports.publish))
        if self._enforce.take_over or self._enforce.without_limits == "give_back":
            parts.append(("take over", _TAKE_OVER_EVERY_S, self._look_after_quotas))
        tasks = {asyncio.create_task(self._repeat(*part, stop)) for part in parts}
        await stop.wait()
        while tasks:
            # Repeated: Python before 3.12 may lose a cancellation that coincides with a result.
            for task in tasks:
                task.cancel()
            _, tasks = await asyncio.wait(tasks, timeout=_CANCEL_AGAIN_S)
        await observer.stop()

    async def _repeat(
        self, part: str, every_s: float, work: Callable[[], Awaitable[object]], stop: asyncio.Event
    ) -> None:
        """Run a part periodically until ``stop`` is set; failures are logged and retried."""
        loop = asyncio.get_running_loop()
        while not stop.is_set():
            begun_s = loop.time()
            failed: Exception | None = None
            try:
                await work()
            except Exception as error:
                # Any exception: a bug in one part must not end the enforcement.
                failed = error
            self._conditions.note(ENFORCER, part, failed)
            wait_s = max(begun_s + every_s - loop.time(), _SHORTEST_PAUSE_S)
            if part == _DIVISION:
                await _within(wait_s, self._news_or(stop))
            else:
                await _within(wait_s, stop.wait())

    async def _news_or(self, stop: asyncio.Event) -> None:
        """Wait for new limits or usage, or for ``stop``."""
        waiting = {asyncio.ensure_future(event.wait()) for event in (self._news, stop)}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for one in waiting:
                one.cancel()

    async def _listen(self) -> None:
        """Read new limits messages."""
        # Few limits of unlisted brokers and groups are kept, so the cluster's must be known first.
        if self._observer.listed:
            self._refresh(asyncio.get_running_loop().time())
            newest_ms = self._listener.arrived_ms
            await self._listener.listen()
            if self._listener.arrived_ms != newest_ms:
                self._news.set()

    async def _look_at_usage(self) -> None:
        """Read the usage of topics, and divide again at once."""
        await self._observer.look_at_usage()
        self._news.set()

    async def _tick(self) -> None:
        """Divide the limits over topics, and begin the writes that are needed."""
        self._news.clear()
        if self._not_yet_read() is not None:
            return
        now_s = asyncio.get_running_loop().time()
        self._refresh(now_s)
        if not self._leads():
            self._waiting, self._led = 0, False
            return
        if not self._led:
            await self._begin_to_lead()
        if not self._administrators.looked:
            return
        if self._job.gone:
            self._remove_rates(now_s)
            return
        layout = self._ledger.layout
        self._defaults.begin(layout, self._default_rates(layout, now_s), now_s)
        limits = self._limits(self._steady_ms())
        self._crowded.note(layout, limits, now_s)
        moves, division = self._planned(limits, self._ledger.rates(now_s))
        self._ledger.note_wanted(division.rates, now_s)
        writes = moves.without_removals(self._defaults.has_default(layout))
        self._waiting = self._writer.begin(writes, now_s)
        implausible = self._observer.usage.take_implausible()
        self._writer.read_unknown(moves, implausible, division.limited)
        self._writer.check(now_s)
        at_rest = self._writer.at_rest and self._defaults.at_rest
        quiet = at_rest and not (len(moves.topic) or moves.unread.any())
        self._quiet_ticks = self._quiet_ticks + 1 if quiet else 0
        if self._enforce.take_over:
            decided_ms = self._listener.received.decided_ms(layout.groups)
            rates = self._ledger.rates(now_s)
            limited = np.where(division.unlimited, np.inf, division.rates)
            self._groups_in_force.note(layout, limited, rates, moves, decided_ms)

    def _not_yet_read(self) -> str | None:
        """The first input that was not read since the start; None: all were."""
        missing = {
            "cluster": not self._observer.ready,
            "limits_topic": not self._listener.caught_up,
            "history": not self._quotas.looked,
        }
        return next((name for name, misses in missing.items() if misses), None)

    def _waits_for(self) -> str | None:
        """The first thing that is missing before rates can be written; None: nothing is."""
        unread = self._not_yet_read()
        if unread is not None:
            return unread
        if not self._leads():
            return "leadership"
        if not self._administrators.looked:
            return "history"
        return None if self._listener.received.issued_at_ms else "limits"

    def _leads(self) -> bool:
        return self._election is None or self._election.leads()

    async def _begin_to_lead(self) -> None:
        """Forget rates and what was given back: another enforcer may have changed that."""
        self._led = True
        self._ledger.forget()
        self._administrators.forget()
        self._custodian.forget()
        self._job = JobWatch(self._enforce, self._conditions)
        self._groups_in_force = GroupsInForce()
        self._muted.forget()
        await self._administrators.look()

    def _default_rates(self, layout: Layout, now_s: float) -> FloatArray:
        """Default rates of namespaces (g, 4), recomputed when due."""
        changes, quotas = self._listener.received.safe_changes, self._quotas.quotas
        last = self._namespace_rates
        if last is not None and last.layout is layout:
            same = last.safe_changes == changes and last.quotas is quotas
            wait_s = _DEFAULTS_EVERY_S if same else _CHANGED_DEFAULTS_EVERY_S
            if now_s < last.at_s + wait_s:
                return last.rates
        safe_limits = self._allowed.safe_limits(layout, self._steady_ms())
        rates = default_rates(layout, safe_limits, self._most_raised)
        self._namespace_rates = _Defaults(layout, changes, quotas, now_s, rates)
        return rates

    def _refresh(self, now_s: float) -> None:
        """Apply a changed layout of topics; record the rates in force, for judging usage."""
        layout = self._observer.changed()
        if layout is not None:
            self._ledger.carry(layout)
            self._writer.forget_deleted()
            self._listener.received.expect(layout.brokers, layout.groups)
        layout = self._ledger.layout
        effective = self._defaults.effective_rates(layout, self._ledger.in_force)
        self._observer.usage.note_rates(effective, now_s)

    def _remove_rates(self, now_s: float) -> None:
        """Remove the rates of the groups that the cluster's own calculator limits."""
        layout = self._ledger.layout
        stay = set(layout.groups) - self._custodian.limited
        moves = removal(layout, self._ledger.rates(now_s), stay)
        self._defaults.begin_removal(layout, stay, now_s)
        self._waiting = self._writer.begin(moves, now_s)
        self._writer.read_unknown(moves)

    def _limits(self, now_ms: float) -> FloatArray:
        """The limits (k, 4) of the layout's pairs at ``now_ms`` of the steady clock."""
        now_s = asyncio.get_running_loop().time()
        return self._allowed.limits(self._ledger.layout, now_ms, now_s)

    def _planned(
        self, limits: FloatArray, rates: Rates, significant_change: float | None = None
    ) -> tuple[Moves, Subdivision]:
        """Divide the limits (k, 4); returns the writes that are needed, and the division.

        ``rates``: the current ones. ``significant_change``: None = as in the settings.
        """
        layout, usage = self._ledger.layout, self._observer.usage
        pairs = layout.pairs
        topics = np.diff(pairs.starts)
        limits = raised_limits(limits, pairs.group, topics, self._most_raised)
        division = subdivide(
            layout,
            limits,
            usage.usage,
            usage.saturated,
            ceilings=self._ceilings(layout),
            law=self._enforce.divide,
        )
        if significant_change is None:
            significant_change = self._enforce.significant_change
        moves = plan(
            layout,
            limits,
            division,
            rates,
            significant_change=significant_change,
            patient=self._patient,
        )
        return moves, division

    def _ceilings(self, layout: Layout) -> FloatArray:
        """Administrators' rates (u, 4): a topic's own, else its namespace's, else the brokers'."""
        own = np.repeat(self._ledger.administrators | self._ledger.recorded, 2, axis=1)
        return np.where(own, self._ledger.ceiling, self._defaults.ceilings(layout))

    async def _look_at_administrators(self) -> None:
        """Record administrators' rates; give those back whose topics belong to no group now."""
        if not self._led:
            return
        if self._administrators.loaded:
            self._administrators.namespaces_have(
                self._defaults.administrators(), self._defaults.changes
            )
        await self._administrators.look()
        if self._observer.placed:
            self._administrators.leave_others()

    async def _look_after_quotas(self) -> None:
        """Hide quotas in the cluster, or give them back; report groups that the table lost.

        Groups that rates can't limit keep their quota in the cluster; so do all while the job is
        gone, if the settings want that.
        """
        if not self._led:
            return
        layout = self._ledger.layout
        self._job.look(self._listener.arrived_ms / 1000.0, self._steady_ms() / 1000.0)
        if self._job.gone:
            await self._custodian.tend(layout.groups, layout.groups, {})
        elif self._enforce.take_over:
            self._conditions.set(MISSING_GROUPS, self._allowed.lost(layout))
            self._conditions.set(CROWDED_GROUPS, self._crowded.groups)
            in_force = self._groups_in_force.groups()
            await self._custodian.tend(layout.groups, self._crowded.groups, in_force)
            self._muted.begin(self._custodian.hidden, layout)
        self._conditions.set(STUCK_GROUPS, self._custodian.stuck)

    def status(self) -> dict[str, Any]:
        """Counts since the start and the current state, as the status line prints them."""
        layout = self._ledger.layout
        age_s = round(self._listener.age_ms() / 1000.0, 1)
        return {
            "leads": self._leads(),
            "waits_for": self._waits_for(),
            "brokers": len(layout.brokers),
            "groups": len(layout.groups),
            "topics": len(layout.topics),
            "administrators_rates": len(self._administrators),
            "limited": int(np.isfinite(self._ledger.in_force).any(axis=1).sum()),
            "waiting": self._waiting,
            **self._writer.counts(),
            "taken_over": self._custodian.taken,
            "quotas_given_back": self._custodian.given_back,
            "closed_connections": self._muted.closed,
            "namespaces": self._defaults.written,
            "refused_messages": self._listener.refused + self._listener.received.ignored,
            "cut_groups": self._allowed.cut,
            "crowded_groups": len(self._crowded.groups),
            "usage_reports": 0 if self._reports is None else self._reports.sent,
            "observed_every_s": None if self._reports is None else self._reports.longest_window_s,
            "errors": self._conditions.failures.total(),
            "conditions": self._conditions.active(),
            "clock_steps": self._listener.clock.steps,
            "limits_on_arrival_s": self._listener.clock.age_s,
            "newest_limits_s": age_s if self._listener.received.issued_at_ms else None,
        }

    def readings(self) -> Readings:
        """The numbers of the metrics."""
        return enforcer_readings(
            self.status(),
            self._listener.received,
            self._conditions.failures,
            now_ms=self._steady_ms(),
            wall_ms=self._now_ms(),
            takes_over=self._enforce.take_over,
        )


async def _within(seconds: float, work: Awaitable[Any]) -> None:
    """Wait for ``work``, but not longer than ``seconds``."""
    try:
        await asyncio.wait_for(work, seconds)
    except asyncio.TimeoutError:
        return
