"""Wishes for our default law, and whether a table grants them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from benchmarks.arena.contenders import CAUSAL, STATIC, Contender
from benchmarks.arena.grid import Cell, Key, Table
from benchmarks.arena.scenarios import HARDER, OWN_SCALE

_ROUNDING: Final = 1e-6
"""Excess that does not count."""

_STILL: Final = 1e-3
"""Part of the quota that may move in a round and still be called no movement."""


MEAN: Final = "mean of all"
"""The scenario of a place where a wish is about the mean of all scenarios."""


class Measured(NamedTuple):
    """A figure beside what it should be; ``best`` is the causal optimum's."""

    value: float | None
    """None: never settled."""
    wanted: float
    best: float | None


@dataclass(frozen=True)
class Wish:
    """One figure wanted under some conditions; ``transitions`` are those it is wanted of."""

    name: str
    figure: str
    conditions: tuple[str, ...]
    transitions: tuple[str, ...]
    measure: Callable[[Table, Key], Measured]
    at_most: bool
    """The figure must be at most what is wanted; else at least."""
    unit: str
    """``rounds``, ``part`` (of 1) or ``percent``."""
    told: bool | None = None
    """Whether it is about contenders whose brokers report what they refused; False: about the
    others; None: about both."""
    mean: bool = False
    """About the mean of all scenarios; else about every one."""
    only: str | None = None
    """The one scenario that it is wanted of; None: of all."""


class Missed(NamedTuple):
    """A place where a wish is not met."""

    key: Key
    found: Measured
    why: str


class Verdict(NamedTuple):
    """A wish and one of our contenders: in how many places it is met, and where it is not."""

    wish: Wish
    law: str
    met: int
    missed: tuple[Missed, ...]
    harder: bool
    """Places in harder scenarios or conditions, or in none of these."""


def is_harder(key: Key) -> bool:
    """Whether a place is among those that came later and are counted by themselves.

    >>> is_harder(Key("TiKV", "churn", "poisson")), is_harder(Key("TiKV", "churn", "30 counts"))
    (False, True)
    """
    return key.scenario in HARDER or key.condition in HARDER


def _settled(at_most: float) -> Callable[[Table, Key], Measured]:
    def measure(table: Table, key: Key) -> Measured:
        best = table[key._replace(law=CAUSAL)].settled_worst
        return Measured(table[key].settled_worst, at_most, best)

    return measure


def _least(figure: str, wanted: float) -> Callable[[Table, Key], Measured]:
    def measure(table: Table, key: Key) -> Measured:
        best = getattr(table[key._replace(law=CAUSAL)], figure)
        return Measured(getattr(table[key], figure), wanted, best)

    return measure


def _limits(table: Table, key: Key) -> Measured:
    best = table[key._replace(law=CAUSAL)].limits_over_quota
    return Measured(table[key].limits_over_quota, 0.0, best)


def _movement(table: Table, key: Key) -> Measured:
    """Static's movement, and what noise alone moves: the causal optimum's, which only follows."""
    best = table[key._replace(law=CAUSAL)].movement
    static = table[key._replace(law=STATIC)].movement or 0.0
    return Measured(table[key].movement, max(static + (best or 0.0), _STILL), best)


def _by_noise(figure: str, wanted: Callable[[float], float]) -> Callable[[Table, Key], Measured]:
    """A figure of a scenario, wanted by its noise."""

    def measure(table: Table, key: Key) -> Measured:
        cell, best = table[key], table[key._replace(law=CAUSAL)]
        return Measured(getattr(cell, figure), wanted(cell.noise), getattr(best, figure))

    return measure


def _mean(figure: str, wanted: Callable[[float], float]) -> Callable[[Table, Key], Measured]:
    """The mean of all scenarios that have the figure, wanted by the largest of their noises."""

    def measure(table: Table, key: Key) -> Measured:
        means = []
        for law in (key.law, CAUSAL):
            cells = _cells(table, key._replace(law=law)).values()
            values = [value for cell in cells if (value := getattr(cell, figure)) is not None]
            means.append(float(np.mean(values)) if values else None)
        noise = max(cell.noise for cell in _cells(table, key).values())
        return Measured(means[0], wanted(noise), means[1])

    return measure


