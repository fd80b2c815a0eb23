"""The states of a job's shards, divided anew among another number of shards. Pure.

All that a state says of a group goes to the group's new shard. What it says of brokers goes to
every shard, as every shard gets the headers of all reports.

Shards run at different times if only some had a timer due or a changed group. Where that makes
their states differ, the new ones have what keeps limits in force safe: see the functions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np

from quotaplane.arrays import map_arrays, taken
from quotaplane.groups.ids import ids_of
from quotaplane.model import BoolArray, IntArray, shard_of
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import StepConfig
from quotaplane.quota.deleted_groups import DeletedReservations
from quotaplane.quota.groups import joined_groups
from quotaplane.quota.learning import DONE, Learning
from quotaplane.quota.leases import Leases
from quotaplane.quota.observed_pairs import ObservedPairs
from quotaplane.quota.overuse import Overuse
from quotaplane.quota.shard import Shard
from quotaplane.quota.state import ShardState
from quotaplane.quota.undefined_groups import UndefinedGroups


def resharded(
    states: Sequence[ShardState], shards: int, config: StepConfig
) -> tuple[ShardState, ...]:
    """The states of so many shards, in order, from those of all shards before.

    Each new state is recorded in full, and its leases are, in the first round that it runs.

    >>> from quotaplane.laws import get_law
    >>> len(resharded([ShardState(), ShardState()], 3, StepConfig(get_law("max_min"))))
    3
    """
    whole = _joined(states, config)
    return tuple(_part(whole, shard, shards) for shard in range(shards))


def _joined(states: Sequence[ShardState], config: StepConfig) -> ShardState:
    """The state of one shard that has the groups of all."""
    groups, places = joined_groups([state.groups for state in states])
    brokers, numbers = _brokers([state.brokers for state in states])
    return ShardState(
        groups=groups,
        brokers=brokers,
        leases=_leases([state.leases for state in states], places, numbers),
        learning=_learning([state.learning for state in states]),
        deleted=_deleted([state.deleted for state in states]),
        undefined=_undefined([state.undefined for state in states]),
        overuse=_overuse(states, config),
        observed=_observed([state.observed for state in states]),
        renewed_at_ms=_renewed_at_ms([state.renewed_at_ms for state in states]),
    )


def _part(whole: ShardState, shard: int, shards: int) -> ShardState:
    """The state of one of the new shards."""

    def here(ids: IntArray) -> BoolArray:
        chosen: BoolArray = shard_of(ids, shards) == shard
        return chosen

    chosen = here(whole.groups.ids)
    groups = whole.groups.take(chosen)
    leases = whole.leases.take(chosen[whole.leases.group])
    leases = replace(leases, group=(np.cumsum(chosen) - 1)[leases.group])
    deleted = np.flatnonzero(here(np.array(ids_of(whole.deleted.names), np.int64)))
    undefined = whole.undefined
    if shard and len(undefined):  # one shard counts on the reports that have no pair of their own
        undefined = replace(undefined, reports=np.where(undefined.others, 0, undefined.reports))
    return replace(
        whole,
        groups=groups,
        leases=leases,
        deleted=replace(
            taken(whole.deleted, deleted),
            names=tuple(whole.deleted.names[place] for place in deleted.tolist()),
        ),
        undefined=undefined,
        overuse=taken(whole.overuse, here(whole.overuse.group_id)),
        observed=whole.observed.take(here(whole.observed.group_id)),
    )


def _brokers(parts: Sequence[Brokers]) -> tuple[Brokers, list[IntArray]]:
    """The brokers of all shards in order of appearance; the new index of each, by shard.

    Shards differ if a timer found a broker silent in some of them. The newest report says how it
    stands; of shards that read the same, one that found it stale. So a broker that is gone in one
    shard goes from the new ones with the round in which it would have gone from the others.
    """
    names = tuple(dict.fromkeys(name for part in parts for name in part.names))
    index = {name: place for place, name in enumerate(names)}
    numbers = [np.array([index[name] for name in part.names], np.int64) for part in parts]
    rows = map_arrays(lambda *arrays: np.concatenate(arrays), *parts)
    number = np.concatenate(numbers)
    order = np.lexsort((rows.stale, rows.seen_at_ms, rows.read_at_ms, number))
    last = order[np.flatnonzero(np.diff(number[order], append=len(names)))]
    return replace(taken(rows, last), names=names), numbers


def _leases(
    parts: Sequence[Leases], places: Sequence[IntArray], numbers: Sequence[IntArray]
) -> Leases:
    """All leases; ``places`` and ``numbers``: the new index of each group and broker, by shard."""
    dimensions = sorted({dimension for part in parts for dimension in part.dimensions})
    moved = [
        replace(part.in_dimensions(dimensions), group=place[part.group], broker=number[part.broker])
        for part, place, number in zip(parts, places, numbers, strict=True)
    ]
    first, *others = moved
    return reduce(Leases.merged, others, first)


def _learning(parts: Sequence[Learning]) -> Learning:
    """Learning mode is over once it is in every shard; a shard that never ran does not count."""
    begun = [part for part in parts if part.until_ms]
    if all(part.until_ms == DONE for part in begun):
        return begun[0] if begun else Learning()
    return Learning(max(part.until_ms for part in begun), any(part.on for part in begun))


def _deleted(parts: Sequence[DeletedReservations]) -> DeletedReservations:
    return DeletedReservations(
        tuple(name for part in parts for name in part.names),
        np.concatenate([part.until_ms for part in parts]),
        np.concatenate([part.held for part in parts], axis=1),
    )


def _undefined(parts: Sequence[UndefinedGroups]) -> UndefinedGroups:
    """All pairs, for every shard: a key does not show its group. Few reports name any other pair
    than those of the shard, and pairs that none names are dropped after two hours.
    """
    rows = map_arrays(lambda *arrays: np.concatenate(arrays), *parts)
    order = np.lexsort((rows.reports, rows.quiet_until_ms, rows.key))
    rows = taken(rows, order)
    same_as_next = np.append(rows.key[1:] == rows.key[:-1], False)[: len(rows)]
    return taken(rows, ~same_as_next)


def _overuse(states: Sequence[ShardState], config: StepConfig) -> Overuse:
    """The debts of all groups, counted up to the time of the shard that counted last."""
    at_ms = max(state.overuse.counted_at_ms for state in states)
    parts = []
    for state in states:
        overuse = state.overuse
        if overuse.counted_at_ms != at_ms:
            shard = Shard(state.groups, state.brokers, state.leases).in_use(frozenset())
            none_ends = np.zeros(len(shard.leases), bool)
            overuse, _ = overuse.next(shard, None, none_ends, at_ms, config)
        parts.append(overuse)
    rows = map_arrays(lambda *arrays: np.concatenate(arrays), *parts)
    return taken(rows, np.lexsort((rows.group_id, rows.dimension)))


def _observed(parts: Sequence[ObservedPairs]) -> ObservedPairs:
    names = [name for part in parts for name in part.brokers]
    named = [part.with_brokers(names) for part in parts]
    rows = map_arrays(lambda *arrays: np.concatenate(arrays, axis=-1), *named)
    return rows.take(np.lexsort((rows.broker, rows.group_id)))


def _renewed_at_ms(parts: Sequence[IntArray]) -> IntArray:
    """For each turn, the earliest time: so no limit is renewed later than in its shard before.

    Shards that have not run since ``limits.refresh_rounds`` changed have other turns, and are due
    anyway.
    """
    newest = max(parts, key=lambda part: int(part.max(initial=0)))
    earliest: IntArray = np.min([part for part in parts if len(part) == len(newest)], axis=0)
    return earliest
