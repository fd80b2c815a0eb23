"""How much of a batch is read, whatever is in it: caps on entries, names, and reports of a broker.

Time and memory go by these, so each is bounded by the bytes of the batch, or by a number.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.model import BoolArray, IntArray
from quotaplane.wire.raw import U64

BYTES_AN_ENTRY: Final = 24
"""Every report may have an entry for so many of its bytes. A name of 20 characters takes so many in
a stock report where nothing changed, and about 40 with what was published."""

EVEN_ENTRIES: Final = 500_000
"""So many more are divided evenly between the reports of a batch, which no report can take from
another: names may be short. A batch from Spark has at most 100 reports, so each has 5,000."""

SPARE_ENTRIES: Final = 200_000
"""So many more are for the reports of a batch that need more than that, together."""

LEAST_STOCK, LEAST_OWN, LEAST_ID = 6, 4, 8
"""Bytes of the smallest entry: ``12 LEN 0a LEN`` or ``42 LEN`` with a name of two bytes, or an id.
A report in which entries take less has names that are empty, or repeats names."""

_SHORTER: Final = 95
"""So many printable names have one byte."""

NEW_NAMES: Final = 300_000
"""So many names that this process has not seen before become ids in a batch, each by a SHA-256."""


class BatchCaps:
    """The room that is left in a batch of so many ``reports``; each batch has one of its own.

    A report is refused for what others in the batch have only if it has more entries than its bytes
    allow and its even part of ``EVEN_ENTRIES`` together.

    >>> caps = BatchCaps(most_entries=1_000_000, reports=4)
    >>> entries = np.array([50, 400_000, 400_000, 9])
    >>> caps.refuse(entries, np.array([300, 3_000_000, 2_400_000, 9]), LEAST_STOCK).tolist()
    [False, False, True, False]
    """

    def __init__(self, most_entries: int, reports: int) -> None:
        self.most_entries = most_entries
        self.new_names = NEW_NAMES
        self._each = EVEN_ENTRIES // max(reports, 1)
        self._spare = SPARE_ENTRIES

    def might_refuse(self, entries: int, size: int) -> bool:
        """Whether any of some reports, with so many entries in so many bytes, could be refused."""
        return entries > min(self.most_entries, size // BYTES_AN_ENTRY)

    def refuse(self, entries: IntArray, size: IntArray, least: int) -> BoolArray:
        """For each report, with so many entries in so many bytes, whether that is too much.

        ``least``: bytes of the smallest entry in the format.
        """
        refused = (entries > self.most_entries) | (entries > (size + _SHORTER) // least)
        allowed = size // BYTES_AN_ENTRY + self._each
        excess = np.where(refused, 0, np.maximum(entries - allowed, 0))
        order = np.argsort(excess, kind="stable")  # what needs least is served first
        served = np.cumsum(excess[order])
        refused[order[(served > self._spare) & (excess[order] > 0)]] = True
        self._spare -= int(excess[~refused].sum())
        return refused

    def refuses(self, entries: int, size: int, least: int) -> bool:
        """The same for a single report."""
        if not self.might_refuse(entries, size):
            return False
        return bool(self.refuse(np.array([entries]), np.array([size]), least).any())


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
