"""Settings for a Pulsar cluster beyond its topics: resource groups, and topic rates."""

from __future__ import annotations

import math
from typing import Literal

from pydantic import Field

from quotaplane.settings.section import Section


class Cluster(Section):
    """Synchronisation with a Pulsar cluster's resource groups, by its REST API, while the job
    runs.
    """

    poll_interval_s: float = Field(default=2.0, gt=0)
    """Interval at which the cluster's groups and brokers are read. Leave it; raise it if its REST
    API is slow."""
    tenants: dict[str, str] = Field(default={})
    """Tenant: group. Each namespace of the tenant, also a new one, is attached to the group unless
    it has its own. Set it for quotas by tenant, as in PIP-82."""


class Enforce(Section):
    """Settings of ``quotaplane enforce pulsar``, which enforces limits on stock brokers."""

    divide: Literal["max_min", "even", "by_rate"] = "max_min"
    """Rule that divides a broker's limit among its topics: by demand (``max_min``), evenly, or by
    usage (``by_rate``). Leave it, unless all topics shall have the same."""
    interval_s: float = Field(default=0.5, gt=0)
    """Interval at which limits are read and rates are divided again. Leave it; raise it if the
    enforcer's host is busy."""
    significant_change: float = Field(default=0.05, ge=0, lt=1)
    """Least raise of a topic's rate, as a part of it; each write allows a burst. Raise it if the
    enforcer is behind with its writes."""
    max_writes_per_s: float = Field(default=100.0, gt=0)
    """Most requests that change rates; requests at once grow with it. Raise it if the enforcer is
    behind; lower it if brokers' ZooKeeper is busy."""
    max_reads_per_s: float = Field(default=200.0, gt=0)
    """Most requests that read rates and topics. Raise it for a shorter start with very many topics;
    lower it if the REST API is slow."""
    on_exit: Literal["keep", "safe", "remove"] = "keep"
    """Action at a clean stop: keep rates, set safe limits, or remove rates and restore quotas. Set
    ``remove`` if a stop shall leave the cluster as it was."""
    without_limits: Literal["safe", "give_back"] = "safe"
    """When the job is gone: after the leases keep safe limits, or ``give_back`` quotas to the
    cluster. Set it if the brokers' own calculator shall limit then."""
    give_back_after_s: float | None = Field(default=900.0, ge=30)
    """Quotas go back to the cluster after so long without a leading enforcer (``give_back``: or
    without limits). null: never. Raise it if maintenance takes longer."""
    take_over: bool = True
    """Set a group's publish quota in the cluster to unlimited once ours is in force. Leave it:
    otherwise the brokers' own calculator starves idle brokers."""
    report_topic: str | None = None
    """One of ``transport.report_topics``, for usage that the enforcer observes. null: none. Set it
    for stock brokers, whose own reports are late."""
    report_interval_s: float = Field(default=1.0, ge=0.5, le=10)
    """With ``report_topic``: interval at which counters are read and reported. Raise it if brokers'
    metrics are large or demand is noisy."""
    leader_topic: str = "enforcer-leader"
    """Topic that elects one of several enforcers; made if missing. A short name is in the namespace
    of the limits topic. Set it if two clusters share a namespace."""

    @property
    def concurrency(self) -> int:
        """Most requests at once: enough for both budgets if a write takes 160 ms, and a read 16."""
        most = max(0.16 * self.max_writes_per_s, 0.016 * self.max_reads_per_s)
        return min(max(16, math.ceil(most)), 256)
