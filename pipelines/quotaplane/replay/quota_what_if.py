"""Runs recorded rounds again with another law, other settings or other quotas, and compares.

The recorded usage does not change: a broker with a higher limit does not use more, and one with a
lower limit not less. So limits are exact, and the answer has the part of the recorded usage that a
lower limit would not have allowed. The quick what-if compares limits by the same rule.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.groups.standing import AT_LIMIT
from quotaplane.model import DIMENSIONS, RATE_COLUMNS, BoolArray, FloatArray, IntArray
from quotaplane.replay.player import Changes, Played, Player
from quotaplane.replay.recorded import recorded_rounds
from quotaplane.settings import History

_D: Final = len(DIMENSIONS)


def what_if(history: History, since: datetime, until: datetime, changes: Changes) -> pa.Table:
    """Compare the recorded rounds with rounds under ``changes``.

    Returns:
        A row per group, broker and dimension for which anything differs, the greatest loss first:
        ``group``, ``broker``, ``dimension``; ``limit_per_s`` and ``changed_limit_per_s``, means
        over the time in which both are finite (null: never); ``less_units``, units used above the
        changed limit; ``less_s``, for how long; ``first_less_at``, ``last_less_at``;
        ``more_units``, further units possible while the broker was at its limit; ``more_s``.

    Raises:
        InputError, ConfigError, HistoryError: as ``recorded_rounds`` and ``Player.play``.
    """
    recorded, changed, sums = Player(), Player(changes), _Sums()
    before_ms: int | None = None
    since_ms = since.timestamp() * 1000
    for rounds in recorded_rounds(history, since, until):
        for ours, theirs in zip(recorded.play(rounds), changed.play(rounds), strict=True):
            now_ms = ours.stamp.now_ms
            if before_ms is not None and now_ms > since_ms:
                sums.pass_time(max(before_ms, since_ms), now_ms)
            before_ms = now_ms
            sums.take(ours, theirs)
    return sums.table()


class _Sums:
    """Limits, usage and sums of n pairs of a broker and a group, in all dimensions (d, n)."""

    def __init__(self) -> None:
        self._pairs = pa.array([], pa.string())
        self._brokers: list[str] = []
        self._groups: list[str] = []
        self._limits: FloatArray = np.full((2, _D, 0), np.inf)
        """Recorded, and changed."""
        self._used: FloatArray = np.zeros((_D, 0))
        self._sums = _nothing(0)

    def pass_time(self, begin_ms: float, end_ms: float) -> None:
        """Add the present limits and usage, times the time from ``begin_ms`` to ``end_ms``."""
        passed = end_ms - begin_ms
        limit, changed = self._limits
        less, more = less_and_more(self._used, limit, changed)
        both: BoolArray = np.isfinite(limit) & np.isfinite(changed)
        sums = self._sums
        self._sums = Totals(
            less=sums.less + less * passed / 1000.0,
            less_ms=sums.less_ms + (less > 0) * passed,
            more=sums.more + more * passed / 1000.0,
            more_ms=sums.more_ms + (more > 0) * passed,
            first_ms=np.where((less > 0) & np.isnan(sums.first_ms), begin_ms, sums.first_ms),
            last_ms=np.where(less > 0, end_ms, sums.last_ms),
            limit_ms=sums.limit_ms + np.where(both, limit, 0.0) * passed,
            changed_ms=sums.changed_ms + np.where(both, changed, 0.0) * passed,
            both_ms=sums.both_ms + both * passed,
        )

    def take(self, recorded: Played, changed: Played) -> None:
        """Set the limits and the usage from this round on."""
        for which, limits in enumerate((recorded.limits, changed.limits)):
            if not len(limits):
                continue
            at = self._places(limits)
            now = self._limits[which]
            for place, name in enumerate(RATE_COLUMNS):
                rates = limits[name].fill_null(np.inf).to_numpy()
                now[place, at] = np.where(limits["ended"].to_numpy(), np.inf, rates)
        usage = recorded.usage
        if len(usage):
            at = self._places(usage)
            for place, name in enumerate(RATE_COLUMNS):
                if name in usage.column_names:
                    rates = usage[name].fill_null(np.nan).to_numpy()
                    self._used[place, at] = np.where(np.isnan(rates), self._used[place, at], rates)

    def _places(self, rows: pa.Table) -> IntArray:
        brokers, groups = (rows[n].cast(pa.string()) for n in ("broker", "resource_group"))
        pairs = pc.binary_join_element_wise(brokers, groups, "\0").combine_chunks()
        place = pc.index_in(pairs, value_set=self._pairs)
        if place.null_count:
            new = pc.unique(pairs.filter(place.is_null()))
            self._grow(new)
            place = pc.index_in(pairs, value_set=self._pairs)
        index: IntArray = place.to_numpy().astype(np.int64)
        return index

    def _grow(self, new: pa.StringArray) -> None:
        self._pairs = pa.concat_arrays([self._pairs, new])
        for pair in new.to_pylist():
            broker, _, group = pair.partition("\0")
            self._brokers.append(broker)
            self._groups.append(group)
        more = np.full((2, _D, len(new)), np.inf)
        self._limits = np.concatenate([self._limits, more], axis=2)
        self._used = np.concatenate([self._used, np.zeros((_D, len(new)))], axis=1)
        pairs = zip(self._sums, _nothing(len(new)), strict=True)
        self._sums = Totals(*(np.concatenate(pair, axis=1) for pair in pairs))

    def table(self) -> pa.Table:
        """Return the answer of ``what_if``."""
        return differences(self._groups, self._brokers, self._sums)


def _nothing(pairs: int) -> Totals:
    never = np.full((_D, pairs), np.nan)
    sums = Totals(*np.zeros((len(Totals._fields), _D, pairs)))
    return sums._replace(first_ms=never, last_ms=never)


def less_and_more(
    used: FloatArray, limit: FloatArray, changed: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The part of the usage that a changed limit does not allow, and the further usage it allows.

    All arrays have one shape. Usage above both limits counts as less only as far as the recorded
    limit allowed it. Only brokers that used their recorded limit may have used more.

    >>> used, limit = np.array([80.0, 50.0, 10.0]), np.array([100.0, 50.0, 50.0])
    >>> less_and_more(used, limit, np.array([60.0, 70.0, 70.0]))
    (array([20.,  0.,  0.]), array([ 0., 20.,  0.]))
    """
    less = np.maximum(np.minimum(used, limit) - changed, 0.0)
    with np.errstate(invalid="ignore"):  # unlimited both before and after
        higher = np.maximum(changed - limit, 0.0)
    more = np.where((used >= AT_LIMIT * limit) & np.isfinite(higher), higher, 0.0)
    return less, more


