"""How much of a batch is read, whatever is in it: caps on entries, names, and reports of a broker.

Time and memory go by these, so each is bounded by the bytes of the batch, or by a number.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.model import BoolArray, IntArray
from quotaplane.wire.raw import U64

BYTES_AN_ENTRY: Final = 24
"""A report with fewer bytes an entry than this draws on the batch's spare entries. A name of 20
characters takes so many where nothing changed, and about 40 with what was published."""

BYTES_AN_ID: Final = 16
"""The same for a report by id: one column beside the ids takes so many."""

SPARE_ENTRIES: Final = 200_000
"""What the reports of a batch may have together beyond that."""

NEW_NAMES: Final = 300_000
"""So many names that this process has not seen before become ids in a batch, each by a SHA-256."""


class Caps:
    """What may still be read of a batch; a new one for each batch.

    Reports with entries of ordinary size are never refused for what others in the batch have.

    >>> caps = Caps(most_entries=1_000_000)
    >>> caps.refuse(np.array([50, 400_000, 100_000]), np.array([1200, 2_400_000, 24])).tolist()
    [False, True, False]
    """

    def __init__(self, most_entries: int) -> None:
        self.most_entries = most_entries
        self.new_names = NEW_NAMES
        self._spare = SPARE_ENTRIES

    def might_refuse(self, entries: int, size: int, each: int = BYTES_AN_ENTRY) -> bool:
        """Whether any of some reports, with so many entries in so many bytes, could be refused."""
        return entries > min(self.most_entries, size // each)

    def refuse(self, entries: IntArray, size: IntArray, each: int = BYTES_AN_ENTRY) -> BoolArray:
        """For each report, with so many entries in so many bytes, whether that is too much."""
        refused = entries > self.most_entries
        excess = np.where(refused, 0, np.maximum(entries - size // each, 0))
        order = np.argsort(excess, kind="stable")  # what needs least is served first
        served = np.cumsum(excess[order])
        refused[order[(served > self._spare) & (excess[order] > 0)]] = True
        self._spare -= int(excess[~refused].sum())
        return refused

    def refuses(self, entries: int, size: int, each: int = BYTES_AN_ENTRY) -> bool:
        """The same for a single report."""
        if not self.might_refuse(entries, size, each):
            return False
        return bool(self.refuse(np.array([entries]), np.array([size]), each).any())


def newest(
    code: IntArray,
    started: IntArray | U64,
    sequence: IntArray | U64,
    published: IntArray,
    most: int,
) -> BoolArray:
    """Which reports are among the newest ``most`` of their broker (a ``code`` each).

    >>> newest(np.array([0, 0, 1, 0]), *np.array([[5, 5, 1, 4], [1, 2, 1, 9], [0] * 4]), 2).tolist()
    [True, True, True, False]
    """
    kept = np.ones(len(code), bool)
    if not len(code) or np.bincount(code).max() <= most:
        return kept
    order = np.lexsort((published, sequence, started, code))
    code = code[order]
    ends = np.flatnonzero(np.r_[code[1:] != code[:-1], True])
    newer = np.repeat(ends, np.diff(ends, prepend=-1)) - np.arange(len(code))
    kept[order[newer >= most]] = False
    return kept
