"""What a law is given and what it answers: one dimension of many groups at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from quotaplane.laws.reason import ReasonArray
from quotaplane.model import FloatArray, IntArray


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


class Allocation(NamedTuple):
    """A law's answer, row by row."""

    limits: FloatArray
    """(n,); inf exactly where the group's quota is."""
    reasons: ReasonArray
    """(n,) codes of ``laws.reason.Reason``."""


Law = Callable[[Problem], Allocation]
"""A pure function; the same problem always gets the same answer, bit for bit."""
