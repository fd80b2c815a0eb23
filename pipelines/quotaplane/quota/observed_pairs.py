"""The pairs of a broker and a group that the enforcer observes, as a shard remembers them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa

from quotaplane.arrays import find, map_arrays, taken
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray, Round
from quotaplane.quota.config import StepConfig
from quotaplane.quota.shard import Shard

MOST_MISSES: Final = 2
"""With one, a change of load would count that happened between the ends of the two windows."""


def _none() -> IntArray:
    return np.zeros(0, np.int64)


def _no_rates() -> FloatArray:
    return np.zeros((BASIC, 0))


@dataclass(frozen=True)
class ObservedPairs:
    """The k pairs, sorted by group id, then by broker.

    Arrays have shape (k,), and those over the first four dimensions (4, k). The *stretch* of a pair
    is the time since its broker's newest own report.
    """

    brokers: tuple[str, ...] = ()
    """Names in alphabetical order."""
    broker: IntArray = field(default_factory=_none)
    """Index in ``brokers``."""
    group_id: IntArray = field(default_factory=_none)
    sequence: IntArray = field(default_factory=_none)
    """Number of the newest observed report that names the pair."""
    until_ms: IntArray = field(default_factory=_none)
    """The observation counts as current until then, in ms since 1970."""
    window_s: FloatArray = field(default_factory=lambda: np.zeros(0))
    """Window of the newest observed report."""
    observed_s: FloatArray = field(default_factory=_no_rates)
    """(4, k) how much of the stretch was observed."""
    units: FloatArray = field(default_factory=_no_rates)
    """(4, k) messages and bytes that were observed in the stretch."""
    low: FloatArray = field(default_factory=_no_rates)
    """(4, k) lowest observed usage in the stretch, per second; inf: none."""
    high: FloatArray = field(default_factory=_no_rates)
    """(4, k) highest observed usage in the stretch, per second; 0: none."""
    own_at_ms: IntArray = field(default_factory=_none)
    """When the broker's newest own report that names the group was published; -1: none was."""
    own_usage: FloatArray = field(default_factory=_no_rates)
    """(4, k) usage in the broker's own reports, per second: what "unchanged" in them refers to."""
    misses: IntArray = field(default_factory=_none)
    """Own reports in a row that had noticeably more usage than was observed; from
    ``MOST_MISSES`` on the observation is not used."""

    def __len__(self) -> int:
        return len(self.group_id)

    def take(self, chosen: BoolArray | IntArray) -> ObservedPairs:
        """The pairs that ``chosen`` (a mask, or indexes) selects."""
        return taken(self, chosen)

    def find(self, broker: IntArray, ids: IntArray) -> IntArray:
        """The index of each pair of a broker and a group id (m,); -1: it is not here.

        >>> pairs = ObservedPairs(("a", "b"), np.array([0, 1]), np.array([7, 7]))
        >>> pairs.find(np.array([1, 0, -1]), np.array([7, 8, 7])).tolist()
        [1, -1, -1]
        """
        known, group = np.unique(self.group_id, return_inverse=True)
        at, size = find(known, ids), len(self.brokers)
        key = np.where((at >= 0) & (broker >= 0), at * size + broker, -1)
        return find(group * size + self.broker, key)

    def leases_in(self, shard: Shard) -> IntArray:
        """(k,) the index of each pair's lease in the shard; -1: it has none."""
        names = {name: place for place, name in enumerate(shard.brokers.names)}
        broker = np.array([names.get(name, -1) for name in self.brokers], np.int64)
        return shard.find_leases(find(shard.groups.ids, self.group_id), broker[self.broker])

    def with_brokers(self, names: Iterable[str]) -> ObservedPairs:
        """The same pairs, with these names of brokers among ``brokers``."""
        brokers = tuple(sorted({*self.brokers, *names}))
        if brokers == self.brokers:
            return self
        index = {name: place for place, name in enumerate(brokers)}
        place = np.array([index[name] for name in self.brokers], np.int64)
        broker = place[self.broker] if len(self) else self.broker
        return replace(self, brokers=brokers, broker=broker)

    def without_future(self, now_ms: int) -> ObservedPairs:
        """The pairs after the clock was set back to ``now_ms``."""
        return replace(
            self,
            until_ms=np.minimum(self.until_ms, now_ms),
            own_at_ms=np.minimum(self.own_at_ms, now_ms),
        )

    def columns(self) -> dict[str, Any]:
        """Columns of a table, for the state as bytes."""
        named: dict[str, Any] = {"broker_name": [self.brokers[at] for at in self.broker.tolist()]}
        for name in _ARRAYS:
            array = getattr(self, name)
            if array.ndim == 1:
                named[name] = array
            else:
                named |= {f"{name}_{place}": row for place, row in enumerate(array)}
        del named["broker"]
        return named

    @staticmethod
    def from_columns(columns: Mapping[str, Any]) -> ObservedPairs:
        """The pairs whose ``columns`` these are."""
        names = columns["broker_name"].to_pylist()
        brokers = tuple(sorted(set(names)))
        index = {name: place for place, name in enumerate(brokers)}
        arrays: dict[str, Any] = {
            "broker": np.array([index[name] for name in names], np.int64),
            **{
                name: columns[name]
                if name in columns
                else np.stack([columns[f"{name}_{place}"] for place in range(BASIC)])
                for name in _ARRAYS
                if name != "broker"
            },
        }
        return ObservedPairs(brokers, **arrays)


_ARRAYS: Final = tuple(each.name for each in fields(ObservedPairs) if each.name != "brokers")


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
    new = (pairs.find(broker, ids) < 0) & (find(shard.groups.ids, ids) >= 0)
    if not new.any():
        return pairs
    by_group = np.unique(np.stack([ids[new], broker[new]]), axis=1)
    zeros, nothing = np.zeros(by_group.shape[1], np.int64), np.zeros((BASIC, by_group.shape[1]))
    fresh = ObservedPairs(
        pairs.brokers,
        broker=by_group[1],
        group_id=by_group[0],
        sequence=zeros - 1,
        until_ms=zeros - 1,
        window_s=np.zeros(len(zeros)),
        observed_s=nothing,
        units=nothing,
        low=np.full_like(nothing, np.inf),
        high=nothing,
        own_at_ms=zeros - 1,
        own_usage=nothing.copy(),
        misses=zeros.copy(),
    )
    lease = fresh.leases_in(shard)
    leased = np.flatnonzero(lease >= 0)
    fresh.own_at_ms[leased] = shard.leases.seen_at_ms[lease[leased]]
    fresh.own_usage[:, leased] = shard.leases.usage[:BASIC, lease[leased]]
    reported = round_.now_ms - fresh.own_at_ms[leased] <= config.stale_after_ms
    fresh.misses[leased] = np.where(reported, MOST_MISSES, 0)
    joined = map_arrays(lambda *arrays: np.concatenate(arrays, axis=-1), pairs, fresh)
    return joined.take(np.lexsort((joined.broker, joined.group_id)))


def observed_ones(headers: pa.Table) -> BoolArray:
    """(r,) reports that the enforcer made, not the broker."""
    if "observed" not in headers.column_names:
        return np.zeros(len(headers), bool)
    observed: BoolArray = headers["observed"].to_numpy()
    return observed
