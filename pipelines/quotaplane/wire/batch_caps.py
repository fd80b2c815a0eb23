"""Caps on how much of a batch is read: entries, new names, and reports of a broker.

They bound time and memory by the size of the batch, or by a constant, whatever its content.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.model import BoolArray, IntArray
from quotaplane.wire.raw import U64

BYTES_PER_ENTRY: Final = 24
"""A report may have one entry per so many of its bytes. In a stock report, a group with a name of
20 characters takes that much if nothing changed, and about 40 with publish counts."""

EVEN_ENTRIES: Final = 500_000
"""Further entries, divided evenly between the reports of a batch, because names may be short. A
batch from Spark has at most 100 reports, so each gets 5,000."""

SPARE_ENTRIES: Final = 200_000
"""Further entries, shared by the reports of a batch that need still more."""

LEAST_STOCK, LEAST_OWN, LEAST_ID = 6, 4, 8
"""Bytes of the smallest entry: ``12 LEN 0a LEN`` or ``42 LEN`` with a name of two bytes, or an id.
A report with smaller entries on average has empty or repeated names."""

_SHORTER: Final = 95
"""Number of printable names of one byte."""

NEW_NAMES: Final = 200_000
"""Names per batch, new to this process, that are turned into ids (a SHA-256 each). 16 MB of the
reports of the largest cluster that was measured, with 300,000 groups, have 184,000 names."""


class BatchCaps:
    """The remaining capacity of one batch of ``reports``.

    Other reports of the batch can make a report exceed a cap only if it has more entries than its
    size allows plus its part of ``EVEN_ENTRIES``.

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
        """Whether any of some reports, with these sums of entries and bytes, could be refused."""
        return entries > min(self.most_entries, size // BYTES_PER_ENTRY)

    def refuse(self, entries: IntArray, size: IntArray, least: int) -> BoolArray:
        """For each report, by its entries and bytes, whether it has too many entries.

        ``least``: bytes of the smallest entry in the format.
        """
        refused = (entries > self.most_entries) | (entries > (size + _SHORTER) // least)
        allowed = size // BYTES_PER_ENTRY + self._each
        excess = np.where(refused, 0, np.maximum(entries - allowed, 0))
        order = np.argsort(excess, kind="stable")  # serve the smallest needs first
        needed = np.cumsum(excess[order])
        refused[order[(needed > self._spare) & (excess[order] > 0)]] = True
        self._spare -= int(excess[~refused].sum())
        return refused

    def refuses(self, entries: int, size: int, least: int) -> bool:
        """The same for one report."""
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
    """Which reports are among the newest ``most`` of their broker (given by ``code``).

    >>> newest(np.array([0, 0, 1, 0]), *np.array([[5, 5, 1, 4], [1, 2, 1, 9], [0] * 4]), 2).tolist()
    [True, True, True, False]
    """
    if not len(code) or np.bincount(code).max() <= most:
        return np.ones(len(code), bool)
    return newer_reports(code, started, sequence, published) < most


def newer_reports(
    code: IntArray, started: IntArray | U64, sequence: IntArray | U64, published: IntArray
) -> IntArray:
    """How many newer reports of its broker (given by ``code``) there are for each report.

    >>> newer_reports(np.array([0, 0, 1, 0]), *np.array([[5, 5, 1, 4], [1, 2, 1, 9], [0] * 4]))
    array([1, 0, 0, 2])
    """
    newer = np.zeros(len(code), np.int64)
    order = np.lexsort((published, sequence, started, code))
    code = code[order]
    ends = np.flatnonzero(np.r_[code[1:] != code[:-1], True]) if len(code) else np.empty(0, int)
    newer[order] = np.repeat(ends, np.diff(ends, prepend=-1)) - np.arange(len(code))
    return newer
