"""Sums over the rows of each group (CSR) and values spread to them; sums that never overshoot."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from quotaplane.model import BoolArray, FloatArray, IntArray

EPS: Final = float(np.finfo(np.float64).eps)


class Segments:
    """The rows of each group.

    >>> rows = Segments(np.array([0, 2, 2, 3]))
    >>> rows.total(np.array([1.0, 2.0, 5.0]))
    array([3., 0., 5.])
    >>> rows.spread(np.array([10.0, 20.0, 30.0]))
    array([10., 10., 30.])
    """

    __slots__ = ("counts", "groups", "of_row", "slack")

    def __init__(self, starts: IntArray) -> None:
        self._set(np.diff(starts))

    def _set(self, counts: IntArray) -> None:
        self.counts = counts
        self.groups = len(counts)
        self.of_row: IntArray = np.repeat(np.arange(self.groups), counts)
        # Upper bound of the relative error when a group's limits are added in any order (n
        # roundings of half an eps), plus as much again for computing them.
        self.slack: FloatArray = ((2.0 * counts + 8.0) * EPS).astype(np.float64, copy=False)

    @property
    def safe_part(self) -> FloatArray:
        """(g,) the part of its quota that a group's limits add up to if they need rounding.

        At least half the slack is left, so the sum is always below the quota.
        """
        return 1.0 - 0.75 * self.slack

    def total(self, values: npt.NDArray[Any]) -> FloatArray:
        """(n,) -> (g,): the sum of each group's rows, 0 for an empty group.

        ``bincount``, not ``add.reduceat``: faster on small groups, and correct on empty ones.
        """
        sums = np.bincount(self.of_row, weights=values, minlength=self.groups)
        return sums.astype(np.float64, copy=False)  # no effect; for mypy

    def spread(self, per_group: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """(g,) -> (n,): each group's value on each of its rows."""
        return per_group.take(self.of_row)

    def keep(self, groups: BoolArray) -> tuple[Segments, IntArray]:
        """Only the chosen groups, and the indexes of their rows."""
        return self.pick(groups.take(self.of_row), groups, self.counts)

    def pick(
        self, chosen: BoolArray, groups: BoolArray, counts: IntArray | None = None
    ) -> tuple[Segments, IntArray]:
        """Only the chosen rows (n,), all of chosen groups (g,), and their indexes.

        ``counts`` (g,): number of chosen rows per group, if known.
        """
        at = np.flatnonzero(chosen)
        if counts is None:
            counts = np.bincount(self.of_row[at], minlength=self.groups)
        part = Segments.__new__(Segments)
        part._set(counts[groups])
        return part, at


def overshooting(
    rows: Segments, limits: FloatArray, total: FloatArray, quota: FloatArray
) -> BoolArray:
    """(g,): groups whose limits might exceed the quota if added in some order in floating point.

    Multiples of 2^-51 of the quota (rounded to a power of two) are added without rounding. So
    groups with only such limits, or with one limit, need only a sum up to the quota; others need
    slack.

    Args:
        rows: g groups with n rows.
        limits: (n,) finite.
        total: (g,) their sums.
        quota: (g,) finite.
    """
    _, exponent = np.frexp(quota)
    coarse = rows.spread(np.ldexp(1.0, exponent))
    rounded = (limits + coarse) - coarse != limits
    exact = (rows.total(rounded) == 0) | (rows.counts == 1)
    over: BoolArray = (total > quota) | (~exact & (total > quota * (1.0 - rows.slack / 2)))
    return over


def scale_down(
    rows: Segments, limits: FloatArray, quota: FloatArray, groups: BoolArray
) -> FloatArray:
    """Scale the chosen groups' limits so that their sum, in any order, is at most the quota."""
    total = rows.total(limits)
    factor = np.ones(rows.groups)
    np.divide(quota, total, out=factor, where=groups & (total > quota))
    factor[groups] *= 1.0 - rows.slack[groups]
    scaled: FloatArray = limits * rows.spread(factor)
    # Numbers near the smallest float (5e-324) have too few digits for that.
    over = groups & (rows.total(scaled) > quota)
    if over.any():
        scaled[rows.spread(over)] = 0.0
    return scaled
