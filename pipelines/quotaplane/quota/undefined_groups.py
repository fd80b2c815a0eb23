"""Groups that brokers report and nobody defined: which of them were told, so that few are told.

On an ordinary first day that is every group of every broker, in every report. So a broker's use of
such a group is told once an hour, with the number of reports that named it since. What is kept for
that is part of a shard's state: a batch that is run again tells the same.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import BoolArray, IntArray

QUIET_MS: Final = 3_600_000
MOST_PAIRS: Final = 300_000
"""So many pairs of a broker and a group are told apart in a shard. What comes on top, be it of a
larger cluster or invented, is told together."""
MOST_BYTES: Final = 1 << 20
"""So many bytes of names are told in a round; what is not told yet waits for the next report."""
_LETTER_BYTES: Final = 64
"""What a letter takes beside the names."""
_OTHERS: Final = np.uint64(0)
"""In place of a pair: all that are beyond ``MOST_PAIRS``."""

_U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class UndefinedGroups:
    """A row for each (broker, group), sorted by ``key``, a digest of both; all have shape (n,).

    ``quiet_until_ms``: until then it is not told again; ``reports``: that named it since it was
    told. What nobody reported for as long after that is forgotten.
    """

    key: _U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    quiet_until_ms: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    reports: IntArray = field(default_factory=lambda: np.empty(0, np.int64))

    def __len__(self) -> int:
        return len(self.key)

    def next(
        self, entries: pa.Table | None, now_ms: int
    ) -> tuple[UndefinedGroups, pa.Table | None]:
        """Take in a round's entries of undefined groups: what to remember, and what to tell.

        ``entries`` has a column broker and the names ``group``, or null and a ``group_id``. What is
        told are rows of it with the count ``reports``; ``others`` marks one that stands for many.
        """
        kept = self._where(self.quiet_until_ms + QUIET_MS > now_ms)
        if entries is None or not len(entries):
            return kept, None
        pair = _keys(entries)
        key, first, count = np.unique(pair, return_index=True, return_counts=True)
        new = key[~np.isin(key, kept.key, assume_unique=True)]
        if len(new) > MOST_PAIRS - len(kept):
            beyond = np.isin(pair, new[max(MOST_PAIRS - len(kept), 0) :])
            pair[beyond] = _OTHERS
            key, first, count = np.unique(pair, return_index=True, return_counts=True)
            new = key[~np.isin(key, kept.key, assume_unique=True)]
        rows = kept._and(new, now_ms)
        at = np.searchsorted(rows.key, key)
        rows.reports[at] += count

        due = np.flatnonzero(rows.quiet_until_ms[at] <= now_ms)
        size = np.full(len(due), _LETTER_BYTES)
        for name in ("broker", "group"):
            texts = entries[name].take(pa.array(first[due])).cast(pa.string())
            size += pc.binary_length(texts).fill_null(0).to_numpy()
        due = due[np.cumsum(size) <= MOST_BYTES]
        told = entries.take(pa.array(first[due]))
        told = told.append_column("reports", pa.array(rows.reports[at[due]]))
        told = told.append_column("others", pa.array(key[due] == _OTHERS))
        rows.quiet_until_ms[at[due]], rows.reports[at[due]] = now_ms + QUIET_MS, 0
        return rows, told

    def _where(self, chosen: BoolArray) -> UndefinedGroups:
        if chosen.all():
            return self
        return UndefinedGroups(self.key[chosen], self.quiet_until_ms[chosen], self.reports[chosen])

    def _and(self, new: _U64, now_ms: int) -> UndefinedGroups:
        """A copy with these pairs, too, which may be told at once."""
        order = np.argsort(np.concatenate([self.key, new]), kind="stable")
        nothing = np.zeros(len(new), np.int64)
        return UndefinedGroups(
            np.concatenate([self.key, new])[order],
            np.concatenate([self.quiet_until_ms, nothing + now_ms])[order],
            np.concatenate([self.reports, nothing])[order],
        )


def _keys(entries: pa.Table) -> _U64:
    """64 bits of each entry's (broker, group). Of 300,000 any two are the same in 1 of 400 million
    cases, and then one of the two is not told.
    """
    coded = entries["broker"].combine_chunks()
    if not pa.types.is_dictionary(coded.type):
        coded = coded.dictionary_encode()
    if isinstance(coded, pa.ChunkedArray):
        coded = coded.chunk(0)
    code = coded.indices.to_numpy()
    broker = np.zeros(len(coded.dictionary), np.uint64)
    for index in np.unique(code).tolist():
        name = coded.dictionary[index].as_py().encode()
        broker[index] = int.from_bytes(hashlib.sha256(name).digest()[:8], "big")
    mixed: _U64 = entries["group_id"].to_numpy().astype(np.uint64) ^ broker[code]
    return np.maximum(mixed, _OTHERS + np.uint64(1))
