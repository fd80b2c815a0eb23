"""The parts of one cluster's enforcer, and how they are connected."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from quotaplane.agents.conditions import Say
from quotaplane.agents.pace import Pace
from quotaplane.enforce.agent.administrator_rates import AdministratorRates
from quotaplane.enforce.agent.allowed_limits import AllowedLimits
from quotaplane.enforce.agent.custodian import Custodian
from quotaplane.enforce.agent.job_watch import JobWatch
from quotaplane.enforce.agent.leader_election import LeaderElection
from quotaplane.enforce.agent.limits_listener import LimitsListener
from quotaplane.enforce.agent.muted_connections import CHECKS_SHARE, MutedConnections, Probe
from quotaplane.enforce.agent.namespace_defaults import NamespaceDefaults
from quotaplane.enforce.agent.observer import LIVE_EVERY_S, Observer
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.enforce.agent.rate_writer import RateWriter
from quotaplane.enforce.agent.usage_publisher import Outbox, UsagePublisher
from quotaplane.enforce.least_bytes import MOST_RAISED
from quotaplane.enforce.rates_in_force import RatesInForce
from quotaplane.enforce.topic_division import DivisionReadings, DivisionSettings
from quotaplane.model import Transition
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.pulsar_admin.topic_usage import Sample
from quotaplane.settings import Settings
from quotaplane.transport.base import BrokerLink

_TAKE_OVER_READS_S: Final = 0.5
"""One look at groups' quotas takes as many reads as the budget has in so long."""
_SLOW_STATS_S: Final = 10.0
"""If brokers update their statistics less often than this, a warning is printed."""


class EnforcerParts:
    """All that reads a cluster and writes to it, with what a division reads of that.

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
        self.settings, self.say, self.now_ms = enforce, say, now_ms
        self.steady_ms = now_ms if steady_ms is None else steady_ms
        strict = settings.limits.transition is Transition.STRICT
        self.division_settings = DivisionSettings(
            *(enforce.divide, enforce.significant_change),
            most_raised=0.0 if strict else MOST_RAISED,
            patient=not strict,
        )
        self.conditions = rest.conditions
        self.election = election
        reads = Pace(enforce.max_reads_per_s)
        self.quotas = QuotaTable(settings.history, self.conditions, take_over=enforce.take_over)
        self.listener = LimitsListener(
            *(link, self.quotas, settings, self.conditions, now_ms, self.steady_ms)
        )
        self.allowed = AllowedLimits(
            *(self.listener.received, self.quotas, self.conditions),
            only_recorded=enforce.take_over,
            over=settings.limits.over,
        )
        self.topic_rates = RatesInForce()
        self.job = JobWatch(enforce, self.conditions)
        most_groups = math.ceil(_TAKE_OVER_READS_S * enforce.max_reads_per_s)
        self.custodian = Custodian(rest, self.quotas, reads, self.conditions, most_groups)
        self.administrators = AdministratorRates(
            settings.history, self.topic_rates, self.conditions, say, now_ms
        )
        self.writer = RateWriter(
            *(rest, self.topic_rates, self.administrators, reads, enforce, self.conditions),
            self._forget_topic,
        )
        self.defaults = NamespaceDefaults(rest, self.writer.budget, self.conditions)
        self.reports, every_s = None, LIVE_EVERY_S
        if enforce.report_topic is not None and outbox is not None:
            own_every_s = settings.reports.interval_s
            self.reports = UsagePublisher(
                enforce.report_topic, outbox, now_ms, own_every_s, self.conditions
            )
            every_s = enforce.report_interval_s
        self.observer = Observer(
            rest, reads, self.conditions, self.defaults.read, self._report, every_s
        )
        self.muted = MutedConnections(
            *(rest, self.observer, reads, self.writer.budget),
            *(Pace(CHECKS_SHARE * enforce.max_writes_per_s), self.conditions, say),
            *(self.leads, open_probe),
        )

    def _report(self, broker: str, sample: Sample) -> None:
        """Report a broker's usage to the quota job; only the leader does."""
        if self.reports is not None and self.observer.ready and self.leads():
            self.reports.note(self.observer.usage.layout, broker, sample)

    def _forget_topic(self, topic: str) -> None:
        self.observer.placement.forget_topic(topic)

    async def start(self) -> None:
        """Read how the cluster is set up.

        Raises:
            ClusterError: the cluster refuses the token, or can't be reached.
        """
        await self.observer.start()
        self.administrators.cluster = self.observer.cluster
        self.defaults.broker_rates = self.observer.broker_rates
        live, interval_s, _ = self.observer.exposure
        if not live and interval_s > _SLOW_STATS_S and self.settings.divide != "even":
            self.say(
                f"cluster {self.observer.cluster}: brokers update the usage of topics only every "
                f"{interval_s:g} s, so a topic that becomes active waits that long for its share; "
                "set exposeTopicLevelMetricsInPrometheus=true or statsUpdateFrequencyInSecs=5 on "
                "the brokers"
            )

    def leads(self) -> bool:
        """Whether this enforcer may write now."""
        return self.election is None or self.election.leads()

    async def begin_to_lead(self) -> None:
        """Forget rates and what was given back: another enforcer may have changed that."""
        self.topic_rates.forget()
        self.administrators.forget()
        self.custodian.forget()
        self.job = JobWatch(self.settings, self.conditions)
        self.muted.forget()
        await self.administrators.look()

    def refresh(self, now_s: float) -> None:
        """Apply a changed layout of topics; record the rates in force, for judging usage."""
        layout = self.observer.changed()
        if layout is not None:
            self.topic_rates.carry(layout)
            self.writer.forget_deleted()
            self.listener.received.expect(layout.brokers, layout.groups)
        layout = self.topic_rates.layout
        effective = self.defaults.effective_rates(layout, self.topic_rates.in_force)
        self.observer.usage.note_rates(effective, now_s)

    def readings(self, now_s: float, now_ms: float) -> DivisionReadings:
        """All that a division reads; ``now_ms``: for leases, inf = safe limits."""
        layout, usage = self.topic_rates.layout, self.observer.usage
        return DivisionReadings(
            layout=layout,
            limits=self.allowed.limits(layout, now_ms, now_s),
            safe_limits=self.allowed.due_safe_limits(layout, now_ms, now_s),
            decided_ms=self.listener.received.decided_ms(layout.groups),
            usage=usage.usage,
            saturated=usage.saturated,
            rates=self.topic_rates.rates(now_s),
            own_rates=self.topic_rates.ceiling,
            other_rates=self.defaults.ceilings(layout),
            has_default=self.defaults.has_default(layout),
            limited_by_cluster=self.custodian.limited,
            job_gone=self.job.gone,
            now_s=now_s,
        )
