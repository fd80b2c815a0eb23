"""What a round gives to the world, as tables."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from quotaplane.groups.hierarchy import even_shares
from quotaplane.model import (
    DIMENSIONS,
    RATE_COLUMNS,
    SAFE_COLUMNS,
    BoolArray,
    BrokerStatus,
    IntArray,
    Transition,
)
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import StepConfig
from quotaplane.quota.division import tree_quota
from quotaplane.quota.groups import Groups
from quotaplane.quota.issue import IssuedLimits
from quotaplane.quota.leases import Leases
from quotaplane.quota.reports import TakenReports


@dataclass(frozen=True)
class Outcome:
    """What a round gives to the world.

    ``limits``: a row per (broker, group) whose limit goes out now; ``changed`` tells a new limit
    from one that is only renewed, ``enforced`` one that holds from one that is only what it would
    be (the broker is told that it is not limited), ``published`` whether it is told at all.
    Columns of a dimension are there where the shard's rows have it; in others nobody is limited.
    ``throttle``, how to hold to it, is there where any group has other terms than the defaults.
    Where few changed, ``..._words`` say why with the numbers, beside the codes ``..._reason``.
    ``ended``: pairs that are no longer limited. ``usage``: the
    entries used. ``unknown_entries``: how many were of groups that nobody defined; ``unknown``:
    what is to be told of these (see ``Undefined``). ``astray``: of them, where brokers limit such
    a group; they are told again that they don't have to. ``brokers``: changes of status.
    """

    limits: pa.Table
    ended: pa.Table
    usage: pa.Table | None
    unknown: pa.Table | None
    astray: pa.Table | None
    brokers: pa.Table
    unknown_entries: int = 0
    counts: Mapping[str, int] = field(default_factory=dict)


def status_changes(
    brokers: Brokers, intake: TakenReports | None, stale: BoolArray, gone: BoolArray
) -> pa.Table:
    """One row per broker that came (back), fell silent, or is given up."""
    was_stale = brokers.stale
    came = np.zeros(len(brokers), bool)
    if intake is not None:
        came[intake.back] = True
    parts = (
        (np.flatnonzero(came & ~stale & ~gone), BrokerStatus.LIVE),
        (np.flatnonzero(stale & ~was_stale), BrokerStatus.STALE),
        (np.flatnonzero(gone & (brokers.seen_at_ms >= 0)), BrokerStatus.GONE),
    )
    where = np.concatenate([index for index, _ in parts])
    return pa.table(
        {
            "broker": pa.array(brokers.names, pa.string()).take(pa.array(where)),
            "status": pa.array(
                [status.value for index, status in parts for _ in index], pa.string()
            ),
            "last_seen_at_ms": pa.array(brokers.seen_at_ms[where]),
        }
    )


def _pairs(
    groups: Groups, brokers: Brokers, group: IntArray, broker: IntArray, config: StepConfig
) -> dict[str, pa.Array]:
    return {
        **_told(brokers, broker, config),
        "group": pa.DictionaryArray.from_arrays(pa.array(group.astype(np.int32)), groups.names),
        "group_id": pa.array(groups.ids[group]),
    }


def _told(brokers: Brokers, broker: IntArray, config: StepConfig) -> dict[str, pa.Array]:
    # A limit of before a restart may still be under way, but it is no longer accounted for.
    strict = config.transition is Transition.STRICT
    for_start_ms = brokers.started_at_ms if strict else np.zeros(len(brokers), np.int64)
    names = pa.array(brokers.names, pa.string())
    return {
        "broker": pa.DictionaryArray.from_arrays(pa.array(broker.astype(np.int32)), names),
        "uses_ids": pa.array(brokers.uses_ids[broker]),
        "for_start_ms": pa.array(for_start_ms[broker]),
    }


def limit_table(
    groups: Groups, brokers: Brokers, allotment: IssuedLimits, config: StepConfig
) -> pa.Table:
    """``Outcome.limits``."""
    out: IntArray = allotment.going_out
    rows = allotment.rows
    columns = _pairs(groups, brokers, rows.group[out], rows.broker[out], config)
    columns.update(
        (RATE_COLUMNS[d], pa.array(one[out]))
        for d, one in zip(rows.dimensions, rows.limit, strict=True)
    )
    if groups.throttle.any_given:
        columns["throttle"] = groups.throttle.take(rows.group[out]).column()
    columns["changed"] = pa.array(allotment.changed[out])
    columns["enforced"] = pa.array(rows.enforced[out])
    columns["published"] = pa.array(allotment.published)
    columns["safe_told"] = pa.array(allotment.safe_told)
    columns.update(
        (SAFE_COLUMNS[d], one)
        for d, one in zip(rows.dimensions, _safe_limits(groups, allotment, config), strict=True)
    )
    columns.update(
        (f"{DIMENSIONS[d]}_reason", pa.array(codes[out]))
        for d, codes in zip(rows.dimensions, allotment.reasons, strict=True)
    )
    table = pa.table(columns)
    if allotment.words is None:
        return table
    place = np.full(len(rows), -1)
    place[allotment.changed] = np.arange(np.count_nonzero(allotment.changed))
    index = pa.array(place[out], mask=place[out] < 0)
    for d, texts in zip(rows.dimensions, allotment.words, strict=True):
        words = pa.array(texts, pa.string()).take(index)
        table = table.append_column(f"{DIMENSIONS[d]}_words", words)
    return table


def _safe_limits(groups: Groups, allotment: IssuedLimits, config: StepConfig) -> list[pa.Array]:
    """What holds once a lease ran out: of the quota what it is divided by the brokers known.

    Below a quota the brokers of all its tree count, and a ceiling holds here too. Only where it is
    told; 0 elsewhere.
    """
    rows = allotment.rows
    known = np.bincount(rows.group, minlength=len(groups))
    told = allotment.going_out[allotment.safe_told]
    group = rows.group[told]
    rates = np.zeros((len(rows.dimensions), len(allotment.going_out)))
    if not len(told):
        return list(map(pa.array, rates))
    ceiling = allotment.ceiling
    for dimension, one in enumerate(rates):
        even = even_shares(groups.parent, tree_quota(groups, dimension), known)
        limited = np.isfinite(even)
        safe = np.full(len(groups), np.inf)
        safe[limited] = config.safe_share * even[limited]
        one[allotment.safe_told] = safe[group]
        if ceiling is not None:
            one[allotment.safe_told] = np.minimum(
                one[allotment.safe_told], ceiling[dimension, told]
            )
    return list(map(pa.array, rates))


def ended_table(
    groups: Groups, brokers: Brokers, rows: Leases, why: str, config: StepConfig
) -> pa.Table:
    table = pa.table(_pairs(groups, brokers, rows.group, rows.broker, config))
    return table.append_column("why", pa.array([why] * len(table), pa.string()))


def astray_table(brokers: Brokers, intake: TakenReports, config: StepConfig) -> pa.Table:
    """``Outcome.astray``; the name of a group that is known by its id alone is empty."""
    names = intake.astray["group"].combine_chunks().fill_null("").dictionary_encode()
    return pa.table(
        {
            **_told(brokers, intake.astray["code"].to_numpy(), config),
            "group": names,
            "group_id": intake.astray["group_id"],
        }
    )