class Totals(NamedTuple):
    """Sums over time of n pairs of a group and a broker, by dimension: arrays (d, n)."""

    less: FloatArray
    """Units used above the changed limit."""
    less_ms: FloatArray
    more: FloatArray
    """Further units that the changed limit would have allowed."""
    more_ms: FloatArray
    first_ms: FloatArray
    """Time of the first usage above the changed limit; NaN: never."""
    last_ms: FloatArray
    limit_ms: FloatArray
    """Recorded limit times duration, while both limits are finite."""
    changed_ms: FloatArray
    """Changed limit times duration, while both limits are finite."""
    both_ms: FloatArray
    """Duration during which both limits are finite."""


def differences(groups: Sequence[str], brokers: Sequence[str], totals: Totals) -> pa.Table:
    """A row for each pair and dimension in which anything differs, the greatest loss first.

    ``groups`` and ``brokers`` (n,) are the names of the pairs; ``quota_what_if.what_if`` describes
    the columns.
    """
    differs = (totals.less > 0) | (totals.more > 0)
    differs |= np.abs(totals.limit_ms - totals.changed_ms) > 1e-9 * totals.limit_ms
    dimension, pair = np.nonzero(differs)
    order = np.lexsort((-totals.more[dimension, pair], -totals.less[dimension, pair]))
    dimension, pair = dimension[order], pair[order]

    def at(array: FloatArray) -> FloatArray:
        values: FloatArray = array[dimension, pair]
        return values

    both = np.maximum(at(totals.both_ms), 1e-9)
    never = at(totals.both_ms) == 0
    return pa.table(
        {
            "group": _named(groups, pair),
            "broker": _named(brokers, pair),
            "dimension": _named(DIMENSIONS, dimension),
            "limit_per_s": pa.array(at(totals.limit_ms) / both, mask=never),
            "changed_limit_per_s": pa.array(at(totals.changed_ms) / both, mask=never),
            "less_units": at(totals.less),
            "less_s": at(totals.less_ms) / 1000.0,
            "first_less_at": _times(at(totals.first_ms)),
            "last_less_at": _times(at(totals.last_ms)),
            "more_units": at(totals.more),
            "more_s": at(totals.more_ms) / 1000.0,
        }
    )


def _named(names: Iterable[str], index: IntArray) -> pa.Array:
    return pa.array(list(names), pa.string()).take(pa.array(index))


def _times(ms: FloatArray) -> pa.Array:
    return pa.array(ms, from_pandas=True).cast(pa.int64()).cast(pa.timestamp("ms", "UTC"))
