"""Explains each broker's limit to administrators, in words and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from quotaplane.laws.problem import Allocation, Problem
from quotaplane.laws.reason import REASON_TEXTS, Reason
from quotaplane.laws.reason_numbers import NUMBERS, reason_numbers
from quotaplane.laws.segments import Segments


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
    numbers = reason_numbers(problem, allocation)
    quota = Segments(problem.starts).spread(problem.quota)
    columns = allocation.reasons, allocation.limits, problem.demand, quota
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return [
        reason_text(code, numbers.row(at), limit, demand, total)
        for at, (code, limit, demand, total) in enumerate(rows)
    ]


def reason_text(
    code: int | None,
    numbers: Sequence[float] | None,
    limit: float | None,
    demand: float | None,
    quota: float | None,
) -> str:
    """Put a reason into words.

    Args:
        code: of ``Reason``; None: there is no limit.
        numbers: of the reason, see ``reason_numbers``; None: not known, so the general text.
        limit: per second.
        demand: per second, as the law was given it; None or inf: not known, it was saturated.
        quota: per second, that the law divided; None: no quota.

    >>> reason_text(4, [85.0, 2.0, 1.0], 42.5, 500.0, 100.0)
    'saturated at 42.5, wants 500; fair share of 85 left over by 1 satisfied broker'
    >>> reason_text(17, [4.0, 42.5, 85.0, 2.0, 1.0], 30.0, None, 100.0)
    'fair share, as far as others have come down yet; then: saturated at 42.5; fair share of 85 ...'
    """
    if code is None:
        return ""
    reason = Reason(code)
    if reason in (Reason.WAITING, Reason.STEP) and numbers:
        law_code, law_limit, *rest = numbers
        later = reason_text(int(law_code), rest, law_limit, demand, quota)
        return f"{REASON_TEXTS[reason]}; then: {later}"
    names = NUMBERS.get(reason, ())
    if reason not in _WORDS or (names and numbers is None):
        return REASON_TEXTS[reason]
    # Zeros at the end are left out.
    values = dict(zip(names, [*(numbers or ()), *[0.0] * len(names)], strict=False))
    return _WORDS[reason](_Row(_known(limit), _known(demand), _known(quota), values))


def _known(rate: float | None) -> float:
    return math.inf if rate is None else rate


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


@dataclass(frozen=True)
class _Row:
    """A limit and the numbers of its reason."""

    limit: float
    demand: float
    quota: float
    numbers: dict[str, float]

    def __getitem__(self, name: str) -> float:
        return self.numbers[name]

    def wants(self, before: str = ", ") -> str:
        """A phrase about the broker's demand; empty if it is unknown."""
        return f"{before}wants {short(self.demand)}" if math.isfinite(self.demand) else ""


def _headroom(row: _Row) -> str:
    return (
        f"satisfied: wants {short(row.demand)}, has {short(row.limit)} with its share of the spare"
    )


def _demand(row: _Row) -> str:
    return f"satisfied: has the {short(row.demand)} it wants"


def _fair_share(row: _Row) -> str:
    weight = ""
    if row["weight"]:
        weight = f", weight {short(row['weight'])} of {short(row['sharing_weight'])}"
    return f"saturated at {short(row.limit)}{row.wants()}; {_shared(row)}{weight}"


def _shared(row: _Row) -> str:
    """A phrase about the quota that saturated brokers share, and the brokers that left it over."""
    sharing, remaining = int(row["sharing_brokers"]), short(row["shared_per_s"])
    others = [
        f"{count} {what}{'' if count == 1 else 's'}{after}"
        for count, what, after in (
            (int(row["brokers_of_higher_priority"]), "broker", " of higher priority"),
            (int(row["satisfied_brokers"]), "satisfied broker", ""),
            (int(row["brokers_at_floor"]), "floor", ""),
            (int(row["brokers_at_ceiling"]), "ceiling", ""),
        )
        if count
    ]
    if not others:
        whole = f"the whole quota of {remaining}"
        return f"fair share of {remaining} among {sharing}" if sharing > 1 else whole
    by = f"{', '.join(others[:-1])} and {others[-1]}" if others[1:] else others[0]
    return f"{'fair share' if sharing > 1 else 'all'} of {remaining} left over by {by}"


