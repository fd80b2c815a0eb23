"""Dead letters: records of reports that can't be used, bounded in number whatever arrives.

For each reason the first reports have a letter of their own, and one more letter counts the others:
a flood of bad messages creates few letters, and no object per message.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import BoolArray, IntArray
from quotaplane.wire.reasons import NOT_BAD, STALE, UnusableReportError
from quotaplane.wire.shard_inputs import REJECTED

MOST_LETTERS: Final = 100
"""Letters per reason, batch and round that are about a single report."""
_MOST_RAW_BYTES: Final = 4 << 20
_MOST_LATE_BYTES: Final = 1 << 20
"""Raw bytes that letters contain, of all reasons but ``stale``, and of ``stale``. They all pass
through the driver, and a job that was down for an hour finds gigabytes of stale reports."""
_LEFT_OUT: Final = "; raw bytes left out, there are too many"


Senders = Callable[[Sequence[bytes]], Sequence[str | None]]
"""The broker that each report names; None: it can't be read."""


def _no_senders(values: Sequence[bytes]) -> Sequence[str | None]:
    return [None] * len(values)


@dataclass(frozen=True)
class _Letter:
    index: int
    reason: str
    detail: str
    bad: bool
    raw: bytes
    reports: int


class Letters:
    """The dead letters of a batch of n reports; ``senders`` reads brokers' names from reports."""

    def __init__(
        self,
        values: Sequence[bytes | None],
        times: IntArray,
        positions: Sequence[str],
        senders: Senders = _no_senders,
    ) -> None:
        self._senders = senders
        self._values, self._times, self._positions = values, times, positions
        self._usable = np.ones(len(values), bool)
        self._letters: list[_Letter] = []
        self._single_letters: Counter[tuple[str, bool]] = Counter()
        self._others: dict[tuple[str, bool], list[tuple[int, int, int, int]]] = {}

    @property
    def usable(self) -> BoolArray:
        """Which of the n reports were not refused so far."""
        return self._usable

    def refuse(self, which: IntArray, reason: str, detail: Callable[[int], str]) -> None:
        """Refuse whole reports, by ascending index; ``detail`` is called for only a few of them."""
        self._usable[which] = False
        bad = reason not in NOT_BAD
        self._record(which, reason, bad, lambda i: (detail(i), self._values[i] or b""))

    def refuse_one(self, index: int, error: UnusableReportError) -> None:
        """Refuse a whole report because of an error found while reading it."""
        self.refuse(np.array([index]), error.reason, lambda _: str(error))

    def refuse_entries(
        self, which: IntArray, reason: str, part: Callable[[int], tuple[str, bytes]]
    ) -> None:
        """Record bad entries of reports that are used otherwise, and so don't count as bad.

        ``part`` is called for only a few of them; it returns the detail and the refused part.
        """
        self._record(which, reason, False, part)

    def _record(
        self,
        which: IntArray,
        reason: str,
        bad: bool,
        describe: Callable[[int], tuple[str, bytes]],
    ) -> None:
        kind = reason, bad
        room = MOST_LETTERS - self._single_letters[kind]
        for index in which[:room].tolist():
            detail, raw = describe(index)
            self._letters.append(_Letter(index, reason, detail, bad, raw, 1))
        self._single_letters[kind] += min(room, len(which))
        if len(which) > room:  # count, first and last index, and time of the others
            rest = which[room:]
            summary = len(rest), int(rest[0]), int(rest[-1]), median_time_ms(self._times[rest])
            self._others.setdefault(kind, []).append(summary)

    def table(self) -> pa.Table:
        """The letters in the order of their reports, as ``shard_inputs.REJECTED``."""
        letters = sorted(self._letters, key=lambda letter: letter.index)
        times = [int(self._times[letter.index]) for letter in letters]
        for (reason, bad), parts in self._others.items():
            counts, first, last, at_ms = np.array(parts, np.int64).T
            total = int(counts.sum())
            detail = others(total, self._positions[int(last.max())])
            letters.append(_Letter(int(first.min()), reason, detail, bad, b"", total))
            times.append(median_time_ms(at_ms, counts))
        columns: dict[str, Any] = {
            "position": [self._positions[letter.index] for letter in letters],
            "published_at_ms": times,
            "reason": [letter.reason for letter in letters],
            "detail": [letter.detail for letter in letters],
            "counts_as_bad": [letter.bad for letter in letters],
            "reports": [letter.reports for letter in letters],
            "raw": [letter.raw for letter in letters],
            "sender": self._senders_of(letters),
        }
        return _with_less_raw(pa.table({name: columns[name] for name in REJECTED.names}, REJECTED))

    def _senders_of(self, letters: Sequence[_Letter]) -> list[str | None]:
        single = [place for place, letter in enumerate(letters) if letter.reports == 1]
        names = self._senders([self._values[letters[place].index] or b"" for place in single])
        found: list[str | None] = [None] * len(letters)
        for place, name in zip(single, names, strict=True):
            found[place] = name
        return found


