"""Bounds of what a report topic may cost, whatever its messages contain.

They are applied at two places: to the bytes of messages before they are decoded (``streams.
sources``), and to the entries of a batch when these are counted. Bounds depend on sizes, not on
contents. docs/operate/security.md has the attack that each one answers, and measurements.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from quotaplane.model import BoolArray, IntArray
from quotaplane.settings import Reports

BYTES_PER_ENTRY: Final = 24
"""A report may have one entry per this many of its bytes. In a stock report, a group with a name of
20 characters takes that much if nothing changed, and about 40 with publish counts."""

BYTES_PER_MESSAGE: Final = 1024
"""A smaller message counts as this many bytes: each takes 50 to 200 microseconds to read."""

LEAST_STOCK, LEAST_OWN = 6, 4
"""Bytes of the smallest entry: ``12 LEN 0a LEN`` or ``42 LEN`` with a name of two bytes. A report
with smaller entries on average has empty or repeated names."""

_SHORTER: Final = 95
"""Number of printable names of one byte."""

MESSAGES_AT_ONCE: Final = 100
"""Messages that are decoded together."""


@dataclass(frozen=True)
class Intake:
    """The bounds of a report topic, derived from the settings once."""

    message_bytes: int = 8 << 20
    """Against one huge report: a longer message is not parsed."""
    task_bytes: int = 64 << 20
    """Against many reports: a task (a topic partition) decodes this much of a micro-batch. See
    ``BYTES_PER_ENTRY`` and ``BYTES_PER_MESSAGE``."""
    older_bytes: int = 1 << 20
    """Against a flood in one broker's name: beside the newest reports of each broker, older ones
    are read up to this many bytes, or half as many as the newest have together."""
    dense_entries: int = 750_000
    """Against many entries in few bytes: entries of a batch beyond one per ``BYTES_PER_ENTRY``."""
    new_names: int = 200_000
    """Against invented groups: names of a batch, new to this process, that are turned into ids (a
    SHA-256 each). 16 MB of reports of a cluster with 300,000 groups have 184,000 names."""

    @classmethod
    def of(cls, reports: Reports) -> Intake:
        """The bounds with these settings."""
        return cls(message_bytes=reports.max_report_bytes)


class DenseEntries:
    """The entries that ``reports`` reports of a batch may have beyond ``BYTES_PER_ENTRY``.

    Two thirds are divided evenly between the reports, because names may be short; the rest is for
    reports that need more, the smallest needs first.

    >>> dense = DenseEntries(Intake(), reports=4)
    >>> entries = np.array([50, 600_000, 600_000, 9])
    >>> dense.refuse(entries, np.array([300, 3_000_000, 6_400_000, 9]), LEAST_STOCK).tolist()
    [False, True, False, False]
    """

    def __init__(self, intake: Intake, reports: int) -> None:
        self._each = intake.dense_entries * 2 // (3 * max(reports, 1))
        self._spare = intake.dense_entries // 3

    def most(self, size: int) -> int:
        """The most entries that a report of ``size`` bytes may still have."""
        return size // BYTES_PER_ENTRY + self._each + self._spare

    def refuses(self, entries: int, size: int, least: int) -> bool:
        """Whether a report of ``size`` bytes has too many entries, of at least ``least`` bytes."""
        if entries * least > size + _SHORTER:
            return True
        excess = max(entries - size // BYTES_PER_ENTRY - self._each, 0)
        refused = excess > self._spare
        self._spare -= 0 if refused else excess
        return refused

    def refuse(self, entries: IntArray, size: IntArray, least: int) -> BoolArray:
        """(r,) the same for several reports."""
        refused = np.zeros(len(entries), bool)
        for report in np.argsort(entries - size // BYTES_PER_ENTRY, kind="stable").tolist():
            refused[report] = self.refuses(int(entries[report]), int(size[report]), least)
        return refused
