"""Runs recorded rounds again with another law, other settings or other quotas, and compares.

The recorded usage does not change: a broker with a higher limit does not use more, and one with a
lower limit not less. So limits are exact, and the answer has the part of the recorded usage that a
lower limit would not have allowed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import DIMENSIONS, RATE_COLUMNS, BoolArray, FloatArray, IntArray
from quotaplane.replay.differences import Totals, differences, less_and_more
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
