"""Settings of the load balancer."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from quotaplane.settings.balance_agents import Collect, Execute
from quotaplane.settings.senders import Senders
from quotaplane.settings.signing import Signing

_TOPIC: Final = r"^((non-)?persistent://[^/\s]+/[^/\s]+/)?[A-Za-z0-9._-]+$"


class Balance(Senders):
    """Topics and rounds of ``./spark-submit.sh balance``, and its strategy."""

    cluster: str = Field(default="default", min_length=1, max_length=200)
    """What the history calls the cluster whose load reports are in ``loads_topic``."""
    loads_topic: str = Field(default="load-reports", pattern=_TOPIC)
    """Load reports, on the same transport as the usage reports. With Pulsar, a short name is a
    topic in the namespace of ``transport.limits_topic``."""
    plans_topic: str = Field(default="balance-plans", pattern=_TOPIC)
    mode: Literal["propose", "auto"] = "propose"
    """propose: an executor needs an approval of each plan; auto: it does not."""
    round_interval_s: float = Field(default=60.0, gt=0, le=86_400)
    """The balancer decides so often; for the first time so long after the first report."""
    gone_after_s: float = Field(default=3600.0, gt=0, le=604_800)
    """A broker whose numbers are older than this no longer counts, and is forgotten. It must be
    above the option ``stale_after_s``, with which a silent broker gets no bundles."""
    max_reports_per_trigger: int | None = Field(default=5000, ge=1)
    """Most reports in a micro-batch, with Kafka and Pulsar; null: no bound."""
    max_bundles_per_report: int = Field(default=100_000, ge=1)
    max_new_brokers_per_round: int | None = Field(default=None, ge=1)
    """See ``reports``. No bound by default: the first round should know the whole cluster."""
    max_bundles: int = Field(default=2_000_000, ge=1)
    """Of all brokers; reports that exceed this are not used."""
    options: dict[str, Any] = Field(default={})
    """Options of the strategy (docs/balance-job.md); what is left out has its default."""
    policies: dict[str, Any] = Field(default={})
    """Isolation rules, anti-affinity groups, weights, drained brokers, excluded namespaces."""
    signing: Signing | None = None
    """With it the balance job signs its plans, and the executor refuses all others. null: plans are
    not signed, and everybody who may write to ``plans_topic`` makes them."""
    collect: Collect = Collect()
    execute: Execute = Execute()

    @field_validator("loads_topic", "plans_topic")
    @classmethod
    def _no_folder(cls, name: str) -> str:
        if name in (".", ".."):
            raise ValueError(f"{name!r} can't be the name of a topic")
        return name

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