def others(count: int, last: str) -> str:
    """The detail of a letter that stands for all reports without one."""
    return f"{count} more reports for this reason, the last one at {last}"


def median_time_ms(times_ms: IntArray, reports: IntArray | None = None) -> int:
    """The median publish time, with ``reports`` (n,) reports at each time, or one each.

    Negative times are unknown; -1 if all are. A letter that stands for many reports has their
    median time, so that a few exceptions don't determine it.

    >>> median_time_ms(np.array([5, 1000, -1]), np.array([2, 3, 9]))
    1000
    """
    known = times_ms >= 0
    times = times_ms[known]
    if not len(times):
        return -1
    if reports is None:
        middle = (len(times) - 1) // 2
        times.partition(middle)
        return int(times[middle])
    order = np.argsort(times, kind="stable")
    up_to = np.cumsum(reports[known][order])
    return int(times[order[np.searchsorted(2 * up_to, up_to[-1])]])


def condensed(letters: pa.Table) -> pa.Table:
    """Letters of several batches, cut to the number and raw bytes that one batch may have."""
    if len(letters) <= MOST_LETTERS:
        return _with_less_raw(letters)
    kind = pc.binary_join_element_wise(
        letters["reason"], letters["counts_as_bad"].cast(pa.string()), " "
    )
    code = kind.combine_chunks().dictionary_encode().indices.to_numpy()
    order = np.argsort(code, kind="stable")
    begins = np.flatnonzero(np.diff(code[order], prepend=-1))
    rank = np.empty(len(code), np.int64)
    rank[order] = np.arange(len(code)) - np.repeat(begins, np.diff(np.r_[begins, len(code)]))
    reports, times = (letters[name].to_numpy() for name in ("reports", "published_at_ms"))
    single = rank < MOST_LETTERS
    tables = [letters.filter(pa.array(single))]
    for kind_code in np.unique(code[~single]).tolist():
        rest = np.flatnonzero(~single & (code == kind_code))
        row = letters.slice(int(rest[0]), 1).to_pylist()[0]
        last = letters["position"][int(rest[-1])].as_py()
        count = int(reports[rest].sum())
        row |= {
            "detail": others(count, last),
            "published_at_ms": median_time_ms(times[rest], reports[rest]),
            "reports": count,
            "raw": b"",
            "sender": None,
        }
        tables.append(pa.Table.from_pylist([row], schema=REJECTED))
    return _with_less_raw(pa.concat_tables(tables))


def _with_less_raw(letters: pa.Table) -> pa.Table:
    """The letters without the raw bytes over the limit."""
    length = pc.binary_length(letters["raw"]).to_numpy().astype(np.int64)
    over = length > _MOST_RAW_BYTES  # too much by itself: does not count towards the sum below
    late = pc.equal(letters["reason"], STALE).to_numpy()
    for which, most in ((late, _MOST_LATE_BYTES), (~late, _MOST_RAW_BYTES)):
        counted = np.where(which & ~over, length, 0)
        over |= (counted > 0) & (np.cumsum(counted) > most)
    if not over.any():
        return letters
    mask = pa.array(over)
    detail = pc.if_else(
        mask, pc.binary_join_element_wise(letters["detail"], _LEFT_OUT, ""), letters["detail"]
    )
    raw = pc.if_else(mask, b"", letters["raw"])
    place = letters.schema.get_field_index
    letters = letters.set_column(place("detail"), REJECTED.field("detail"), detail)
    return letters.set_column(place("raw"), REJECTED.field("raw"), raw)


def reports_by_reason(letters: pa.Table) -> dict[str, int]:
    """Number of reports that letters stand for (columns ``reason`` and ``reports``)."""
    sums = letters.group_by("reason", use_threads=False).aggregate([("reports", "sum")])
    return dict(zip(sums["reason"].to_pylist(), sums["reports_sum"].to_pylist(), strict=True))
