"""The outcome of a round as tables: limits, ended leases, usage used, changes of brokers."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from quotaplane.model import (
    DEMAND_COLUMNS,
    DIMENSIONS,
    QUOTA_COLUMNS,
    RATE_COLUMNS,
    SAFE_COLUMNS,
    BrokerStatus,
    FloatArray,
    IntArray,
    Transition,
)
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import StepConfig
from quotaplane.quota.groups import Groups
from quotaplane.quota.issue import IssuedLimits
from quotaplane.quota.shard import Shard
from quotaplane.quota.silence import Silence
from quotaplane.round_counts import RoundCounts


@dataclass(frozen=True)
class Outcome:
    """The outcome of a round."""

    limits: pa.Table
    """A row per (broker, group) whose limit is sent now, or changed: see ``limit_table``."""
    changed: pa.Table
    """A row per (broker, group) whose limit changed, and why: see ``changed_table``."""
    ended: pa.Table
    """A row per (broker, group) that is no longer limited, and ``why``."""
    usage: pa.Table | None
    """The report entries that were used: see ``report_tables.used_entries``; None: no reports."""
    unknown: pa.Table | None
    """Dead letters on undefined groups: see ``UndefinedGroups``; None: none."""
    limited_but_deleted: pa.Table | None
    """A row per (broker, group) that the broker still limits although the group was deleted; the
    deletion is sent again. None: none."""
    brokers: pa.Table
    """Brokers whose status changed: see ``status_changes``."""
    unknown_entries: int = 0
    """Report entries of undefined groups."""
    counts: RoundCounts = field(default_factory=RoundCounts)
    """The counts that the step makes; the others are 0."""


def status_changes(brokers: Brokers, recovered: IntArray, silence: Silence) -> pa.Table:
    """A row per broker that became live (new or back), stale or gone."""
    live = np.zeros(len(brokers), bool)
    live[recovered] = True
    stale, gone = silence.stale, silence.gone
    parts = (
        (np.flatnonzero(live & ~stale & ~gone), BrokerStatus.LIVE),
        (np.flatnonzero(stale & ~brokers.stale), BrokerStatus.STALE),
        (np.flatnonzero(gone & (brokers.seen_at_ms >= 0)), BrokerStatus.GONE),
    )
    chosen = np.concatenate([index for index, _ in parts])
    return pa.table(
        {
            "broker": pa.array(brokers.names, pa.string()).take(pa.array(chosen)),
            "status": pa.array(
                [status.value for index, status in parts for _ in index], pa.string()
            ),
            "last_seen_at_ms": pa.array(brokers.seen_at_ms[chosen]),
        }
    )


def _pairs(shard: Shard, chosen: IntArray | slice, config: StepConfig) -> dict[str, pa.Array]:
    """Columns that identify the chosen leases."""
    groups, leases = shard.groups, shard.leases
    group = leases.group[chosen]
    return {
        **_addressed(shard.brokers, leases.broker[chosen], config),
        "group": _group_names(groups, group),
        "group_id": pa.array(groups.ids[group]),
    }


def _group_names(groups: Groups, group: IntArray) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(group.astype(np.int32)), groups.names)


def _broker_names(brokers: Brokers, broker: IntArray) -> pa.DictionaryArray:
    names = pa.array(brokers.names, pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(broker.astype(np.int32)), names)


def _addressed(brokers: Brokers, broker: IntArray, config: StepConfig) -> dict[str, pa.Array]:
    """Columns with the receivers of messages, and how these name groups."""
    # Under strict a message is only for the broker as it is running now: a limit from before a
    # restart may still be under way, but is no longer in the account of limits in force.
    strict = config.transition is Transition.STRICT
    for_start_ms = brokers.started_at_ms if strict else np.zeros(len(brokers), np.int64)
    return {
        "broker": _broker_names(brokers, broker),
        "uses_ids": pa.array(brokers.uses_ids[broker]),
        "for_start_ms": pa.array(for_start_ms[broker]),
    }


def limit_table(shard: Shard, issued: IssuedLimits, config: StepConfig) -> pa.Table:
    """``Outcome.limits``: a row for each limit that is sent now, or changed.

    Columns: ``broker``, the receiver; ``uses_ids``: it names groups by id; ``for_start_ms``: under
    strict its start time, else 0; ``group`` and ``group_id``. ``changed``: the limit is new, else
    only renewed; ``enforced``: the broker must obey it, else it is only computed; ``published``: it
    is sent; ``with_safe_limit``: and with it the safe limit and the throttle terms. By dimension,
    per second: the limit and the safe limit. ``throttle`` has terms as JSON, if a group has others
    than the defaults.
    """
    groups, leases = shard.groups, shard.leases
    chosen = issued.to_publish
    columns = _pairs(shard, chosen, config)
    columns.update(
        (RATE_COLUMNS[d], pa.array(rates[chosen]))
        for d, rates in zip(leases.dimensions, leases.limit, strict=True)
    )
    if groups.throttle.any_given:
        columns["throttle"] = groups.throttle.take(leases.group[chosen]).column()
    columns["changed"] = pa.array(issued.changed[chosen])
    columns["enforced"] = pa.array(leases.enforced[chosen])
    columns["published"] = pa.array(issued.published)
    columns["with_safe_limit"] = pa.array(issued.with_safe_limit)
    columns.update(
        (SAFE_COLUMNS[d], pa.array(rates))
        for d, rates in zip(leases.dimensions, _safe_limits(shard, issued, config), strict=True)
    )
    return pa.table(columns)


def changed_table(shard: Shard, issued: IssuedLimits) -> pa.Table:
    """``Outcome.changed``: a row for each limit that changed, whether it is sent or not.

    Columns: ``broker``, ``group``, ``enforced`` (see ``limit_table``); by dimension, per second:
    the limit, the demand that the law was given, the quota that it divided; code and numbers of the
    reason. Demand and quota are null where no law was asked.
    """
    leases, chosen = shard.leases, np.flatnonzero(issued.changed)
    columns = {
        "broker": _broker_names(shard.brokers, leases.broker[chosen]),
        "group": _group_names(shard.groups, leases.group[chosen]),
        "enforced": pa.array(leases.enforced[chosen]),
    }
    of_dimensions = zip(
        leases.dimensions, leases.limit, issued.reasons, issued.explanations, strict=True
    )
    for d, limit, codes, explained in of_dimensions:
        columns |= {
            RATE_COLUMNS[d]: pa.array(limit[chosen]),
            DEMAND_COLUMNS[d]: pa.array(explained.demand, from_pandas=True),
            QUOTA_COLUMNS[d]: pa.array(explained.quota, from_pandas=True),
            f"{DIMENSIONS[d]}_reason_code": pa.array(codes[chosen]),
            f"{DIMENSIONS[d]}_reason_numbers": explained.numbers,
        }
    return pa.table(columns)


def _safe_limits(shard: Shard, issued: IssuedLimits, config: StepConfig) -> FloatArray:
    """(d, m) the limits that apply after a lease ended; 0 where they are not sent.

    A safe limit is ``safe_share`` of the quota divided by the number of known brokers, in a tree by
    those of the whole tree. It does not exceed the broker's ceiling.
    """
    chosen = issued.to_publish[issued.with_safe_limit]
    group = shard.leases.group[chosen]
    safe_limits = np.zeros((len(shard.leases.dimensions), len(issued.to_publish)))
    if not len(chosen):
        return safe_limits
    for dimension, rates in enumerate(safe_limits):
        even = shard.equal_shares(dimension)
        safe = np.full(len(even), np.inf)
        np.multiply(config.safe_share, even, out=safe, where=np.isfinite(even))
        limit = safe[group]
        if issued.ceiling is not None:
            limit = np.minimum(limit, issued.ceiling[dimension, chosen])
        rates[issued.with_safe_limit] = limit
    return safe_limits


def ended_table(shard: Shard, why: str, config: StepConfig) -> pa.Table:
    """``Outcome.ended`` for all leases of a shard."""
    table = pa.table(_pairs(shard, slice(None), config))
    return table.append_column("why", pa.array([why] * len(table), pa.string()))


def limited_but_deleted_table(
    brokers: Brokers, entries: pa.Table | None, config: StepConfig
) -> pa.Table | None:
    """``Outcome.limited_but_deleted``; a group that was reported by id alone has an empty name.

    ``entries``: see ``report_tables.limited_but_deleted``.
    """
    if entries is None or not len(entries):
        return None
    names = entries["group"].combine_chunks().fill_null("").dictionary_encode()
    return pa.table(
        {
            **_addressed(brokers, entries["broker_index"].to_numpy(), config),
            "group": names,
            "group_id": entries["group_id"],
        }
    )
