"""The numbers of each limit's reason: the text of ``explain`` is made from them, also years later.

A reason has a code (``Reason``) and up to eight numbers, which ``NUMBERS`` names. Numbers that are
0 at the end are left out. With the limit, the demand and the quota that the law was given, they are
all that ``explain.reason_text`` needs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from quotaplane.laws.problem import Allocation, Problem
from quotaplane.laws.reason import Reason
from quotaplane.laws.segments import Segments
from quotaplane.model import BoolArray, FloatArray, IntArray

NUMBERS: Final[dict[Reason, tuple[str, ...]]] = {
    Reason.FAIR_SHARE: (
        "shared_per_s",
        "sharing_brokers",
        "satisfied_brokers",
        "brokers_at_floor",
        "brokers_at_ceiling",
        "brokers_of_higher_priority",
        "weight",
        "sharing_weight",
    ),
    Reason.FLOOR: ("floor_per_s", "brokers_of_higher_priority"),
    Reason.FLOORS_CUT: ("floors_per_s", "floor_per_s"),
    Reason.EVEN: ("brokers", "weight", "weights"),
    Reason.RESIDUAL: ("usage_per_s", "used_per_s"),
    Reason.REDUCED: ("usage_per_s", "used_per_s"),
    Reason.STEALING: ("usage_per_s",),
    Reason.PROPORTIONAL: ("usage_per_s", "used_per_s"),
    Reason.MINIMUM: ("usage_per_s", "used_per_s"),
    Reason.CEILING: ("ceiling_per_s", "floor_per_s"),
    Reason.PRIORITY: ("brokers_of_higher_priority", "priority"),
    Reason.WAITING: ("law_reason_code", "law_limit_per_s"),
    Reason.STEP: ("law_reason_code", "law_limit_per_s"),
}
"""The meaning of a reason's numbers, in order; other reasons have none.

WAITING and STEP say what delays a limit; the numbers of the law's own reason follow theirs.
"""


class Ragged(NamedTuple):
    """n lists of numbers."""

    offsets: IntArray
    """(n + 1,) where each list begins in ``values``, and the end."""
    values: FloatArray
    """All numbers, list after list."""

    def row(self, row: int) -> list[float]:
        """One of the lists."""
        numbers: list[float] = self.values[self.offsets[row] : self.offsets[row + 1]].tolist()
        return numbers


def reason_numbers(
    problem: Problem,
    allocation: Allocation,
    rows: IntArray | None = None,
    delayed: BoolArray | None = None,
) -> Ragged:
    """The numbers of c limits.

    Args:
        problem: as the law was given it.
        allocation: the law's answer, n limits.
        rows: (c,) the limits, by their index; -1: no limit of the law, without numbers. None: all.
        delayed: (c,) something delays the limit: the law's reason and limit come first. None: none.

    >>> from quotaplane.laws import get_law, one_group
    >>> case = one_group(100, demand=[15, 500, 500])
    >>> answer = get_law("max_min")(case)
    >>> reason_numbers(case, answer).row(1)
    [85.0, 2.0, 1.0]
    >>> reason_numbers(case, answer, np.array([-1, 1]), np.array([False, True])).row(1)
    [4.0, 42.5, 85.0, 2.0, 1.0]
    """
    if rows is None:
        rows = np.arange(len(allocation.limits))
    codes = np.where(rows < 0, 0, allocation.reasons[rows])
    figures = _Figures(problem, allocation)
    size, parts = np.zeros(len(rows), np.int64), []
    for code, names in NUMBERS.items():
        chosen = np.flatnonzero(codes == code) if names[0] in _COLUMNS else ()
        if len(chosen):
            source = rows[chosen]
            numbers = [_COLUMNS[name](figures)[source] for name in names]
            for place, column in enumerate(numbers):
                size[chosen[column != 0]] = place + 1
            parts.append((chosen, numbers))
    first = 0 if delayed is None else 2 * delayed
    offsets = np.concatenate([[0], np.cumsum(size + first)])
    begin, values = offsets[:-1] + first, np.zeros(int(offsets[-1]))
    if delayed is not None:
        values[offsets[:-1][delayed]] = codes[delayed]
        values[offsets[:-1][delayed] + 1] = allocation.limits[rows[delayed]]
    for chosen, numbers in parts:
        for place, column in enumerate(numbers):
            has = size[chosen] > place
            values[begin[chosen[has]] + place] = column[has]
    return Ragged(offsets, values)


class _Figures:
    """Sums over the brokers of each group, for each of the n rows; computed when asked for."""

    def __init__(self, problem: Problem, allocation: Allocation) -> None:
        self.problem, self.allocation = problem, allocation
        self.segments = Segments(problem.starts)

    def total(self, values: npt.NDArray[Any]) -> FloatArray:
        """(n,) the sum over the row's group."""
        spread: FloatArray = self.segments.spread(self.segments.total(values))
        return spread

    def has(self, reason: Reason) -> BoolArray:
        matches: BoolArray = self.allocation.reasons == reason
        return matches

    @cached_property
    def higher(self) -> FloatArray:
        """Brokers of the group with a higher priority than the row's."""
        return self._above(self.problem.priority)

    @cached_property
    def above_sharing(self) -> BoolArray:
        """The row's priority is higher than that of the brokers with a fair share."""
        priority, count = self.problem.priority, len(self.allocation.limits)
        if priority is None:
            return np.zeros(count, bool)
        highest = np.full(self.segments.groups, np.iinfo(np.int64).min)
        saturated = self.has(Reason.FAIR_SHARE)
        np.maximum.at(highest, self.segments.of_row[saturated], priority[saturated])
        above: BoolArray = priority > self.segments.spread(highest)
        return above & (self.total(saturated) > 0)

    @cached_property
    def weighted(self) -> BoolArray:
        """The brokers of the row's group have different weights."""
        weight = self.problem.weight
        first = self.problem.starts[:-1][self.segments.of_row]
        return self.total(weight != weight[first]) > 0

    @cached_property
    def sharing_weight(self) -> FloatArray:
        return self.total(np.where(self.has(Reason.FAIR_SHARE), self.problem.weight, 0.0))

    @cached_property
    def shared(self) -> FloatArray:
        """The part of the quota that brokers with a fair share divide."""
        saturated = self.has(Reason.FAIR_SHARE)
        limits = self.allocation.limits
        others = self.total(np.where(saturated | np.isinf(limits), 0.0, limits))
        return np.maximum(self.segments.spread(self.problem.quota) - others, 0.0)

    def beside(self, reason: Reason) -> FloatArray:
        """Brokers with another reason, apart from those of a higher priority."""
        return self.total(self.has(reason) & ~self.above_sharing)

    def shown_weight(self, weight: FloatArray, of: FloatArray) -> FloatArray:
        """A weight where the text has one: the group has several, and others share, too."""
        return np.where(self.weighted & (of > self.problem.weight), weight, 0.0)

    def _above(self, priority: IntArray | None) -> FloatArray:
        count = len(self.allocation.limits)
        if priority is None:
            return np.zeros(count)
        group = self.segments.of_row
        order = np.lexsort((-priority, group))
        begins = np.r_[True, (np.diff(group[order]) != 0) | (np.diff(priority[order]) != 0)]
        first = np.maximum.accumulate(np.where(begins, np.arange(count), 0))
        above = np.empty(count)
        above[order] = first - self.problem.starts[:-1][group[order]]
        return above


