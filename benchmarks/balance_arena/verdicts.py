"""The targets of the arena, and whether they are met."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from benchmarks.balance_arena.contenders import EPS, MORE_EPS, OURS, STOCK
from benchmarks.balance_arena.figures import LEVELS
from benchmarks.balance_arena.grid import Key, Table
from benchmarks.balance_arena.scenario import Scenario

Bounds = dict[tuple[str, int], tuple[float, ...]]
"""From scenario and seed to the least bytes for each of ``LEVELS``, as part of the cluster's."""
OURS_BY_EPS: Final = dict(zip((*EPS, *MORE_EPS), (law.name for law in OURS), strict=True))
_MOST_ROUNDS: Final = 3
_OVER_MINIMUM: Final = 1.15
_NEAR: Final = 0.01
"""An imbalance so little above the wanted one still counts as that."""
_SAME: Final = 5e-3
"""Imbalances that differ by less are the same."""
_NEVER_STILL: Final = ("diurnal skew", "steps every 20 minutes")


_COMPARABLE: Final = 0.1
"""A final imbalance so much above ours is still comparable."""


class Minimum(NamedTuple):
    """The least bytes that must move for a wanted max/mean, and those that ours moves."""

    scenario: str
    wanted: float
    least: float
    """As part of the cluster's; mean of the seeds."""
    ours_by_least: float
    """Mean of the seeds."""


class Verdict(NamedTuple):
    """One wish: in how many cases it is met, and each miss in numbers."""

    wish: str
    met: int
    missed: tuple[str, ...]


def judge(table: Table, scenes: Sequence[Scenario], minimum: Sequence[Minimum]) -> list[Verdict]:
    """All wishes."""
    return [
        _rounds(table, scenes),
        _minimum(table, minimum),
        _planes(table, scenes),
        _none(table, scenes, "repeats", "no repeated move within the grace period of 30 minutes"),
        _none(
            table,
            [scene for scene in scenes if scene.balanced],
            "actions",
            "no move and no split where the cluster is balanced, up to sigma 0.5",
        ),
        _none(
            table,
            scenes,
            "receivers_shed",
            "no move after which the receiver sheds within ten minutes",
        ),
        _none(
            table,
            [scene for scene in scenes if scene.policies and not scene.policies[0][0]],
            "forbidden",
            "no bundle on a broker that an isolation policy forbids",
        ),
        _none(
            table,
            [scene for scene in scenes if scene.policies],
            "together",
            "no namespaces of a group together beyond what is unavoidable",
        ),
        _cheaper(table, scenes),
    ]


def still(scene: Scenario) -> bool:
    """Whether a scenario has to be balanced once, and then stays as it is."""
    return not scene.balanced and scene.name not in _NEVER_STILL


def _rounds(table: Table, scenes: Sequence[Scenario]) -> Verdict:
    met, missed = 0, []
    for scene in filter(still, scenes):
        _, worst = table[Key(OURS_BY_EPS[0.15], scene.name)].rounds(0)
        if worst <= _MOST_ROUNDS:
            met += 1
        else:
            missed.append(f"{scene.name}: {rounds(worst)}")
    wish = f"max/mean 1.15 in at most {_MOST_ROUNDS} rounds (ours 0.15)"
    return Verdict(wish, met, tuple(missed))


def minimum(table: Table, bounds: Bounds) -> list[Minimum]:
    """The least bytes beside those of ours, for each scenario that has bounds."""
    found = []
    for scenario in dict.fromkeys(name for name, _ in bounds):
        for level, eps in enumerate(EPS):
            cell = table[Key(OURS_BY_EPS[eps], scenario)]
            least = [bounds[scenario, seed][level] for seed in range(len(cell.runs))]
            parts = [
                run.moved / bound for run, bound in zip(cell.runs, least, strict=True) if bound > 0
            ]
            by_least = round(float(np.mean(parts)), 2) if parts else 1.0
            found.append(
                Minimum(scenario, LEVELS[level], round(float(np.mean(least)), 3), by_least)
            )
    return found


