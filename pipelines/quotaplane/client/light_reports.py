"""Light reports: which groups a broker names in its next report, as little changed in the others.

The rule is PIP-82's: a group is named when its usage changed significantly, and each one once in
``named_every`` reports. docs/reference/wire.md, Light reports, has the whole rule and why; the
plugin for Kafka (LightRule.java) names the same groups in the same reports.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.model import DIMENSIONS, BoolArray, FloatArray, IntArray

NAMED_EVERY: Final = 16
"""A job that starts without its state has seen every group of a broker after so many reports, and
of their limits; those hold for a lease."""

SIGNIFICANT: Final = 0.05
"""Part of a rate by which it may change without being reported again."""

SETTLED: Final = 32
"""Reports that name a group after it changed. By then the job's estimates of its demand and noise
have settled, if its usage is constant."""

_SATURATED: Final = 0.9
"""Part of its limit from which usage counts as held back, if refusals are not counted."""

_D: Final = len(DIMENSIONS)


class LightReports:
    """The latest words of a broker's reports about each of its n groups, in the broker's order.

    >>> light = LightReports(named_every=4)
    >>> light.add(3)
    >>> used, ids = np.zeros((3, len(DIMENSIONS))), np.array([0, 1, 2])
    >>> unlimited, seqs = used + np.inf, np.zeros(3, int)
    >>> for sequence in range(1, 1 + SETTLED):
    ...     _ = light.chosen(used, None, unlimited, seqs, ids, sequence)
    ...     light.sent()
    >>> used[0] = 100.0
    >>> light.chosen(used, None, unlimited, seqs, ids, 42)  # one changed, another one is in turn
    array([ True, False,  True])
    """

    def __init__(self, named_every: int, *, acknowledges: bool = False) -> None:
        """``acknowledges``: a renewed limit is acknowledged, too, as ``strict`` needs it."""
        self.named_every = named_every
        self._acknowledges = acknowledges
        self._usage: FloatArray = np.empty((0, _D))
        """NaN: not said."""
        self._limits: FloatArray = np.empty((0, _D))
        self._seqs: IntArray = np.empty(0, np.int64)
        self._quiet: IntArray = np.empty(0, np.int64)
        """Reports since the group changed."""
        self._due: BoolArray = np.empty(0, bool)
        """A report will name it, or did, but was not sent."""
        self._next: tuple[FloatArray, FloatArray, IntArray, IntArray]

    def add(self, groups: int) -> None:
        """The broker has so many groups more, which come last."""
        unsaid = np.full((groups, _D), np.nan)
        self._usage = np.concatenate([self._usage, unsaid])
        self._limits = np.concatenate([self._limits, unsaid])
        self._seqs = np.append(self._seqs, np.full(groups, -1))
        self._quiet = np.append(self._quiet, np.full(groups, SETTLED))
        self._due = np.append(self._due, np.ones(groups, bool))

    @property
    def said(self) -> BoolArray:
        """(n,) the groups that some report named."""
        return np.asarray(~np.isnan(self._usage).all(axis=1))

    def keep(self, stays: BoolArray) -> None:
        """The broker has only these of its groups (n,)."""
        self._usage, self._limits = self._usage[stays], self._limits[stays]
        self._seqs, self._quiet = self._seqs[stays], self._quiet[stays]
        self._due = self._due[stays]

    def restart(self) -> None:
        """The broker began anew: its next reports name all groups."""
        self._due[:], self._quiet[:] = True, 0

    def chosen(
        self,
        usage: FloatArray,
        throttled: FloatArray | None,
        limits: FloatArray,
        seqs: IntArray,
        ids: IntArray,
        sequence: int,
    ) -> BoolArray:
        """(n,) the groups that the report of this number names.

        They are due until ``sent`` is called: a report that was not sent said nothing.

        Args:
            usage: (n, d) per second; NaN: not measured.
            throttled: (n, d) refused or delayed per second; None: not counted.
            limits: (n, d) in force.
            seqs: (n,) the rounds that these are from.
            ids: (n,) of the groups.
            sequence: number of the report.
        """
        before = np.nan_to_num(self._usage)
        changed = np.abs(usage - before) > SIGNIFICANT * before
        if throttled is None:
            changed |= (usage > 0.0) & (usage >= _SATURATED * limits)
        else:
            changed |= (throttled > 0.0) | (usage > limits)
        quiet = np.where(changed.any(axis=1), 0, self._quiet + 1)
        named: BoolArray = self._due | (quiet < SETTLED) | (limits != self._limits).any(axis=1)
        named |= ids % self.named_every == sequence % self.named_every
        if self._acknowledges:
            named |= seqs != self._seqs
        self._due = named
        newest = np.where(np.isnan(usage), self._usage, usage)
        self._next = newest, limits, seqs, quiet
        return named

    def sent(self) -> None:
        """The report was sent: its groups are said."""
        named, (usage, limits, seqs, self._quiet) = self._due, self._next
        self._usage[named], self._limits[named] = usage[named], limits[named]
        self._seqs[named] = seqs[named]
        self._due = np.zeros(len(named), bool)
