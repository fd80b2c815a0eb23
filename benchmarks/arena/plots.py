"""The pictures of the results page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from benchmarks.arena.contenders import Contender, play
from benchmarks.arena.grid import Cell, Key, Table
from benchmarks.arena.scenarios import CONDITIONS, Scenario, draw
from benchmarks.arena.svg import COLOURS, GRID, INK, QUIET, Picture, shade
from quotaplane.model import FloatArray

_LEFT, _TOP, _CELL_W, _CELL_H = 268, 96, 74, 26
_PANEL_W, _PANEL_H, _PER_ROW = 300, 120, 3


def settling(table: Table, laws: Sequence[Contender], condition: str) -> str:
    """Law by scenario: rounds until all are fair after the worst shift."""

    def show(cell: Cell) -> tuple[str, float]:
        rounds = cell.settled_worst
        return ("never", 1.0) if rounds is None else (f"{rounds:.0f}", min((rounds - 1) / 10, 0.9))

    return _heat(table, laws, condition, show)


def innocents(table: Table, laws: Sequence[Contender], condition: str) -> str:
    """Law by scenario: what was refused of all that innocents wanted; grey: there are none."""

    def show(cell: Cell) -> tuple[str, float | None]:
        refused = cell.throttled_innocents
        return ("", None) if refused is None else (f"{100 * refused:.1f} %", refused / 0.15)

    return _heat(table, laws, condition, show)


def _heat(
    table: Table,
    laws: Sequence[Contender],
    condition: str,
    show: Callable[[Cell], tuple[str, float | None]],
) -> str:
    scenes = list(dict.fromkeys(key.scenario for key in table if key.condition == condition))
    picture = Picture(_LEFT + _CELL_W * len(scenes) + 84, _TOP + _CELL_H * len(laws) + 12)
    for column, scene in enumerate(scenes):
        picture.text(_LEFT + _CELL_W * (column + 0.4), _TOP - 8, scene, turned=True)
    for row, law in enumerate(laws):
        y = _TOP + _CELL_H * row
        bold = law.transition is not None
        picture.text(_LEFT - 10, y + 17, law.name, anchor="end", bold=bold)
        for column, scene in enumerate(scenes):
            words, badness = show(table[Key(law.name, scene, condition)])
            x = _LEFT + _CELL_W * column
            fill = GRID if badness is None else shade(badness)
            picture.rect(x + 1, y + 1, _CELL_W - 2, _CELL_H - 2, fill)
            picture.text(x + _CELL_W / 2, y + 17, words, anchor="middle")
    return picture.render()


STORY_BROKERS: Final = 5
"""Most lines that can be distinguished."""


def story(laws: Sequence[Contender], scenario: Scenario) -> str:
    """A panel for each law: what each broker uses, and all together beside the quota."""
    count = scenario.demand.shape[1]
    if count > STORY_BROKERS:
        raise ValueError(f"{scenario.name}: {count} brokers are too many for a picture")
    rows = -(-len(laws) // _PER_ROW)
    picture = Picture(_PANEL_W * _PER_ROW + 20, (_PANEL_H + 54) * rows + 34)
    case = draw(scenario, CONDITIONS[0], seed=0)
    top = 1.4 * float(scenario.quota.max())
    runs = play(scenario, [(law, case) for law in laws])
    for place, (law, done) in enumerate(zip(laws, runs, strict=True)):
        x0 = 50 + _PANEL_W * (place % _PER_ROW)
        y0 = 30 + (_PANEL_H + 54) * (place // _PER_ROW)
        _panel(picture, law, done.usage, scenario, (x0, y0), top)
    y = (_PANEL_H + 54) * rows + 22
    legend = [(f"broker {b + 1}", COLOURS[b], "") for b in range(count)]
    x = 50.0
    for words, colour, dash in [*legend, ("all together", INK, ""), ("quota", QUIET, "4 3")]:
        picture.line([(x, y - 4), (x + 22, y - 4)], colour, 2.2, dash)
        picture.text(x + 28, y, words, colour=QUIET)
        x += 46 + 7.0 * len(words)
    return picture.render()


def _panel(
    picture: Picture,
    law: Contender,
    usage: FloatArray,
    scenario: Scenario,
    corner: tuple[float, float],
    top: float,
) -> None:
    x0, y0 = corner
    width, rounds = _PANEL_W - 66, len(usage)

    def steps(values: FloatArray) -> list[tuple[float, float]]:
        """Each round is a step as wide as itself."""
        heights = y0 + _PANEL_H * (1.0 - np.minimum(values, top) / top)
        edges = x0 + width * np.arange(rounds + 1) / rounds
        return [
            (float(edge), float(height))
            for r, height in enumerate(heights)
            for edge in (edges[r], edges[r + 1])
        ]

    picture.text(x0, y0 - 8, law.name, bold=True)
    for part in (0.0, 0.5, 1.0):
        y = y0 + _PANEL_H * (1.0 - part * float(scenario.quota.max()) / top)
        picture.line([(x0, y), (x0 + width, y)], GRID, 1)
        picture.text(x0 - 6, y + 4, f"{part:.0%}", anchor="end", size=10, colour=QUIET)
    for shift in scenario.shifts[1:]:
        x = x0 + width * shift.round_ / rounds
        picture.line([(x, y0), (x, y0 + _PANEL_H)], QUIET, 0.8, "2 2")
        picture.text(x, y0 + _PANEL_H + 14, f"{shift.round_}", anchor="middle", size=10)
    picture.line(steps(scenario.quota), QUIET, 1.4, "4 3")
    for broker in range(usage.shape[1]):
        picture.line(steps(usage[:, broker]), COLOURS[broker], 2.2)
    picture.line(steps(usage.sum(axis=1)), INK, 1.3)
