"""The quick what-if: how other quotas, terms or another law would have divided a recorded period.

Each bucket of the period is a copy of the group's tree, with the usage that was recorded then, and
the job's own division divides the quotas of all copies at once. The answer is the law's in a steady
state: without steps, acknowledgements or hysteresis. ``quota_what_if`` runs every round again
instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from quotaplane.groups.hierarchy import and_below
from quotaplane.laws import get_law
from quotaplane.model import BoolArray, FloatArray, IntArray, Transition
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.quota.broker_terms import lease_terms
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import StepConfig
from quotaplane.quota.division import LeaseStatus, divide
from quotaplane.quota.estimate.demand import observe
from quotaplane.quota.group_changes import change_groups
from quotaplane.quota.groups import Groups
from quotaplane.quota.leases import fresh_leases
from quotaplane.quota.shard import Shard
from quotaplane.quota.state import ShardState
from quotaplane.replay.period import Period, read_period
from quotaplane.replay.player import changed_groups
from quotaplane.replay.quota_what_if import Totals, differences, less_and_more
from quotaplane.settings import Settings
from quotaplane.streams.quota.program import quota_program

SteadyConfig: TypeAlias = StepConfig
"""Settings as ``steady_config`` returns them."""

_SAME: Final = 1e-9
"""Limits that differ by this part are the same."""


def steady_config(
    settings: Settings, law: str | None = None, options: Mapping[str, Any] | None = None
) -> SteadyConfig:
    """The job's settings, with limits that are in force at once; None: the settings' own law.

    Raises:
        ConfigError: there is no such law, or it has no such option.
    """
    config = quota_program(settings, epoch=0).step
    if law is not None:
        config = replace(config, law=get_law(law, options))
    return replace(config, transition=Transition.FAST, max_step=None)


@dataclass(frozen=True)
class KnownPeriod:
    """A period, the definitions of its tree, and its limits by the settings' law."""

    period: Period
    rows: pa.Table
    """Rows of the groups of the tree, as ``registry.table.list_groups`` returns them."""
    groups: Groups
    """The same, by id: the g groups of the period."""
    limits: FloatArray
    """(D, n, T) by the settings' law."""


def known_period(
    engine: DuckDBEngine,
    rows: pa.Table,
    bounds: tuple[datetime, datetime],
    points: int,
    settings: Settings,
) -> KnownPeriod:
    """Read the records of the groups ``rows`` between ``bounds``: see ``read_period``."""
    groups = groups_of(rows)
    period = read_period(engine, groups.names.to_pylist(), groups.quota, *bounds, points)
    limits = steady_limits(period, groups, period.quota, steady_config(settings))
    return KnownPeriod(period, rows, groups, limits)


def groups_of(rows: pa.Table) -> Groups:
    """Groups, by id, from rows as ``registry.table.list_groups`` returns them."""
    return change_groups(ShardState(), changed_groups(rows)).groups


@dataclass(frozen=True)
class Effect:
    """The effect of a change on a ``Period`` of D dimensions, n pairs and T buckets."""

    quota: FloatArray
    """(D, g, T) the changed quotas; inf: unlimited."""
    limit: FloatArray
    """(D, n, T) the changed limits; inf: unlimited."""
    less: FloatArray
    """(D, n, T) units that were used above the changed limit."""
    more: FloatArray
    """(D, n, T) further units that the changed limit would have allowed."""


