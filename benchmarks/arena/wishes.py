"""What is wanted of our default law, and whether a table grants it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from benchmarks.arena.contenders import CAUSAL, STATIC, Contender
from benchmarks.arena.grid import Cell, Key, Table

_ROUNDING: Final = 1e-6
"""What counts as not above the quota."""

_STILL: Final = 1e-3
"""Part of the quota that may move in a round and still be called no movement."""


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
    """``rounds``, ``part`` (of 1) or ``quota`` (a part of the quota)."""


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


_QUIET, _NOISY = ("none",), ("poisson",)
_ALL: Final = ("none", "poisson", "lost", "delayed")

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
        unit="quota",
    ),
    Wish(
        "once settled, no more movement than static's plus noise",
        "movement",
        (*_QUIET, *_NOISY),
        ("fast", "strict"),
        _movement,
        at_most=True,
        unit="quota",
    ),
)


def judge(table: Table, ours: Sequence[Contender]) -> list[Verdict]:
    """Every wish for every contender of ours that it is wanted of, in the order of ``WISHES``."""
    scenes = list(dict.fromkeys(key.scenario for key in table))
    there = {key.condition for key in table}
    found = []
    for wish in WISHES:
        for law in ours:
            if law.transition not in wish.transitions:
                continue
            keys = [
                Key(law.name, scene, condition)
                for scene in scenes
                for condition in wish.conditions
                if condition in there
            ]
            missed = tuple(
                _missed(wish, table, key) for key in keys if not grants(wish, table, key)
            )
            found.append(Verdict(wish, law.name, len(keys) - len(missed), missed))
    return found


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
    return Missed(key, found, _why(wish, found, table[key]))


def _why(wish: Wish, found: Measured, cell: Cell) -> str:
    """What the figures themselves tell about the reason."""
    if wish.figure == "limits_over_quota":
        if cell.limits_over_known <= _ROUNDING:
            return (
                "only in the round in which the quota fell: limits were set before that was known"
            )
        return f"also against the quota that was known: by {cell.limits_over_known:.1%} at worst"
    if wish.figure != "movement" and (
        found.best is None or not _meets(wish, found.best, found.wanted)
    ):
        return "nor does the causal optimum, which is told nothing wrong, only one round late"
    if wish.figure == "settled_worst":
        return f"after: {cell.worst_shift}; {cell.last_off}"
    if wish.figure == "of_causal":
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
