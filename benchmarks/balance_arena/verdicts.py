"""The targets of the arena, and whether they are met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from benchmarks.balance_arena.contenders import EPS, MORE_EPS, OURS, STOCK
from benchmarks.balance_arena.figures import LEVELS
from benchmarks.balance_arena.grid import Cell, Key, Table
from benchmarks.balance_arena.scenarios import Scenario

Bounds = dict[tuple[str, int], tuple[float, ...]]
"""From scenario and seed to the least bytes for each of ``LEVELS``, as part of the cluster's."""
OURS_BY_EPS: Final = dict(zip((*EPS, *MORE_EPS), (law.name for law in OURS), strict=True))
_MOST_ROUNDS: Final = 3
_OVER_MINIMUM: Final = 1.15
NEAR: Final = 0.01
"""An imbalance so little above the wanted one still counts as that."""
_SAME: Final = 5e-3
"""Imbalances that differ by less are the same."""
_NEVER_STILL: Final = ("diurnal skew", "steps every 20 minutes")


class Verdict(NamedTuple):
    """One wish."""

    wish: str
    met: bool
    found: str
    """In numbers; every miss is named."""


def judge(table: Table, scenes: Sequence[Scenario], bounds: Bounds) -> list[Verdict]:
    """All wishes of the issue that the arena can judge."""
    return [
        _rounds(table, scenes),
        _minimum(table, bounds),
        _planes(table, scenes),
        _none(table, scenes, "repeats", "no repeat move within the grace period, in any scenario"),
        _quiet(table, scenes),
        _none(
            table,
            scenes,
            "receivers_shed",
            "never a move after which the receiver sheds (within ten minutes)",
        ),
    ]


def _rounds(table: Table, scenes: Sequence[Scenario]) -> Verdict:
    told, missed = [], []
    for scene in scenes:
        if scene.balanced or scene.name in _NEVER_STILL:
            continue
        cell = table[Key(OURS_BY_EPS[0.15], scene.name)]
        median, worst = cell.rounds(0)
        text = f"{scene.name} {rounds(median)} (worst {rounds(worst)})"
        (told if worst <= _MOST_ROUNDS else missed).append(text)
    wish = f"max/mean 1.15 in at most {_MOST_ROUNDS} rounds (ours 0.15)"
    return Verdict(wish, not missed, _list(told, missed))


def over_minimum(cell: Cell, bounds: Bounds, scenario: str, level: int) -> float | None:
    """Mean of bytes moved by the least that can be for a level; None = it is not known."""
    parts = [
        run.moved / bounds[scenario, seed][level]
        for seed, run in enumerate(cell.runs)
        if bounds.get((scenario, seed), (0.0,) * len(LEVELS))[level] > 0
    ]
    return float(np.mean(parts)) if parts else None


def _minimum(table: Table, bounds: Bounds) -> Verdict:
    told, missed = [], []
    for scenario in dict.fromkeys(name for name, _ in bounds):
        for level, eps in enumerate(EPS):
            cell = table[Key(OURS_BY_EPS[eps], scenario)]
            part = over_minimum(cell, bounds, scenario, level)
            if cell.most("final") > LEVELS[level] + NEAR:
                missed.append(f"{scenario} ended at {cell.most('final'):.3f} with {eps:.2f}")
            elif part is not None:
                text = f"{scenario} to {LEVELS[level]:.2f}: {part:.2f}"
                (told if part <= _OVER_MINIMUM else missed).append(text)
    wish = f"bytes moved at most {_OVER_MINIMUM} x the exact minimum"
    return Verdict(wish, not missed, _list(told, missed))


def above(table: Table, scene: Scenario) -> list[str]:
    """Stock points below the line through ours, in the plane of bytes and final imbalance.

    The line joins ours' settings, and doing nothing where that is known; to the right of the last
    it is level.
    """
    mine = [table.get(Key(name, scene.name)) for name in OURS_BY_EPS.values()]
    points = [(cell.mean("moved"), cell.mean("final")) for cell in mine if cell]
    still = not (scene.events or scene.changes or scene.name in _NEVER_STILL)
    if still and mine[0]:
        points.append((0.0, float(np.mean([run.imbalance[0] for run in mine[0].runs]))))
    moved, final = np.array(sorted(points)).T
    final = np.minimum.accumulate(final)
    found = []
    for law in STOCK:
        cell = table[Key(law.name, scene.name)]
        x, y = cell.mean("moved"), cell.mean("final")
        # Left of the line we have no point to compare; a strategy without moves is not better.
        if cell.most("moves") and y < float(np.interp(x, moved, final, left=np.inf)) - _SAME:
            found.append(f"{law.name} ({x:.3f}, {y:.3f})")
    return found


def _planes(table: Table, scenes: Sequence[Scenario]) -> Verdict:
    told, missed = [], []
    for scene in scenes:
        better = above(table, scene)
        if better:
            missed.append(f"{scene.name}: {', '.join(better)}")
        else:
            told.append(scene.name)
    wish = "on or below every stock point of (bytes moved, final imbalance)"
    return Verdict(wish, not missed, _list(told, missed))


def _none(table: Table, scenes: Sequence[Scenario], figure: str, wish: str) -> Verdict:
    told, missed = [], []
    for scene in scenes:
        counts = {eps: table[Key(OURS_BY_EPS[eps], scene.name)].most(figure) for eps in EPS}
        bad = ", ".join(f"{count:g} at {eps:.2f}" for eps, count in counts.items() if count)
        if bad:
            missed.append(f"{scene.name} {bad}")
        else:
            told.append(scene.name)
    return Verdict(wish, not missed, _list([f"none in {len(told)} scenarios"], missed))


def _quiet(table: Table, scenes: Sequence[Scenario]) -> Verdict:
    told, missed = [], []
    for scene in scenes:
        if scene.balanced:
            for eps in EPS:
                most = table[Key(OURS_BY_EPS[eps], scene.name)].most("moves")
                text = f"{scene.name} at {eps:.2f}: {most:g}"
                (missed if most else told).append(text)
    wish = "no move at all where the cluster is balanced, up to sigma 0.5"
    return Verdict(wish, not missed, _list([f"none in {len(told)} cases"], missed))


def rounds(count: float) -> str:
    """A number of rounds in words."""
    return "never" if np.isinf(count) else f"{count:g}"


def _list(told: Sequence[str], missed: Sequence[str]) -> str:
    parts = []
    if told:
        parts.append("met: " + "; ".join(told))
    if missed:
        parts.append("missed: " + "; ".join(missed))
    return ". ".join(parts)
