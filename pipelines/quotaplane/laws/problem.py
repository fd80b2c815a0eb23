"""The input and the result of a law: one dimension of many groups at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

from quotaplane.laws.reason import ReasonArray
from quotaplane.model import BoolArray, FloatArray, IntArray

Selection: TypeAlias = slice | IntArray | BoolArray


@dataclass(frozen=True, slots=True)
class Problem:
    """One dimension of g groups with n rows in all; a row is one broker of one group.

    The rows of group i are ``starts[i]:starts[i + 1]``; a group may have none. Rates are per
    second. No value may be NaN or negative; the caller has checked that. (The laws' guarantees hold
    for rates that are 0 or between 1e-100 and 1e100.)
    """

    starts: IntArray
    """(g + 1,) from 0 to n."""
    quota: FloatArray
    """(g,); inf: unlimited."""
    usage: FloatArray
    """(n,) measured usage."""
    limit: FloatArray
    """(n,) the limit that was in force; inf: none."""
    demand: FloatArray
    """(n,) estimated usage without any limit; inf: saturated, so not known."""
    weight: FloatArray
    """(n,) above 0; only ratios within a group matter."""
    floor: FloatArray
    """(n,) guaranteed limit, independent of the demand."""
    ceiling: FloatArray | None = None
    """(n,) highest limit; inf: no bound; None: all inf."""
    priority: IntArray | None = None
    """(n,) higher priorities are served first; None: all equal."""

    def part(self, starts: IntArray, groups: Selection, rows: Selection) -> Problem:
        """Some of the groups, with all their rows, as a problem.

        ``starts`` are the new ones, from 0; ``groups`` and ``rows`` select, in order.
        """
        return Problem(
            starts=starts,
            quota=self.quota[groups],
            usage=self.usage[rows],
            limit=self.limit[rows],
            demand=self.demand[rows],
            weight=self.weight[rows],
            floor=self.floor[rows],
            ceiling=None if self.ceiling is None else self.ceiling[rows],
            priority=None if self.priority is None else self.priority[rows],
        )


class Allocation(NamedTuple):
    """A law's result, by row."""

    limits: FloatArray
    """(n,); inf exactly if the group's quota is inf."""
    reasons: ReasonArray
    """(n,) codes of ``laws.reason.Reason``."""


Law = Callable[[Problem], Allocation]
"""A pure function: equal problems give equal allocations, bit for bit."""