def steady_limits(
    period: Period, groups: Groups, quota: FloatArray, config: SteadyConfig
) -> FloatArray:
    """(D, n, T) the limits that a law gives if quotas are (D, g, T); inf: unlimited.

    A pair that reported nothing in a bucket takes no part in it.
    """
    limits = np.full(period.used.shape, np.inf)
    limited = np.isfinite(quota).any(axis=(1, 2))
    limited |= np.isfinite(groups.overrides.ceiling).any(axis=1)
    dimensions = tuple(np.flatnonzero(limited).tolist())
    bucket, pair = np.nonzero((period.used_ms > 0).T)
    if not dimensions or not len(pair):
        return limits
    at = list(dimensions)
    copies = _copies(groups.narrowed(dimensions), quota[at])
    leases = fresh_leases(
        bucket * len(groups) + period.group[pair], period.broker[pair], dimensions
    )
    nothing: BoolArray = np.zeros(len(pair), np.bool_)
    used = np.nan_to_num(period.used[at][:, pair, bucket])
    leases = replace(
        leases,
        usage=used,
        limit=period.limit[at][:, pair, bucket],
        estimates=replace(leases.estimates, demand=_demand(period, at)[:, pair, bucket]),
        reports_refused=~nothing,  # the demand has headroom already
    )
    count = np.zeros(len(period.brokers), np.int64)
    known = count.astype(np.uint64)
    flags = (count > 0, count > 0, known)
    brokers = Brokers(period.brokers, count, count, count, count, *flags, count, count, count)
    shard = Shard(copies, brokers, leases)
    status = LeaseStatus(terms=lease_terms(shard), enforced=~nothing, on_hold=nothing)
    touched = np.ones(len(copies), np.bool_)
    for place, dimension in enumerate(dimensions):
        division = divide(shard, status, place, touched, config)
        limits[dimension, pair, bucket] = division.limit
    return limits


def compare(period: Period, before: FloatArray, after: FloatArray, quota: FloatArray) -> Effect:
    """The effect of other limits on a period.

    Args:
        period: the records.
        before: (D, n, T) limits by the law without the change. If the law gives the same with the
            change, the recorded limit counts as unchanged.
        after: (D, n, T) limits by the law with the change.
        quota: (D, g, T) quotas with the change.
    """
    limit, (less, more) = period.limit.copy(), np.zeros((2, *period.limit.shape))
    seconds = period.used_ms / 1000.0
    for dimension in _other(before, after):
        old, new = before[dimension], after[dimension]
        with np.errstate(invalid="ignore"):
            same = (old == new) | (np.abs(new - old) <= _SAME * np.abs(old))
        limit[dimension] = np.where(same, period.limit[dimension], new)
        rates = np.nan_to_num(period.used[dimension]), period.limit[dimension], limit[dimension]
        less[dimension], more[dimension] = (units * seconds for units in less_and_more(*rates))
    return Effect(quota, limit, less, more)


def _other(before: FloatArray, after: FloatArray) -> list[int]:
    """The dimensions in which anything differs."""
    return [int(place) for place in np.flatnonzero((before != after).any(axis=(1, 2)))]


def totals(period: Period, found: Effect) -> Totals:
    """The sums over the period."""
    at = _other(period.limit, found.limit)
    limit, changed = period.limit[at], found.limit[at]
    less, more = found.less[at] > 0, found.more[at] > 0
    begin_ms = np.maximum(period.grid.times_ms(), period.since_ms).astype(np.float64)
    end_ms = np.minimum(period.grid.times_ms() + period.grid.step_ms, period.until_ms)
    ms = period.used_ms * (np.isfinite(limit) & np.isfinite(changed))

    def spread(sums: FloatArray, otherwise: float = 0.0) -> FloatArray:
        everywhere = np.full(period.limit.shape[:2], otherwise)
        everywhere[at] = sums
        return everywhere

    def summed(rates: FloatArray) -> FloatArray:
        return spread((np.where(ms > 0, rates, 0.0) * ms).sum(axis=-1))

    first = np.where(less, begin_ms, np.inf).min(axis=-1, initial=np.inf)
    last = np.where(less, end_ms, -np.inf).max(axis=-1, initial=-np.inf)
    return Totals(
        less=spread(found.less[at].sum(axis=-1)),
        less_ms=spread((less * period.used_ms).sum(axis=-1)),
        more=spread(found.more[at].sum(axis=-1)),
        more_ms=spread((more * period.used_ms).sum(axis=-1)),
        first_ms=spread(np.where(np.isfinite(first), first, np.nan), np.nan),
        last_ms=spread(np.where(np.isfinite(last), last, np.nan), np.nan),
        limit_ms=summed(limit),
        changed_ms=summed(changed),
        both_ms=spread(ms.sum(axis=-1)),
    )