def _ceiling(figures: _Figures) -> FloatArray:
    ceiling = figures.problem.ceiling
    return np.zeros_like(figures.problem.usage) if ceiling is None else ceiling


def _floors(figures: _Figures) -> FloatArray:
    floor, ceiling = figures.problem.floor, figures.problem.ceiling
    return figures.total(floor if ceiling is None else np.minimum(floor, ceiling))


def _priority(figures: _Figures) -> FloatArray:
    priority = figures.problem.priority
    if priority is None:
        return np.zeros_like(figures.problem.usage)
    return priority.astype(np.float64)


_COLUMNS: Final[dict[str, Callable[[_Figures], FloatArray]]] = {
    "shared_per_s": lambda f: f.shared,
    "sharing_brokers": lambda f: f.total(f.has(Reason.FAIR_SHARE)),
    "satisfied_brokers": lambda f: f.beside(Reason.DEMAND),
    "brokers_at_floor": lambda f: f.beside(Reason.FLOOR),
    "brokers_at_ceiling": lambda f: f.beside(Reason.CEILING),
    "brokers_of_higher_priority": lambda f: np.where(
        f.has(Reason.FAIR_SHARE), f.total(f.above_sharing), f.higher
    ),
    "weight": lambda f: np.where(
        f.has(Reason.EVEN),
        np.where(f.weighted, f.problem.weight, 0.0),
        f.shown_weight(f.problem.weight, f.sharing_weight),
    ),
    "sharing_weight": lambda f: f.shown_weight(f.sharing_weight, f.sharing_weight),
    "weights": lambda f: np.where(f.weighted, f.total(f.problem.weight), 0.0),
    "brokers": lambda f: f.total(np.ones_like(f.problem.usage)),
    "floor_per_s": lambda f: f.problem.floor,
    "floors_per_s": _floors,
    "ceiling_per_s": _ceiling,
    "usage_per_s": lambda f: f.problem.usage,
    "used_per_s": lambda f: f.total(f.problem.usage),
    "priority": _priority,
}
