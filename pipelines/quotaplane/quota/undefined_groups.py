"""Undefined groups: groups that brokers report, but that are not in the table of quotas.

On the first day of an installation that may be every group of every broker, in every report. So the
step emits one dead letter per broker, group and hour, with the number of reports it stands for. The
bookkeeping is part of a shard's state, so that a batch that runs again emits the same letters.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrays import taken
from quotaplane.arrow import one_chunk
from quotaplane.model import BoolArray, IntArray

QUIET_MS: Final = 3_600_000
"""Time between two letters on the same broker and group."""
MOST_PAIRS: Final = 300_000
"""Most pairs of a broker and a group that a shard tracks one by one. All others, be they real or
invented, share one letter."""
MOST_BYTES: Final = 1 << 20
"""Most bytes of letters that a round emits; the others wait for the next report."""
_LETTER_BYTES: Final = 64
"""Size of a letter without the names."""
_OTHERS: Final = np.uint64(0)
"""The key of all pairs beyond ``MOST_PAIRS``."""

_U64 = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class UndefinedGroups:
    """The n tracked pairs of a broker and a group, sorted by key; arrays have shape (n,).

    A pair is dropped ``QUIET_MS`` after the time until which it is quiet.
    """

    key: _U64 = field(default_factory=lambda: np.empty(0, np.uint64))
    """Digest of broker and group."""
    quiet_until_ms: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    """No letter is emitted before this time."""
    reports: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    """Reports that named the pair since its last letter."""

    def __len__(self) -> int:
        return len(self.key)

    @property
    def others(self) -> BoolArray:
        """(n,) the one that stands for all pairs beyond ``MOST_PAIRS``."""
        others: BoolArray = self.key == _OTHERS
        return others

    def next(
        self,
        entries: pa.Table | None,
        now_ms: int,
        *,
        most_pairs: int = MOST_PAIRS,
        most_bytes: int = MOST_BYTES,
    ) -> tuple[UndefinedGroups, pa.Table | None]:
        """Count a round's entries of undefined groups: the new bookkeeping, and the letters.

        ``entries``: see ``report_tables.undefined_entries``; a group that was reported by id alone
        has a null name. Letters are rows of it with two more columns: the count ``reports``, and
        ``others``, which marks the letter that stands for all pairs beyond ``most_pairs``.
        """
        recent = self.quiet_until_ms + QUIET_MS > now_ms
        kept = self if recent.all() else taken(self, recent)
        if entries is None or not len(entries):
            return kept, None
        pair = _keys(entries)
        key, first, count = np.unique(pair, return_index=True, return_counts=True)
        new = key[~np.isin(key, kept.key, assume_unique=True)]
        if len(new) > most_pairs - len(kept):
            beyond = np.isin(pair, new[max(most_pairs - len(kept), 0) :])
            pair[beyond] = _OTHERS
            key, first, count = np.unique(pair, return_index=True, return_counts=True)
            new = key[~np.isin(key, kept.key, assume_unique=True)]
        after = kept._with_pairs(new, now_ms)
        index = np.searchsorted(after.key, key)
        after.reports[index] += count

        due = np.flatnonzero(after.quiet_until_ms[index] <= now_ms)
        size = np.full(len(due), _LETTER_BYTES)
        for name in ("broker", "group"):
            texts = entries[name].take(pa.array(first[due])).cast(pa.string())
            size += pc.binary_length(texts).fill_null(0).to_numpy()
        due = due[np.cumsum(size) <= most_bytes]
        letters = entries.take(pa.array(first[due]))
        letters = letters.append_column("reports", pa.array(after.reports[index[due]]))
        letters = letters.append_column("others", pa.array(key[due] == _OTHERS))
        after.quiet_until_ms[index[due]], after.reports[index[due]] = now_ms + QUIET_MS, 0
        return after, letters

    def _with_pairs(self, new: _U64, now_ms: int) -> UndefinedGroups:
        """A copy with new pairs, for which a letter is due at once."""
        order = np.argsort(np.concatenate([self.key, new]), kind="stable")
        zeros = np.zeros(len(new), np.int64)
        return UndefinedGroups(
            np.concatenate([self.key, new])[order],
            np.concatenate([self.quiet_until_ms, zeros + now_ms])[order],
            np.concatenate([self.reports, zeros])[order],
        )


def _keys(entries: pa.Table) -> _U64:
    """A 64-bit key for each entry's (broker, group).

    Among 300,000 pairs two have the same key in 1 of 400 million cases; then one gets no letter.
    """
    coded = one_chunk(entries["broker"])
    if not pa.types.is_dictionary(coded.type):
        coded = coded.dictionary_encode()
    code = coded.indices.to_numpy()
    broker = np.zeros(len(coded.dictionary), np.uint64)
    for index in np.unique(code).tolist():
        name = coded.dictionary[index].as_py().encode()
        broker[index] = int.from_bytes(hashlib.sha256(name).digest()[:8], "big")
    mixed: _U64 = entries["group_id"].to_numpy().astype(np.uint64) ^ broker[code]
    return np.maximum(mixed, _OTHERS + np.uint64(1))
