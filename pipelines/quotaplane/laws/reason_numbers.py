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


def reason_numbers(problem: Problem, allocation: Allocation) -> Ragged:
    """The numbers of n limits.

    >>> from quotaplane.laws import get_law, one_group
    >>> case = one_group(100, demand=[15, 500, 500])
    >>> reason_numbers(case, get_law("max_min")(case)).row(1)
    [85.0, 2.0, 1.0]
    """
    reasons = allocation.reasons
    figures = _Figures(problem, allocation)
    columns = {
        code: [_COLUMNS[name](figures) for name in names]
        for code, names in NUMBERS.items()
        if names[0] in _COLUMNS and (reasons == code).any()
    }
    return ragged(reasons, columns)


def ragged(codes: npt.NDArray[Any], columns: dict[Reason, list[FloatArray]]) -> Ragged:
    """Lists for n rows: of each code its columns (n,), without zeros at the end."""
    size = np.zeros(len(codes), np.int64)
    for code, arrays in columns.items():
        chosen = codes == code
        for place, column in enumerate(arrays):
            size[chosen & (column != 0)] = place + 1
    offsets = np.concatenate([[0], np.cumsum(size)])
    values = np.zeros(int(offsets[-1]))
    for code, arrays in columns.items():
        chosen = codes == code
        for place, column in enumerate(arrays):
            rows = np.flatnonzero(chosen & (size > place))
            values[offsets[rows] + place] = column[rows]
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
