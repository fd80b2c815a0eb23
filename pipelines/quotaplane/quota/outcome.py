"""What a round gives to the world, as tables."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from quotaplane.groups.hierarchy import even_shares
from quotaplane.model import (
    DIMENSIONS,
    RATE_COLUMNS,
    SAFE_COLUMNS,
    BrokerStatus,
    IntArray,
    Transition,
)
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import StepConfig
from quotaplane.quota.division import tree_quota
from quotaplane.quota.groups import Groups
from quotaplane.quota.issue import IssuedLimits
from quotaplane.quota.shard import Shard
from quotaplane.quota.silence import Silence
from quotaplane.round_counts import RoundCounts


@dataclass(frozen=True)
class Outcome:
    """What a round gives to the world."""

    limits: pa.Table
    """A row per (broker, group) whose limit goes out now, or that changed: see ``limit_schema``."""
    ended: pa.Table
    """Pairs that are no longer limited, and ``why``."""
    usage: pa.Table | None
    """The entries used."""
    unknown: pa.Table | None
    """What is to be told of entries of groups that nobody defined: see ``UndefinedGroups``."""
    limited_but_deleted: pa.Table | None
    """Pairs of deleted groups that brokers still limit; they are told again that they need not."""
    brokers: pa.Table
    """Changes of status: see ``status_changes``."""
    unknown_entries: int = 0
    """Entries of groups that nobody defined."""
    counts: RoundCounts = field(default_factory=RoundCounts)
    """What the step counts; the others are 0."""


def status_changes(brokers: Brokers, recovered: IntArray, silence: Silence) -> pa.Table:
    """One row per broker that came (back), fell silent, or is given up."""
    came = np.zeros(len(brokers), bool)
    came[recovered] = True
    stale, gone = silence.stale, silence.gone
    parts = (
        (np.flatnonzero(came & ~stale & ~gone), BrokerStatus.LIVE),
        (np.flatnonzero(stale & ~brokers.stale), BrokerStatus.STALE),
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


def _pairs(shard: Shard, chosen: IntArray | slice, config: StepConfig) -> dict[str, pa.Array]:
    """Columns that name the chosen leases."""
    groups, leases = shard.groups, shard.leases
    group = leases.group[chosen]
    return {
        **_addressed(shard.brokers, leases.broker[chosen], config),
        "group": pa.DictionaryArray.from_arrays(pa.array(group.astype(np.int32)), groups.names),
        "group_id": pa.array(groups.ids[group]),
    }


def _addressed(brokers: Brokers, broker: IntArray, config: StepConfig) -> dict[str, pa.Array]:
    """Columns that say to whom a message goes, and how it names groups."""
    # A limit of before a restart may still be under way, but it is no longer accounted for.
    strict = config.transition is Transition.STRICT
    for_start_ms = brokers.started_at_ms if strict else np.zeros(len(brokers), np.int64)
    names = pa.array(brokers.names, pa.string())
    return {
        "broker": pa.DictionaryArray.from_arrays(pa.array(broker.astype(np.int32)), names),
        "uses_ids": pa.array(brokers.uses_ids[broker]),
        "for_start_ms": pa.array(for_start_ms[broker]),
    }


def limit_schema(
    dimensions: Sequence[int], *, throttle: bool = False, words: bool = False
) -> pa.Schema:
    """The columns of ``Outcome.limits``.

    ``dimensions``: indexes in ``model.DIMENSIONS``; ``throttle``, ``words``: whether it has these
    columns.

    >>> limit_schema([0]).names[5:8]
    ['publish_messages_per_s', 'changed', 'enforced']
    """
    rate, code = pa.float64(), pa.dictionary(pa.int32(), pa.string())
    names = [DIMENSIONS[d] for d in dimensions]
    columns = [
        ("broker", code, "whose limit it is"),
        ("uses_ids", pa.bool_(), "the broker names groups by their ids"),
        ("for_start_ms", pa.int64(), "strict: the incarnation of the broker it is for; else 0"),
        ("group", code, "of which group"),
        ("group_id", pa.int64(), "the group's id"),
        *((RATE_COLUMNS[d], rate, "the limit") for d in dimensions),
        *([("throttle", code, "throttle terms as JSON")] if throttle else []),
        ("changed", pa.bool_(), "the limit is new; else it is only renewed"),
        ("enforced", pa.bool_(), "the limit holds; else it is only computed"),
        ("published", pa.bool_(), "the broker is sent the limit"),
        ("safe_told", pa.bool_(), "the message has the safe limit and the throttle terms"),
        *((SAFE_COLUMNS[d], rate, "the limit once the lease ended") for d in dimensions),
        *((f"{name}_reason", pa.uint8(), "why: a laws.Reason") for name in names),
        *((f"{name}_words", pa.string(), "why, in words") for name in (names if words else [])),
    ]
    return pa.schema(
        [pa.field(name, kind, metadata={"comment": what}) for name, kind, what in columns]
    )


def limit_table(shard: Shard, issued: IssuedLimits, config: StepConfig) -> pa.Table:
    """``Outcome.limits``: see ``limit_schema``.

    It has throttle terms where any group has others than the defaults, and words where few limits
    changed.
    """
    groups, leases = shard.groups, shard.leases
    out = issued.to_publish
    columns = _pairs(shard, out, config)
    columns.update(
        (RATE_COLUMNS[d], pa.array(one[out]))
        for d, one in zip(leases.dimensions, leases.limit, strict=True)
    )
    throttle = groups.throttle.any_given
    if throttle:
        columns["throttle"] = groups.throttle.take(leases.group[out]).column()
    columns["changed"] = pa.array(issued.changed[out])
    columns["enforced"] = pa.array(leases.enforced[out])
    columns["published"] = pa.array(issued.published)
    columns["safe_told"] = pa.array(issued.safe_told)
    columns.update(
        (SAFE_COLUMNS[d], one)
        for d, one in zip(leases.dimensions, _safe_limits(groups, issued, config), strict=True)
    )
    columns.update(
        (f"{DIMENSIONS[d]}_reason", pa.array(codes[out]))
        for d, codes in zip(leases.dimensions, issued.reasons, strict=True)
    )
    if issued.words is not None:
        place = np.full(len(leases), -1)
        place[issued.changed] = np.arange(np.count_nonzero(issued.changed))
        index = pa.array(place[out], mask=place[out] < 0)
        columns.update(
            (f"{DIMENSIONS[d]}_words", pa.array(texts, pa.string()).take(index))
            for d, texts in zip(leases.dimensions, issued.words, strict=True)
        )
    schema = limit_schema(leases.dimensions, throttle=throttle, words=issued.words is not None)
    return pa.table(columns, schema=schema)


def _safe_limits(groups: Groups, issued: IssuedLimits, config: StepConfig) -> list[pa.Array]:
    """Limits that apply after a lease ended: ``safe_share`` of the quota by the brokers known.

    Below a quota the brokers of all its tree count, and a ceiling holds here too. 0 where it is not
    told.
    """
    leases = issued.leases
    known = np.bincount(leases.group, minlength=len(groups))
    told = issued.to_publish[issued.safe_told]
    group = leases.group[told]
    rates = np.zeros((len(leases.dimensions), len(issued.to_publish)))
    if not len(told):
        return list(map(pa.array, rates))
    ceiling = issued.ceiling
    for dimension, one in enumerate(rates):
        even = even_shares(groups.parent, tree_quota(groups, dimension), known)
        limited = np.isfinite(even)
        safe = np.full(len(groups), np.inf)
        safe[limited] = config.safe_share * even[limited]
        one[issued.safe_told] = safe[group]
        if ceiling is not None:
            one[issued.safe_told] = np.minimum(one[issued.safe_told], ceiling[dimension, told])
    return list(map(pa.array, rates))


def ended_table(shard: Shard, why: str, config: StepConfig) -> pa.Table:
    """All leases of a shard, as rows of ``Outcome.ended``."""
    table = pa.table(_pairs(shard, slice(None), config))
    return table.append_column("why", pa.array([why] * len(table), pa.string()))


def limited_but_deleted_table(
    brokers: Brokers, entries: pa.Table | None, config: StepConfig
) -> pa.Table | None:
    """``Outcome.limited_but_deleted``; the name of a group that is known by its id alone is empty.

    ``entries``: see ``TakenReports``.
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
