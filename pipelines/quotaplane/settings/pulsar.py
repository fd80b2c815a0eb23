"""Settings of what is done with a Pulsar cluster beside its topics: its groups, its rates."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from quotaplane.settings.section import Section


class Cluster(Section):
    """A Pulsar cluster's own resource groups, followed over its REST API while the job runs."""

    poll_interval_s: float = Field(default=2.0, gt=0)
    """How often the cluster is asked what changed."""
    request_timeout_s: float = Field(default=10.0, gt=0)
    """A request that is not answered by then has failed, and is made again next time."""
    tenants: dict[str, str] = Field(default={})
    """Tenant: group. PIP-82 lets a group hang on a tenant, stock Pulsar only on a namespace: each
    namespace of the tenant is attached, now and later, unless it has a group of its own."""


class Enforce(Section):
    """How ``quotaplane enforce pulsar`` makes stock brokers obey."""

    divide: Literal["max_min", "even", "by_rate"] = "max_min"
    """How a broker's limit is divided over its topics: fairly by what they want, evenly, or in
    proportion to what they use."""
    floor_share: float = Field(default=0.1, gt=0, le=1)
    """What an idle topic keeps to wake up with, as a part of its even share."""
    interval_s: float = Field(default=0.5, gt=0)
    """How often limits are read and rates are divided anew."""
    significant_change: float = Field(default=0.05, ge=0, lt=1)
    """A topic's rate is raised only by more than this part: each write gives a free burst."""
    max_writes_per_s: float = Field(default=100.0, gt=0)
    max_reads_per_s: float = Field(default=200.0, gt=0)
    concurrency: int = Field(default=16, ge=1, le=256)
    """Requests under way at once."""
    on_exit: Literal["keep", "safe", "remove"] = "keep"
    """What a clean stop leaves: the rates as they are, each broker's safe limit, or none, with the
    groups' quotas handed back to the brokers."""
    take_over: bool = True
    """Set a group's publish quota to unlimited in the cluster once ours is in force. Otherwise the
    brokers' own calculator goes on to throttle beside us, and starves idle brokers."""
