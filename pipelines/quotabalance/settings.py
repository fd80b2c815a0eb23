"""Settings of the load balancer: the section ``balance``, and the metrics port of its job."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from quotaplane.errors import ConfigError
from quotaplane.settings import Settings, load_settings
from quotaplane.settings.section import NamedTopic, Section, TopicName
from quotaplane.settings.server import MetricsPorts, Port
from quotaplane.settings.signing import Signing
from quotaplane.settings.transports import DeltaTransport, KafkaTransport, PulsarTransport
from quotaplane.settings.usage_reports import Senders


class Collect(Section):
    """How ``quotaplane balance collect`` reads the brokers' load."""

    interval_s: float = Field(default=10.0, ge=1)
    """How often every broker is read; each read is published as its load report. Raise it
    for hundreds of brokers."""
    draining: tuple[str, ...] = ()
    """Brokers (host:port, as in Pulsar's list) to be taken out: their reports say so."""


class Execute(Section):
    """How ``quotaplane balance execute`` moves and splits bundles."""

    max_moves_at_once: int = Field(default=8, ge=1, le=256)
    """Most bundles on the move at once; it begins with one, and adapts to what is measured.
    Lower it if bookies are slow."""
    max_bytes_at_once_per_s: float = Field(default=200e6, gt=0)
    """Most traffic of the bundles on the move at once; one bundle always may. Lower it if
    clients notice moves."""
    unload_timeout_s: float = Field(default=60.0, gt=0)
    """Set it with Pulsar's own limit, ``namespaceBundleUnloadingTimeoutMs``."""
    max_plan_age_s: float = Field(default=1800.0, gt=0)
    """Older plans are refused. Raise it if approvals take longer."""


class Balance(Senders):
    """Topics and rounds of ``./spark-submit.sh balance``, and its strategy."""

    cluster: str = Field(default="default", min_length=1, max_length=200)
    """The cluster's name in the history. Set it if one history has several clusters."""
    loads_topic: TopicName = "load-reports"
    """Load reports, on the same transport as the usage reports. With Pulsar, a short name is a
    topic in the namespace of ``transport.limits_topic``."""
    plans_topic: TopicName = "balance-plans"
    mode: Literal["propose", "auto"] = "propose"
    """propose: an executor needs an approval of each plan; auto: it does not."""
    round_interval_s: float = Field(default=60.0, gt=0, le=86_400)
    """The time between decisions, and from the first report to the first decision. Raise it
    if brokers report less often."""
    gone_after_s: float = Field(default=3600.0, gt=0, le=604_800)
    """A broker whose numbers are older than this no longer counts, and is forgotten. It must be
    above the option ``stale_after_s``, with which a silent broker gets no bundles."""
    max_reports_per_trigger: int | None = Field(default=5000, ge=1)
    """Most reports in a micro-batch, with Kafka and Pulsar; null: no bound. Lower it
    if the job's memory is small."""
    max_bundles_per_report: int = Field(default=100_000, ge=1)
    """A report with more is not used. Raise it if a broker has more."""
    max_bundles: int = Field(default=2_000_000, ge=1)
    """Most bundles of all brokers; reports that exceed this are not used. Raise it for a larger
    cluster."""
    options: dict[str, Any] = Field(default={})
    """Options of the strategy (docs/balance-job.md); what is left out has its default."""
    policies: dict[str, Any] = Field(default={})
    """Isolation rules, anti-affinity groups, weights, drained brokers, excluded namespaces."""
    signing: Signing | None = None
    """With it the balance job signs its plans, and the executor refuses all others. null: plans are
    not signed, and everybody who may write to ``plans_topic`` makes them."""
    collect: Collect = Collect()
    execute: Execute = Execute()

    @field_validator("broker_from")
    @classmethod
    def _one_topic(cls, source: str) -> str:
        if source == "topic":
            raise ValueError("all load reports are in loads_topic: use key")
        return source

    @model_validator(mode="after")
    def _rounds_before_gone(self) -> Balance:
        if self.gone_after_s <= self.round_interval_s:
            raise ValueError("gone_after_s must be above round_interval_s")
        return self


class BalanceMetricsPorts(MetricsPorts):
    """The ports of all programs."""

    balance_port: Port | None = None
    """Port of the balance job."""


class BalanceSettings(Settings):
    """All settings of a file; quotaplane's own programs read it with this class, too."""

    balance: Balance = Balance()
    metrics: BalanceMetricsPorts = BalanceMetricsPorts()

    @property
    def named_topics(self) -> tuple[NamedTopic, ...]:
        """The balancer's topics after the others."""
        return (
            *super().named_topics,
            NamedTopic("balance.loads_topic", self.balance.loads_topic, kept_min=60),
            NamedTopic("balance.plans_topic", self.balance.plans_topic, stored=True, kept_min=60),
        )

    @property
    def senders(self) -> dict[str, Senders]:
        """The senders of load reports, too."""
        return super().senders | {"balance": self.balance}


def load_balance_settings(path: str | Path) -> BalanceSettings:
    """Read and check a settings file, as ``quotaplane.settings.load_settings``."""
    settings = load_settings(path)
    assert isinstance(settings, BalanceSettings)
    return settings


def pulsar_cluster(transport: DeltaTransport | KafkaTransport | PulsarTransport) -> PulsarTransport:
    """The cluster that is balanced.

    Raises:
        ConfigError: the settings don't say how to reach it.
    """
    if not isinstance(transport, PulsarTransport) or transport.admin_url is None:
        raise ConfigError(
            "balance collect and execute need transport.kind: pulsar and transport.admin_url"
        )
    return transport