def _minimum(table: Table, minimum: Sequence[Minimum]) -> Verdict:
    met, missed = 0, []
    for one in minimum:
        eps = EPS[LEVELS.index(one.wanted)]
        final = table[Key(OURS_BY_EPS[eps], one.scenario)].most("final")
        if final > one.wanted + _NEAR:
            missed.append(f"{one.scenario} ended at {final:.3f} with {eps:.2f}")
        elif one.ours_by_least > _OVER_MINIMUM:
            missed.append(f"{one.scenario} to {one.wanted:.2f}: {one.ours_by_least:.2f}")
        else:
            met += 1
    wish = f"bytes moved at most {_OVER_MINIMUM} x the exact minimum"
    return Verdict(wish, met, tuple(missed))


def above(table: Table, scene: Scenario) -> list[str]:
    """Stock points below the line through ours, in the plane of bytes and final imbalance.

    The line joins ours' settings, and doing nothing where that is known; to the right of the last
    it is level.
    """
    mine = [table.get(Key(name, scene.name)) for name in OURS_BY_EPS.values()]
    points = [(cell.mean("moved"), cell.mean("final")) for cell in mine if cell]
    untouched = not (scene.events or scene.changes or scene.name in _NEVER_STILL)
    if untouched and mine[0]:
        points.append((0.0, float(np.mean([run.imbalance[0] for run in mine[0].runs]))))
    moved, final = np.array(sorted(points)).T
    final = np.minimum.accumulate(final)
    found, wrong = [], max(cell.mean("forbidden") for cell in mine if cell)
    for law in STOCK:
        cell = table[Key(law.name, scene.name)]
        x, y = cell.mean("moved"), cell.mean("final")
        # Left of the line we have no point to compare. A strategy without moves is not better, nor
        # one that leaves bundles where policies forbid them.
        if not cell.most("moves") or cell.mean("forbidden") > wrong:
            continue
        if y < float(np.interp(x, moved, final, left=np.inf)) - _SAME:
            found.append(f"{law.name} ({x:.3f}, {y:.3f})")
    return found


def _planes(table: Table, scenes: Sequence[Scenario]) -> Verdict:
    better = {scene.name: above(table, scene) for scene in scenes}
    missed = tuple(f"{name}: {', '.join(laws)}" for name, laws in better.items() if laws)
    wish = "on or below each of Pulsar's points of (bytes moved, final max/mean)"
    return Verdict(wish, len(scenes) - len(missed), missed)


def _cheaper(table: Table, scenes: Sequence[Scenario]) -> Verdict:
    met, missed = 0, []
    for scene in scenes:
        if scene.balanced:
            continue
        mine = table[Key(OURS_BY_EPS[0.15], scene.name)]
        moved, final = mine.mean("moved"), mine.mean("final")
        for law in STOCK:
            cell = table[Key(law.name, scene.name)]
            x, y = cell.mean("moved"), cell.mean("final")
            if not cell.most("moves") or y > final + _COMPARABLE:
                continue
            if cell.mean("forbidden") > mine.mean("forbidden") or x >= moved:
                met += 1
            else:
                missed.append(
                    f"{scene.name}: {law.name} {x:.3f} to {y:.3f}, ours {moved:.3f} to {final:.3f}"
                )
    wish = (
        f"bytes moved no more than by each of Pulsar's that ends at most {_COMPARABLE:g} higher "
        "(ours 0.15)"
    )
    return Verdict(wish, met, tuple(missed))


def _none(table: Table, scenes: Sequence[Scenario], figure: str, wish: str) -> Verdict:
    counts = {
        f"{scene.name} at {eps:.2f}": table[Key(OURS_BY_EPS[eps], scene.name)].most(figure)
        for scene in scenes
        for eps in EPS
    }
    missed = tuple(f"{case}: {count:g}" for case, count in counts.items() if count)
    return Verdict(wish, len(counts) - len(missed), missed)


def rounds(count: float) -> str:
    """A number of rounds in words."""
    return "never" if np.isinf(count) else f"{count:g}"
