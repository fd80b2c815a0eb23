"""A summary of a table in a page of text, for whoever changes a law and wants to know at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from benchmarks.arena.contenders import Contender
from benchmarks.arena.grid import Cell, Table
from benchmarks.arena.wished import bound, number
from benchmarks.arena.wishes import Verdict, judge
from quotaplane.console.text_table import render

_COLUMNS: Final = (
    *("law", "condition", "use", "worst", "innocents", "worst", "fair", "worst", "movement"),
    *("stretch", "never"),
)


def brief(table: Table, laws: Sequence[Contender]) -> str:
    """Means and worst scenarios by condition, wishes met, and each one that is not.

    ``table`` must also hold the causal optimum and static, which wishes are measured by.
    """
    conditions = list(dict.fromkeys(key.condition for key in table))
    rows = [_row(table, law, condition) for law in laws for condition in conditions]
    verdicts = judge(table, laws)
    return "\n".join(
        [
            "Means of the scenarios, and the worst. use: of the causal optimum's; innocents: % of",
            "what they want that is refused; fair: % of the rounds; movement: % of the quota in a",
            "round; stretch: the worst one over the quota, % of one round's; never: scenarios in",
            "which a shift was not settled.",
            "",
            render(_COLUMNS, rows, "table"),
            "",
            *_wishes(verdicts),
        ]
    )


def _row(table: Table, law: Contender, condition: str) -> tuple[str, ...]:
    cells = {
        key.scenario: cell
        for key, cell in table.items()
        if (key.law, key.condition) == (law.name, condition)
    }
    moved = [cell.movement for cell in cells.values() if cell.movement is not None]
    return (
        law.name,
        condition,
        *_mean_and_worst(cells, "of_causal", 1.0, min),
        *_mean_and_worst(cells, "throttled_innocents", 100.0, max),
        *_mean_and_worst(cells, "fair_part", 100.0, min),
        f"{100 * np.mean(moved):.2f}" if moved else "-",
        f"{100 * max(cell.stretch_worst for cell in cells.values()):.0f}",
        str(sum(cell.settled_worst is None for cell in cells.values())),
    )


def _mean_and_worst(
    cells: dict[str, Cell], figure: str, times: float, worst: Callable[..., str]
) -> tuple[str, str]:
    values = {
        scenario: times * value
        for scenario, cell in cells.items()
        if (value := getattr(cell, figure)) is not None
    }
    if not values:
        return "-", "-"
    digits = 3 if times == 1.0 else 1
    at = worst(values, key=lambda scenario: values[scenario])
    mean = float(np.mean(list(values.values())))
    return f"{mean:.{digits}f}", f"{values[at]:.{digits}f} {at}"


def _wishes(verdicts: Sequence[Verdict]) -> list[str]:
    lines = []
    for law in dict.fromkeys(verdict.law for verdict in verdicts):
        for harder in (False, True):
            some = [one for one in verdicts if (one.law, one.harder) == (law, harder)]
            met = sum(one.met for one in some)
            places = met + sum(len(one.missed) for one in some)
            if not places:
                continue
            where = "harder scenarios and conditions" if harder else "first ones"
            lines.append(f"{law}: {met} of {places} wishes, {where}")
            lines += [
                f"  {place.key.scenario}, {place.key.condition}: "
                f"{number(one.wish, place.found.value)} ({bound(one.wish, place.found)}): "
                f"{one.wish.name}"
                for one in some
                for place in one.missed
            ]
    return lines
