"""Explains each broker's limit to operators, in words and numbers."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Final

import numpy as np

from quotaplane.laws.problem import Allocation, Problem
from quotaplane.laws.reason import REASON_TEXTS, Reason
from quotaplane.model import BoolArray


def explain(problem: Problem, allocation: Allocation) -> list[str]:
    """Explain each row's limit. Not for hot paths: it loops over rows.

    Args:
        problem: the law's input.
        allocation: the law's result.

    Returns:
        One text per row (n).

    >>> from quotaplane.laws import get_law, one_group
    >>> case = one_group(100, demand=[5, 15, 500, 500], floor=[20, 0, 0, 0])
    >>> for text in explain(case, get_law("max_min")(case)):
    ...     print(text)
    floor 20: guaranteed whatever its demand, it wants 5
    satisfied: has the 15 it wants
    saturated at 32.5, wants 500; fair share of 65 left over by 1 satisfied broker and 1 floor
    saturated at 32.5, wants 500; fair share of 65 left over by 1 satisfied broker and 1 floor
    """
    texts: list[str] = []
    for group, (first, last) in enumerate(pairwise(problem.starts.tolist())):
        figures = _Group(problem, allocation, group, slice(first, last))
        texts.extend(_row(figures, row) for row in range(last - first))
    return texts


def short(number: float) -> str:
    """A number with about three digits, whole numbers in full.

    >>> short(33.300000000000004), short(80.0), short(166.666), short(0.012345), short(1048576.4)
    ('33.3', '80', '166.7', '0.0123', '1048576')
    """
    if number == 0 or not 0.01 <= number < 1e15:
        return f"{number:.3g}"
    decimals = 0 if number >= 1000 else 1 if number >= 10 else 2 if number >= 1 else 4
    text = f"{number:.{decimals}f}" if number >= 0.1 else f"{number:.3g}"
    return text.rstrip("0").rstrip(".") if "." in text else text


class _Group:
    """One group's part of problem and allocation; values of the whole group are cached."""

    def __init__(self, problem: Problem, allocation: Allocation, group: int, at: slice) -> None:
        self.quota = float(problem.quota[group])
        self.usage, self.demand = problem.usage[at], problem.demand[at]
        self.weight, self.floor = problem.weight[at], problem.floor[at]
        self.brokers = len(self.usage)
        unbounded = np.full(self.brokers, np.inf)
        self.ceiling = unbounded if problem.ceiling is None else problem.ceiling[at]
        same = np.zeros(self.brokers, dtype=np.int64)
        self.priority = same if problem.priority is None else problem.priority[at]
        self.given, self.reason = allocation.limits[at], allocation.reasons[at]

    @cached_property
    def used(self) -> float:
        return float(self.usage.sum())

    @cached_property
    def floors(self) -> float:
        return float(np.minimum(self.floor, self.ceiling).sum())

    @cached_property
    def weights(self) -> float:
        return float(self.weight.sum())

    @cached_property
    def weighted(self) -> bool:
        return bool((self.weight != self.weight[0]).any())

    @cached_property
    def shared(self) -> str:
        """What the saturated brokers share, and which others left it over."""
        saturated = self._has(Reason.FAIR_SHARE)
        remaining = max(self.quota - float(self.given[~saturated].sum()), 0.0)
        sharing = int(saturated.sum())
        before = self.priority > self.priority[saturated].max()
        satisfied = int((self._has(Reason.DEMAND) & ~before).sum())
        floors = int((self._has(Reason.FLOOR) & ~before).sum())
        ceilings = int((self._has(Reason.CEILING) & ~before).sum())
        others = [
            f"{count} {what}{'' if count == 1 else 's'}{after}"
            for count, what, after in (
                (int(before.sum()), "broker", " of higher priority"),
                (satisfied, "satisfied broker", ""),
                (floors, "floor", ""),
                (ceilings, "ceiling", ""),
            )
            if count
        ]
        if not others:
            whole = f"the whole quota of {short(remaining)}"
            return f"fair share of {short(remaining)} among {sharing}" if sharing > 1 else whole
        by = f"{', '.join(others[:-1])} and {others[-1]}" if others[1:] else others[0]
        return f"{'fair share' if sharing > 1 else 'all'} of {short(remaining)} left over by {by}"

    @cached_property
    def sharing_weight(self) -> float:
        return float(self.weight[self._has(Reason.FAIR_SHARE)].sum())

    def _has(self, reason: Reason) -> BoolArray:
        matches: BoolArray = self.reason == reason
        return matches

    def higher(self, row: int) -> int:
        """Number of brokers with a higher priority than a row's."""
        return int((self.priority > self.priority[row]).sum())


def _row(group: _Group, row: int) -> str:
    code = Reason(int(group.reason[row]))
    return _WORDS[code](group, row) if code in _WORDS else REASON_TEXTS[code]


def _wants(group: _Group, row: int, before: str = ", ") -> str:
    """What a row wants, if that is known."""
    demand = float(group.demand[row])
    return f"{before}wants {short(demand)}" if np.isfinite(demand) else ""


