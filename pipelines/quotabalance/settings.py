"""Settings of the load balancer: the section ``balance``, and the metrics port of its job."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from quotabalance.planning.decisions import OURS, PULSARS
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
    """Interval at which every broker is read; each read is published as its load report. Raise it
    for hundreds of brokers."""
    draining: tuple[str, ...] = ()
    """Brokers (host:port, as in Pulsar's list) to be taken out: their reports say so. Set it, for
    collector and executor, before maintenance of a broker."""


class Execute(Section):
    """How ``quotaplane balance execute`` moves and splits bundles."""

    max_moves_at_once: int = Field(default=8, ge=1, le=256)
    """Most bundles on the move at once; it begins with one, and adapts to what is measured. Lower
    it if bookies are slow."""
    max_bytes_at_once_per_s: float = Field(default=200e6, gt=0)
    """Most traffic of the bundles on the move at once; one bundle always may. Lower it if clients
    notice moves."""
    unload_timeout_s: float = Field(default=60.0, gt=0)
    """Time that an unload or a split may take. Set it with Pulsar's own limit,
    ``namespaceBundleUnloadingTimeoutMs``."""
    max_plan_age_s: float = Field(default=1800.0, gt=0)
    """Older plans are refused. Raise it if approvals take longer."""


class Balance(Senders):
    """Topics and rounds of ``./spark-submit.sh balance``, and its strategy."""

    cluster: str = Field(default="default", min_length=1, max_length=200)
    """The cluster's name in the history. Set it if one history has several clusters."""
    loads_topic: TopicName = "load-reports"
    """Topic of load reports, on the same transport as usage reports; a short name is in the
    namespace of the limits topic. Set it for names of your own."""
    plans_topic: TopicName = "balance-plans"
    """Topic of plans for the executor, like ``loads_topic``. Set it for names of your own."""
    mode: Literal["propose", "auto"] = "propose"
    """``propose``: an executor needs an approval of each plan; ``auto``: it does not. Set ``auto``
    once you trust the plans."""
    round_interval_s: float = Field(default=60.0, gt=0, le=86_400)
    """Time between decisions, and from the first report to the first decision. Raise it if brokers
    report less often."""
    strategy: str = OURS
    """``quotaplane``, or a shedder of Pulsar's (``UniformLoadShedder``, ...), which decides as your
    brokers would. Begin with theirs, and set quotaplane after a what-if."""
    broker_conf: str | None = None
    """Your brokers' ``broker.conf``: settings of Pulsar's strategies, limits of bundles for all.
    null: Pulsar's defaults. Set it if you changed them."""
    options: dict[str, Any] = Field(default={})
    """Options of the strategy, by name (docs/explain/balance.md). Set them after a what-if; what is
    left out has its default."""
    policies: dict[str, Any] = Field(default={})
    """Isolation policies, anti-affinity groups, failure domains, weights, drained brokers, excluded
    namespaces. Set it if bundles may not be everywhere."""
    signing: Signing | None = None
    """Keys with which the job signs plans; the executor then refuses others. null: unsigned. Set it
    where others may write to ``plans_topic``."""
    collect: Collect = Collect()
    execute: Execute = Execute()

    @field_validator("strategy")
    @classmethod
    def _known_strategy(cls, name: str) -> str:
        if name != OURS and name not in PULSARS:
            raise ValueError(f"there is no such strategy; expected {OURS}, {', '.join(PULSARS)}")
        return name

    @field_validator("broker_from")
    @classmethod
    def _one_topic(cls, source: str) -> str:
        if source == "topic":
            raise ValueError("all load reports are in loads_topic: use key")
        return source


class BalanceMetricsPorts(MetricsPorts):
    """The ports of all programs."""

    balance_port: Port | None = None
    """Port of the balance job's metrics; null: none. Set it if Prometheus watches the job."""


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
