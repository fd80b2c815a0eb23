"""The leases of a shard after a round, as a table: usage, demand and limits in force."""

from __future__ import annotations

from typing import Final

import numpy as np
import pyarrow as pa

from quotaplane.model import DEMAND_COLUMNS, LIMIT_COLUMNS, USED_COLUMNS, BrokerStatus, IntArray
from quotaplane.quota.state import ShardState

ROWS_PER_S: Final = 20_000
"""A snapshot is due once this many rows a second have passed: it takes a few percent of a core,
however many leases there are."""
LEAST_MS: Final = 5_000
"""Snapshots of few leases are this far apart."""


def snapshot_due(state: ShardState, now_ms: int) -> bool:
    """Whether the last snapshot of a shard is old enough.

    >>> snapshot_due(ShardState(snapshot_at_ms=10_000), 14_000)
    False
    >>> snapshot_due(ShardState(snapshot_at_ms=10_000), 15_000)
    True
    """
    interval_ms = max(LEAST_MS, 1000 * len(state.leases) // ROWS_PER_S)
    return now_ms - state.snapshot_at_ms >= interval_ms


def lease_ends(state: ShardState, lease_ms: float) -> IntArray:
    """(n,) when each lease ends unless it is renewed; -1: no limit was sent.

    A limit is sent when it changes, and again in its group's turn (``renewals``): the state is that
    after a round.
    """
    leases, turns = state.leases, state.renewed_at_ms
    turn = state.groups.ids[leases.group] % len(turns)
    sent_at_ms = np.maximum(leases.issued_at_ms, turns[turn])
    ends_ms = sent_at_ms + int(lease_ms)
    return np.where(leases.has_limit & leases.notified & (sent_at_ms >= 0), ends_ms, -1)


def lease_snapshot(state: ShardState, lease_ms: float) -> pa.Table:
    """A row per lease: the columns of the history table ``leases`` without those of its round.

    A rate is infinite where the limit is "unlimited", or the demand unknown as the broker is
    saturated.
    """
    groups, brokers, leases = state.groups, state.brokers, state.leases
    status = pa.array([BrokerStatus.LIVE.value, BrokerStatus.STALE.value])
    stale = brokers.stale[leases.broker].astype(np.int8)
    names = pa.array(brokers.names, pa.string())
    columns = {
        "broker": pa.DictionaryArray.from_arrays(pa.array(leases.broker.astype(np.int32)), names),
        "resource_group": pa.DictionaryArray.from_arrays(
            pa.array(leases.group.astype(np.int32)), groups.names
        ),
        "broker_status": pa.DictionaryArray.from_arrays(pa.array(stale), status),
        "seen_at_ms": pa.array(leases.seen_at_ms),
        "has_limit": pa.array(leases.has_limit),
        "enforced": pa.array(leases.enforced),
        "lease_ends_at_ms": pa.array(lease_ends(state, lease_ms)),
    }
    for place, dimension in enumerate(leases.dimensions):
        columns[USED_COLUMNS[dimension]] = pa.array(leases.usage[place])
        columns[DEMAND_COLUMNS[dimension]] = pa.array(leases.estimates.demand[place])
        columns[LIMIT_COLUMNS[dimension]] = pa.array(leases.limit[place])
    return pa.table(columns)