def _cells(table: Table, key: Key) -> dict[str, Cell]:
    """A law's under a condition, by scenario."""
    at = (key.law, key.condition)
    return {one.scenario: cell for one, cell in table.items() if (one.law, one.condition) == at}


_QUIET, _NOISY, _FEW = ("none",), ("poisson",), ("30 counts", "dispersion 4")
_ALL: Final = ("none", "poisson", "lost", "delayed", *_FEW)

_INNOCENTS: Final = "throttled_innocents"

WISHES: Final = (
    *(
        Wish(
            f"settled in {rounds} round{'s' * (rounds > 1)} after every shift, {words}",
            "settled_worst",
            conditions,
            (transition,),
            _settled(rounds),
            at_most=True,
            unit="rounds",
        )
        for transition, later in (("fast", 0), ("strict", 1))
        for rounds, conditions, words in (
            (1 + later, _QUIET, "without noise"),
            (2 + later, _NOISY, "with Poisson noise"),
        )
    ),
    *(
        Wish(
            f"utilisation at least {wanted} of the causal optimum's, {words}",
            "of_causal",
            conditions,
            ("fast", "strict"),
            _least("of_causal", wanted),
            at_most=False,
            unit="part",
        )
        for wanted, conditions, words in (
            (0.99, _QUIET, "without noise"),
            (0.97, _NOISY, "with Poisson noise"),
        )
    ),
    Wish(
        "Jain's index at least 0.99 on average, with and without noise",
        "jain_mean",
        (*_QUIET, *_NOISY),
        ("fast", "strict"),
        _least("jain_mean", 0.99),
        at_most=False,
        unit="part",
    ),
    Wish(
        "limits in force never above the quota",
        "limits_over_quota",
        _ALL,
        ("strict",),
        _limits,
        at_most=True,
        unit="percent",
    ),
    Wish(
        "once settled, no more movement than static's plus noise",
        "movement",
        (*_QUIET, *_NOISY),
        ("fast", "strict"),
        _movement,
        at_most=True,
        unit="percent",
    ),
    Wish(
        "utilisation at least 0.97 from the third report after a shift on, PIP-82's own numbers",
        "used_later",
        (*_QUIET, *_NOISY),
        ("fast",),
        _least("used_later", 0.97),
        at_most=False,
        unit="part",
        only=OWN_SCALE,
    ),
    Wish(
        "throttled of innocents at most 1 % or 0.28 r, mean of the scenarios, few counts",
        _INNOCENTS,
        _FEW,
        ("fast", "strict"),
        _mean(_INNOCENTS, lambda noise: max(0.01, 0.28 * noise)),
        at_most=True,
        unit="percent",
        told=True,
        mean=True,
    ),
    Wish(
        "throttled of innocents at most 2 % or 0.41 r, few counts",
        _INNOCENTS,
        _FEW,
        ("fast", "strict"),
        _by_noise(_INNOCENTS, lambda noise: max(0.02, 0.41 * noise)),
        at_most=True,
        unit="percent",
        told=True,
    ),
    Wish(
        "utilisation at least 0.98 of the causal optimum's, few counts",
        "of_causal",
        _FEW,
        ("fast", "strict"),
        _least("of_causal", 0.98),
        at_most=False,
        unit="part",
        told=True,
    ),
    Wish(
        "fair rounds at least 80 %, mean of the scenarios, few counts",
        "fair_part",
        _FEW,
        ("fast", "strict"),
        _mean("fair_part", lambda noise: 0.8),
        at_most=False,
        unit="percent",
        told=True,
        mean=True,
    ),
    Wish(
        "utilisation at least 0.98 of the causal optimum's, mean of the scenarios, few counts",
        "of_causal",
        _FEW,
        ("fast", "strict"),
        _mean("of_causal", lambda noise: 0.98),
        at_most=False,
        unit="part",
        told=False,
        mean=True,
    ),
    Wish(
        "utilisation at least 0.95 of the causal optimum's, few counts",
        "of_causal",
        _FEW,
        ("fast", "strict"),
        _least("of_causal", 0.95),
        at_most=False,
        unit="part",
        told=False,
    ),
)


