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

from quotaplane.model import DIMENSIONS, RATE_COLUMNS, BoolArray, IntArray
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
        self._limit, self._changed = np.full((2, _D, 0), np.inf)
        self._used = np.zeros((_D, 0))
        self._less, self._less_ms, self._more, self._more_ms = np.zeros((4, _D, 0))
        self._first_ms, self._last_ms = np.full((2, _D, 0), np.nan)
        self._limit_ms, self._changed_ms, self._both_ms = np.zeros((3, _D, 0))

    def pass_time(self, begin_ms: float, end_ms: float) -> None:
        """Add the present limits and usage, times the time from ``begin_ms`` to ``end_ms``."""
        passed = end_ms - begin_ms
        less, more = less_and_more(self._used, self._limit, self._changed)
        self._less += less * passed / 1000.0
        self._more += more * passed / 1000.0
        self._less_ms += (less > 0) * passed
        self._more_ms += (more > 0) * passed
        self._first_ms = np.where((less > 0) & np.isnan(self._first_ms), begin_ms, self._first_ms)
        self._last_ms = np.where(less > 0, end_ms, self._last_ms)
        both: BoolArray = np.isfinite(self._limit) & np.isfinite(self._changed)
        self._limit_ms += np.where(both, self._limit, 0.0) * passed
        self._changed_ms += np.where(both, self._changed, 0.0) * passed
        self._both_ms += both * passed

    def take(self, recorded: Played, changed: Played) -> None:
        """Set the limits and the usage from this round on."""
        for limits, into in ((recorded.limits, "_limit"), (changed.limits, "_changed")):
            if not len(limits):
                continue
            at = self._places(limits)
            now = getattr(self, into)
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
        fill = {"_limit": np.inf, "_changed": np.inf, "_first_ms": np.nan, "_last_ms": np.nan}
        for name, array in vars(self).items():
            if isinstance(array, np.ndarray):
                more = np.full((_D, len(new)), fill.get(name, 0.0))
                setattr(self, name, np.concatenate([array, more], axis=1))

    def table(self) -> pa.Table:
        """The answer of ``what_if``."""
        sums = Totals(**{name: getattr(self, f"_{name}") for name in Totals._fields})
        return differences(self._groups, self._brokers, sums)
