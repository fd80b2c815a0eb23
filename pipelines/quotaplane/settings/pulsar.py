"""Settings for a Pulsar cluster beyond its topics: resource groups, and topic rates."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quotaplane.settings.section import Section


class Cluster(Section):
    """Synchronisation with a Pulsar cluster's resource groups, by its REST API, while the job
    runs.
    """

    poll_interval_s: float = Field(default=2.0, gt=0)
    """Interval at which the cluster is polled for changes."""
    tenants: dict[str, str] = Field(default={})
    """Tenant: group. PIP-82 attaches groups to tenants, stock Pulsar only to namespaces: each
    namespace of the tenant, also a new one, is attached unless it has a group of its own."""


class Enforce(Section):
    """Settings of ``quotaplane enforce pulsar``, which enforces limits on stock brokers."""

    divide: Literal["max_min", "even", "by_rate"] = "max_min"
    """Rule by which a broker's limit is divided among its topics: fairly by demand, evenly, or in
    proportion to usage."""
    interval_s: float = Field(default=0.5, gt=0)
    """Interval at which limits are read and rates are divided again."""
    significant_change: float = Field(default=0.05, ge=0, lt=1)
    """A topic's rate is raised only by more than this part, because each write allows a burst. A
    smaller decrease waits until it would have saved as much as a burst."""
    max_writes_per_s: float = Field(default=100.0, gt=0)
    max_reads_per_s: float = Field(default=200.0, gt=0)
    concurrency: int = Field(default=16, ge=1, le=256)
    """Most requests at once."""
    on_exit: Literal["keep", "safe", "remove"] = "keep"
    """Action at a clean stop: keep the rates, set each broker's safe limit, or remove the rates and
    restore the groups' quotas in the cluster."""
    without_limits: Literal["safe", "give_back"] = "safe"
    """When the job is gone: after the leases, keep each broker's safe limit; or, after
    ``give_back_after_s`` as well, restore the groups' quotas in the cluster and remove the rates
    until there are limits again."""
    give_back_after_s: float | None = Field(default=900.0, ge=30)
    """Time without a leading enforcer after which the publish quotas that were taken over are given
    back to the cluster, so that the brokers' own calculator limits; with ``without_limits:
    give_back`` also the time without new limits. null: never."""
    take_over: bool = True
    """Set a group's publish quota in the cluster to unlimited once ours is in force. Otherwise the
    brokers' own calculator also throttles, and starves idle brokers."""
    report_topic: str | None = None
    """One of ``transport.report_topics``, to which the enforcer reports what each group uses on
    each broker, from the counters of topics. null: it reports nothing."""
    report_interval_s: float = Field(default=1.0, ge=0.5, le=10)
    """With ``report_topic``: interval at which brokers' counters are read and reported."""
    leader_topic: str = "enforcer-leader"
    """Pulsar topic by which one of several enforcers is elected; a short name is in the namespace
    of ``transport.limits_topic``. It is created if it does not exist."""