def _headroom(group: _Group, row: int) -> str:
    demand, given = short(group.demand[row]), short(group.given[row])
    return f"satisfied: wants {demand}, has {given} with its share of the spare"


def _demand(group: _Group, row: int) -> str:
    return f"satisfied: has the {short(group.demand[row])} it wants"


def _fair_share(group: _Group, row: int) -> str:
    weight = ""
    if group.weighted and group.sharing_weight > group.weight[row]:
        weight = f", weight {short(group.weight[row])} of {short(group.sharing_weight)}"
    return f"saturated at {short(group.given[row])}{_wants(group, row)}; {group.shared}{weight}"


def _floor(group: _Group, row: int) -> str:
    floor, given, demand = group.floor[row], group.given[row], group.demand[row]
    text = f"floor {short(floor)}: guaranteed whatever its demand"
    if given > floor * (1 + 1e-9):
        return f"{text}, has {short(given)} with its share of the spare"
    if demand <= floor:
        return f"{text}, it wants {short(demand)}"
    if demand > floor:
        higher = group.higher(row)
        why = "waits for higher priority" if higher else "its fair share is no more"
        return f"{text}{_wants(group, row)}; {why}"
    return text


def _floors_cut(group: _Group, row: int) -> str:
    text = f"floors add up to {short(group.floors)}, the quota is {short(group.quota)}: "
    if not group.floor[row]:
        return f"{text}nothing left for a broker without one"
    part = group.quota / group.floors
    simple = Fraction(part).limit_denominator(9)
    in_words = str(simple) if abs(simple - part) < 1e-9 and simple else f"{short(100 * part)} %"
    return f"{text}cut to {in_words}"


def _ceiling(group: _Group, row: int) -> str:
    ceiling, floor, demand = group.ceiling[row], group.floor[row], group.demand[row]
    text = f"ceiling {short(ceiling)}"
    if floor > ceiling:
        return f"{text}: its floor of {short(floor)} is cut to it"
    if demand <= ceiling:
        return f"{text}: satisfied, wants {short(demand)}; may have no more of the spare"
    return f"{text}{_wants(group, row)}"


def _priority(group: _Group, row: int) -> str:
    higher, priority = group.higher(row), int(group.priority[row])
    brokers = "1 broker" if higher == 1 else f"{higher} brokers"
    return (
        f"waits for higher priority: {brokers} above {priority} leave nothing "
        f"of the quota of {short(group.quota)}"
    )


def _even(group: _Group, row: int) -> str:
    quota = short(group.quota)
    if not group.weighted:
        return f"even share of {quota} among {group.brokers}, whatever its demand"
    weight, weights = short(group.weight[row]), short(group.weights)
    return f"share of {quota} by weight, {weight} of {weights}, whatever its demand"


def _residual(group: _Group, row: int) -> str:
    usage, given = float(group.usage[row]), float(group.given[row])
    rest = group.quota - group.used
    if rest <= 0:
        return f"uses {short(usage)}; nothing of the quota of {short(group.quota)} is left over"
    if abs(given - usage - rest) <= 1e-9 * group.quota:
        return f"uses {short(usage)}, plus all of the {short(rest)} left over"
    return f"uses {short(usage)}, plus {short(given - usage)} of the {short(rest)} left over"


def _reduced(group: _Group, row: int) -> str:
    usage, given = float(group.usage[row]), float(group.given[row])
    together = f"all use {short(group.used)} of {short(group.quota)}"
    if given < usage:
        return f"{together}: reduced from {short(usage)} to {short(given)}"
    return f"{together}: keeps its {short(usage)}, others use more"


def _stealing(group: _Group, row: int) -> str:
    usage, given = short(group.usage[row]), short(group.given[row])
    return f"throttled at {usage}: steals up to {given}, half-way to a more dominant broker"


def _proportional(group: _Group, row: int) -> str:
    usage, used = short(group.usage[row]), short(group.used)
    return f"in proportion to usage: {usage} of {used}, of the quota of {short(group.quota)}"


def _minimum(group: _Group, row: int) -> str:
    return f"uses {short(group.usage[row])} of {short(group.used)}: the minimum of 1"


def _no_usage(group: _Group, row: int) -> str:
    return f"nobody uses anything: the whole quota of {short(group.quota)}"


_WORDS: Final[dict[Reason, Callable[[_Group, int], str]]] = {
    Reason.HEADROOM: _headroom,
    Reason.DEMAND: _demand,
    Reason.FAIR_SHARE: _fair_share,
    Reason.FLOOR: _floor,
    Reason.FLOORS_CUT: _floors_cut,
    Reason.CEILING: _ceiling,
    Reason.PRIORITY: _priority,
    Reason.EVEN: _even,
    Reason.RESIDUAL: _residual,
    Reason.REDUCED: _reduced,
    Reason.STEALING: _stealing,
    Reason.PROPORTIONAL: _proportional,
    Reason.MINIMUM: _minimum,
    Reason.NO_USAGE: _no_usage,
}
"""Texts with numbers; the other reasons have none, so their plain texts are used."""