def _floor(row: _Row) -> str:
    floor = row["floor_per_s"]
    text = f"floor {short(floor)}: guaranteed whatever its demand"
    if row.limit > floor * (1 + 1e-9):
        return f"{text}, has {short(row.limit)} with its share of the spare"
    if row.demand <= floor:
        return f"{text}, it wants {short(row.demand)}"
    higher = row["brokers_of_higher_priority"]
    why = "waits for higher priority" if higher else "its fair share is no more"
    return f"{text}{row.wants()}; {why}"


def _floors_cut(row: _Row) -> str:
    text = f"floors add up to {short(row['floors_per_s'])}, the quota is {short(row.quota)}: "
    if not row["floor_per_s"]:
        return f"{text}nothing left for a broker without one"
    part = row.quota / row["floors_per_s"]
    simple = Fraction(part).limit_denominator(9)
    in_words = str(simple) if abs(simple - part) < 1e-9 and simple else f"{short(100 * part)} %"
    return f"{text}cut to {in_words}"


def _ceiling(row: _Row) -> str:
    ceiling, floor = row["ceiling_per_s"], row["floor_per_s"]
    text = f"ceiling {short(ceiling)}"
    if floor > ceiling:
        return f"{text}: its floor of {short(floor)} is cut to it"
    if row.demand <= ceiling:
        return f"{text}: satisfied, wants {short(row.demand)}; may have no more of the spare"
    return f"{text}{row.wants()}"


def _priority(row: _Row) -> str:
    higher, priority = int(row["brokers_of_higher_priority"]), int(row["priority"])
    brokers = "1 broker" if higher == 1 else f"{higher} brokers"
    return (
        f"waits for higher priority: {brokers} above {priority} leave nothing "
        f"of the quota of {short(row.quota)}"
    )


def _even(row: _Row) -> str:
    quota = short(row.quota)
    if not row["weight"]:
        return f"even share of {quota} among {row['brokers']:.0f}, whatever its demand"
    weight, weights = short(row["weight"]), short(row["weights"])
    return f"share of {quota} by weight, {weight} of {weights}, whatever its demand"


def _residual(row: _Row) -> str:
    usage = row["usage_per_s"]
    rest = row.quota - row["used_per_s"]
    if rest <= 0:
        return f"uses {short(usage)}; nothing of the quota of {short(row.quota)} is left over"
    if abs(row.limit - usage - rest) <= 1e-9 * row.quota:
        return f"uses {short(usage)}, plus all of the {short(rest)} left over"
    return f"uses {short(usage)}, plus {short(row.limit - usage)} of the {short(rest)} left over"


def _reduced(row: _Row) -> str:
    usage = row["usage_per_s"]
    together = f"all use {short(row['used_per_s'])} of {short(row.quota)}"
    if row.limit < usage:
        return f"{together}: reduced from {short(usage)} to {short(row.limit)}"
    return f"{together}: keeps its {short(usage)}, others use more"


def _stealing(row: _Row) -> str:
    usage, given = short(row["usage_per_s"]), short(row.limit)
    return f"throttled at {usage}: steals up to {given}, half-way to a more dominant broker"


def _proportional(row: _Row) -> str:
    usage, used = short(row["usage_per_s"]), short(row["used_per_s"])
    return f"in proportion to usage: {usage} of {used}, of the quota of {short(row.quota)}"


def _minimum(row: _Row) -> str:
    return f"uses {short(row['usage_per_s'])} of {short(row['used_per_s'])}: the minimum of 1"


def _no_usage(row: _Row) -> str:
    return f"nobody uses anything: the whole quota of {short(row.quota)}"


_WORDS: Final[dict[Reason, Callable[[_Row], str]]] = {
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
