"""What a law is given and what it answers: one dimension of many groups at once."""

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
    second. Nothing may be NaN or negative: whoever builds a problem has checked its inputs. (What
    laws promise holds for rates that are 0 or between 1e-100 and 1e100.)
    """

    starts: IntArray
    """(g + 1,) from 0 to n."""
    quota: FloatArray
    """(g,); inf = unlimited."""
    usage: FloatArray
    """(n,) what each broker measured."""
    limit: FloatArray
    """(n,) the limit that was in force; inf = never limited."""
    demand: FloatArray
    """(n,) what each would use if nothing limited it; inf = saturated, more than anybody knows."""
    weight: FloatArray
    """(n,) above 0; only ratios within a group matter."""
    floor: FloatArray
    """(n,) what a broker is guaranteed whatever its demand."""
    ceiling: FloatArray | None = None
    """(n,) what a broker may have at most, whatever is left over; inf = none; None = all inf."""
    priority: IntArray | None = None
    """(n,) whose demand is met first: the higher; None = all the same."""

    def part(self, starts: IntArray, groups: Selection, rows: Selection) -> Problem:
        """Some of the groups, with all their rows, as a problem of their own.

        ``starts`` is theirs, from 0 on; ``groups`` and ``rows`` pick them, in order.
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
    """A law's answer, row by row."""

    limits: FloatArray
    """(n,); inf exactly where the group's quota is."""
    reasons: ReasonArray
    """(n,) codes of ``laws.reason.Reason``."""


Law = Callable[[Problem], Allocation]
"""A pure function; the same problem always gets the same answer, bit for bit."""