def difference_rows(period: Period, groups: Groups, found: Effect) -> pa.Table:
    """A row for each group, broker and dimension in which anything differs: see ``what_if``."""
    names = groups.names.to_pylist()
    return differences(
        [names[place] for place in period.group.tolist()],
        [period.brokers[place] for place in period.broker.tolist()],
        totals(period, found),
    )


def below(groups: Groups, group: int) -> BoolArray:
    """(g,) the group and those below it."""
    chosen = np.zeros(len(groups), np.bool_)
    chosen[group] = True
    return and_below(groups.parent, chosen)


def by_broker(period: Period, pairs: BoolArray, rates: FloatArray) -> FloatArray:
    """(b, T) sums over the chosen (n,) pairs of one dimension's rates (n, T).

    NaN counts as nothing; NaN if there is nothing else. The same of inf.
    """
    chosen = np.flatnonzero(pairs)
    chosen = chosen[np.argsort(period.broker[chosen], kind="stable")]
    brokers, starts = np.unique(period.broker[chosen], return_index=True)
    values = rates[chosen]
    finite = np.isfinite(values)
    sums, known, infinite = np.zeros((3, len(period.brokers), period.grid.count))
    if len(chosen):
        sums[brokers] = np.add.reduceat(np.where(finite, values, 0.0), starts)
        known[brokers] = np.add.reduceat(finite, starts, dtype=np.int64)
        infinite[brokers] = np.add.reduceat(np.isinf(values), starts, dtype=np.int64)
    return np.where(known > 0, sums, np.where(infinite > 0, np.inf, np.nan))


def _demand(period: Period, dimensions: list[int]) -> FloatArray:
    """(d, n, T) the demand as the job observes it; inf: saturated."""
    used = np.nan_to_num(period.used[dimensions])
    seen = observe(used, period.limit[dimensions], period.throttled[dimensions])
    # A broker at its limit may be satisfied: then the law was given its demand with headroom, which
    # is more than the usage. The headroom for noise is not recorded by itself.
    given = period.demand[dimensions]
    least = np.where(np.isinf(seen), used, seen)
    known = np.isfinite(given) & np.isnan(period.throttled[dimensions])
    return np.where(known, np.maximum(given, least), seen)


def _copies(groups: Groups, quota: FloatArray) -> Groups:
    """T copies of g groups one after the other, with quotas (d, g, T)."""
    g, count = len(groups), quota.shape[-1]
    offset: IntArray = np.repeat(np.arange(count) * g, g)
    parent = np.tile(groups.parent, count)
    overrides = groups.overrides
    rows = np.tile(np.arange(len(overrides)), count)
    overrides = overrides.take(rows)
    shift = np.repeat(np.arange(count) * g, len(rows) // count)
    each = np.tile(np.arange(g), count)
    return replace(
        groups,
        ids=groups.ids[each],
        names=groups.names.take(pa.array(each)),
        quota=quota.transpose(0, 2, 1).reshape(len(quota), count * g),
        parent=np.where(parent >= 0, parent + offset, -1),
        options={name: array[..., each] for name, array in groups.options.items()},
        overrides=replace(overrides, group=overrides.group + shift),
        throttle=groups.throttle.take(each),
        template=groups.template[each],
    )


def dimensions_shown(period: Period, found: Effect, groups: Groups, group: int) -> list[int]:
    """The dimensions in which the group has, or would have, a limit."""
    finite = np.isfinite(period.quota[:, group]) | np.isfinite(found.quota[:, group])
    pairs = below(groups, group)[period.group]
    limited = np.isfinite(period.limit[:, pairs]) | np.isfinite(found.limit[:, pairs])
    shown = finite.any(axis=-1) | limited.any(axis=(1, 2))
    return [int(place) for place in np.flatnonzero(shown)]