def judge(table: Table, ours: Sequence[Contender]) -> list[Verdict]:
    """Every wish for every contender of ours that it is wanted of, in the order of ``WISHES``.

    One verdict is about the first scenarios and conditions, another one about the harder places.
    """
    found = []
    for wish in WISHES:
        for law in ours:
            if not is_wanted(wish, law):
                continue
            places = list(_places(wish, law, table))
            for harder in (False, True):
                keys = [key for key in places if is_harder(key) == harder]
                missed = tuple(
                    _missed(wish, table, key) for key in keys if not grants(wish, table, key)
                )
                met = len(keys) - len(missed)
                if keys:
                    found.append(Verdict(wish, law.name, met, missed, harder))
    return found


def is_wanted(wish: Wish, law: Contender) -> bool:
    """Whether a wish is about a contender."""
    of_reports = wish.told is None or wish.told == law.throttled_told
    return law.transition in wish.transitions and of_reports


def _places(wish: Wish, law: Contender, table: Table) -> Iterable[Key]:
    """Where a wish is judged; there are scenarios without innocents."""
    for condition in wish.conditions:
        cells = _cells(table, Key(law.name, "", condition))
        if wish.mean:
            if any(getattr(cell, wish.figure) is not None for cell in cells.values()):
                yield Key(law.name, MEAN, condition)
            continue
        for scenario, cell in cells.items():
            if wish.only not in (None, scenario):
                continue
            if wish.figure != _INNOCENTS or cell.throttled_innocents is not None:
                yield Key(law.name, scenario, condition)


def grants(wish: Wish, table: Table, key: Key) -> bool:
    """Whether a wish is met in one place.

    Movement is only judged where there are settled rounds: that there are is another wish.
    """
    value, wanted, _ = wish.measure(table, key)
    if value is None:
        return wish.figure == "movement"
    return _meets(wish, value, wanted)


def _meets(wish: Wish, value: float, wanted: float) -> bool:
    return value <= wanted + _ROUNDING if wish.at_most else value >= wanted - _ROUNDING


def _missed(wish: Wish, table: Table, key: Key) -> Missed:
    found = wish.measure(table, key)
    if wish.mean:
        return Missed(key, found, _worst_scenario(wish, table, key))
    return Missed(key, found, _why(wish, found, table[key]))


def _worst_scenario(wish: Wish, table: Table, key: Key) -> str:
    values = {
        scenario: value
        for scenario, cell in _cells(table, key).items()
        if (value := getattr(cell, wish.figure)) is not None
    }
    worst = (max if wish.at_most else min)(values, key=lambda scenario: values[scenario])
    return f"worst in {worst}: {values[worst]:.1%}"


def _why(wish: Wish, found: Measured, cell: Cell) -> str:
    """Reason, as far as the figures themselves show it."""
    if wish.figure == "limits_over_quota":
        if cell.limits_over_known <= _ROUNDING:
            return (
                "only in the round in which the quota fell: limits were set before that was known"
            )
        return f"also against the quota that was known: by {cell.limits_over_known:.1%} at worst"
    if wish.figure == _INNOCENTS:
        return (
            f"{cell.throttled_worst:.1%} of the innocent that it is most of; shares were fair in "
            f"{cell.fair_part:.0%} of the rounds"
        )
    if wish.figure != "movement" and (
        found.best is None or not _meets(wish, found.best, found.wanted)
    ):
        return "nor does the causal optimum, which learns nothing wrong, only one round late"
    if wish.figure == "settled_worst":
        return f"after: {cell.worst_shift}; {cell.last_off}"
    if wish.figure in ("of_causal", "used_later"):
        lost = (cell.lost_in_shifts, cell.lost_in_limits, cell.lost_withheld)
        shift, limits, withheld = (part / sum(lost) for part in lost)
        return (
            f"{sum(lost):.1%} was left unused: {shift:.0%} of that in the rounds of the shifts, "
            f"{limits:.0%} in limits that their brokers did not use, {withheld:.0%} had no limit"
        )
    if wish.figure == "jain_mean":
        return f"shares were fair in {cell.fair_part:.0%} of the rounds"
    if found.wanted <= _STILL:
        return "the causal optimum's limits hardly move"
    return f"{(found.value or 0.0) / found.wanted:.2f} times what the causal optimum's limits move"
