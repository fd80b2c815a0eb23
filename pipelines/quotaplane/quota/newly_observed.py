"""Pairs of a broker and a group that the enforcer begins to observe."""

from __future__ import annotations

from typing import Any

import numpy as np

from quotaplane.model import BASIC, BoolArray, IntArray, Round
from quotaplane.quota.config import StepConfig
from quotaplane.quota.observed_pairs import MOST_MISSES, ObservedPairs
from quotaplane.quota.shard import Shard


def with_new_pairs(
    pairs: ObservedPairs,
    shard: Shard,
    broker: IntArray,
    ids: IntArray,
    round_: Round,
    config: StepConfig,
) -> ObservedPairs:
    """The pairs, with those of an observed broker and group id (m,) that are new.

    Groups that are not defined are left out: anybody may invent names. If the broker itself reports
    the group already, the observation counts only once it has agreed with an own report.
    """
    new = (pairs.find(broker, ids) < 0) & _defined(shard, ids)
    if not new.any():
        return pairs
    by_group = np.unique(np.stack([ids[new], broker[new]]), axis=1)
    ids, broker = by_group[0], by_group[1]
    lease = lease_of(shard, [pairs.brokers[at] for at in broker.tolist()], ids)
    leased = lease >= 0
    own_at_ms, own_usage = np.full(len(ids), -1, np.int64), np.zeros((BASIC, len(ids)))
    own_at_ms[leased] = shard.leases.seen_at_ms[lease[leased]]
    for place, dimension in enumerate(shard.leases.dimensions):
        if dimension < BASIC:
            own_usage[dimension, leased] = shard.leases.usage[place, lease[leased]]
    reported = leased & (round_.now_ms - own_at_ms <= config.stale_after_ms)
    zeros, nothing = np.zeros(len(ids), np.int64), np.zeros((BASIC, len(ids)))
    fresh: dict[str, Any] = {
        "broker": broker,
        "group_id": ids,
        "sequence": zeros - 1,
        "until_ms": zeros - 1,
        "window_s": np.zeros(len(ids)),
        "observed_s": nothing,
        "units": nothing,
        "low": np.full_like(nothing, np.inf),
        "high": nothing,
        "own_at_ms": own_at_ms,
        "own_usage": own_usage,
        "misses": np.where(reported, MOST_MISSES, 0),
    }
    joined = pairs.map_arrays(lambda name, array: np.concatenate([array, fresh[name]], axis=-1))
    return joined.take(np.lexsort((joined.broker, joined.group_id)))


def _defined(shard: Shard, ids: IntArray) -> BoolArray:
    """(m,) the shard has a group with the id."""
    known = shard.groups.ids
    if not len(known):
        return np.zeros(len(ids), bool)
    defined: BoolArray = known[np.minimum(np.searchsorted(known, ids), len(known) - 1)] == ids
    return defined


def lease_of(shard: Shard, brokers: list[str], ids: IntArray) -> IntArray:
    """The index of the lease of each broker and group id (m,); -1: there is none."""
    groups, leases = shard.groups, shard.leases
    none = np.full(len(ids), -1, np.int64)
    if not len(leases):
        return none
    names = {name: place for place, name in enumerate(shard.brokers.names)}
    broker = np.array([names.get(name, -1) for name in brokers], np.int64)
    group = np.minimum(np.searchsorted(groups.ids, ids), len(groups) - 1)
    there = (groups.ids[group] == ids) & (broker >= 0)
    keys = leases.group * len(names) + leases.broker
    wanted = group * len(names) + broker
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(there & (keys[place] == wanted), place, none)
