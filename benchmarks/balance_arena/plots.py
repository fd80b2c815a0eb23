"""The pictures of the results page."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from benchmarks.arena.svg import GRID, INK, QUIET, Picture
from benchmarks.balance_arena.contenders import EPS, MORE_EPS, OURS, STOCK, Contender
from benchmarks.balance_arena.grid import Key, Table
from benchmarks.balance_arena.scenario import Scenario

_COLOURS: Final = ("#e8a317", "#b5651d", "#2f9e62", "#9aa5b1", "#d9483b", "#8b5cc7")
"""Colours of Pulsar's pairs, in the order of ``STOCK``."""
_BLUES: Final = ("#9dbcf5", "#3b6fd4", "#16357a")
"""Colours of ours, in the order of ``EPS``."""
_LEFT, _TOP, _WIDTH, _HEIGHT = 52, 24, 600, 250
_PANEL_W, _PANEL_H, _PER_ROW = 300, 210, 3
_LEGEND_W, _LEGENDS = 400, 2
_HIGHEST: Final = 2.2


def _styles() -> list[tuple[Contender, str, float]]:
    stock = [(law, colour, 1.6) for law, colour in zip(STOCK, _COLOURS, strict=True)]
    ours = [(law, colour, 2.6) for law, colour in zip(OURS[: len(EPS)], _BLUES, strict=True)]
    return [*stock, *ours]


def story(table: Table, scene: Scenario) -> str:
    """Imbalance of each strategy over the minutes of a scenario, mean of the seeds."""
    picture = Picture(_LEFT + _WIDTH + _LEGEND_W, _TOP + _HEIGHT + 40)
    drawn = [
        (law, colour, width, table[Key(law.name, scene.name)].series())
        for law, colour, width in _styles()
    ]
    top = min(max(_HIGHEST / 2, *(float(series.max()) for *_, series in drawn)) + 0.02, _HIGHEST)
    top = max(top, 1.2)

    def place(minute: float, value: float) -> tuple[float, float]:
        y = _TOP + _HEIGHT * (1.0 - (min(value, top) - 1.0) / (top - 1.0))
        return _LEFT + _WIDTH * minute / scene.minutes, y

    step = 0.05 if top < 1.4 else 0.2
    for line in range(math.floor((top - 1.0) / step + 1e-9) + 1):
        value = 1.0 + step * line
        ends = [place(0, value), place(scene.minutes, value)]
        picture.line(ends, GRID, 1)
        picture.text(_LEFT - 6, ends[0][1] + 4, f"{value:.2f}", anchor="end", size=10)
    picture.line([place(0, 1.15), place(scene.minutes, 1.15)], QUIET, 1, "4 3")
    for minute in range(0, scene.minutes + 1, 30):
        x = place(minute, 1.0)[0]
        picture.text(x, _TOP + _HEIGHT + 16, f"{minute}", anchor="middle", size=10)
    for event in scene.events:
        x = place(event.minute, 1.0)[0]
        picture.line([(x, _TOP), (x, _TOP + _HEIGHT)], QUIET, 0.6, "2 3")
    picture.text(_LEFT + _WIDTH, _TOP + _HEIGHT + 32, "minutes", anchor="end", colour=QUIET)
    picture.text(_LEFT, 14, "max/mean of the true load", colour=QUIET)
    for number, (law, colour, width, series) in enumerate(drawn):
        # A step a minute: the load is sampled once in each.
        picture.line([place(m, float(v)) for m, v in enumerate(series)], colour, width)
        y = _TOP + 12 + 22 * number
        picture.line([(_LEFT + _WIDTH + 16, y - 4), (_LEFT + _WIDTH + 38, y - 4)], colour, width)
        bold = law.options is not None
        picture.text(_LEFT + _WIDTH + 44, y, law.name, bold=bold)
    return picture.render()


def planes(table: Table, scenes: Sequence[Scenario]) -> str:
    """Bytes moved against final imbalance: a panel for each scenario; lower left is better."""
    rows = -(-len(scenes) // _PER_ROW)
    picture = Picture(_PANEL_W * _PER_ROW + 20, (_PANEL_H + 30) * rows + 100)
    for number, scene in enumerate(scenes):
        corner = (
            44 + _PANEL_W * (number % _PER_ROW),
            30 + (_PANEL_H + 30) * (number // _PER_ROW),
        )
        _plane(picture, table, scene, corner)
    y = (_PANEL_H + 30) * rows + 24
    for number, (law, colour) in enumerate(zip(STOCK, _COLOURS, strict=True)):
        x, low = 20.0 + _LEGEND_W * (number % _LEGENDS), y + 20 * (number // _LEGENDS)
        picture.rect(x, low - 9, 9, 9, colour)
        picture.text(x + 14, low, law.name, size=11)
    y += 20 * (len(STOCK) // _LEGENDS)
    picture.line([(20, y - 4), (42, y - 4)], _BLUES[1], 2.2)
    picture.text(48, y, f"ours, wanted {min(EPS):.2f} to {max(MORE_EPS):.2f}", size=11)
    return picture.render()


def _plane(picture: Picture, table: Table, scene: Scenario, corner: tuple[float, float]) -> None:
    x0, y0 = corner
    width, height = _PANEL_W - 70, _PANEL_H - 50
    mine = [table.get(Key(law.name, scene.name)) for law in OURS]
    points = sorted((cell.mean("moved"), cell.mean("final")) for cell in mine if cell)
    stock = [
        (cell.mean("moved"), cell.mean("final"))
        for cell in (table[Key(law.name, scene.name)] for law in STOCK)
    ]
    right = max(1.6 * max(x for x, _ in points), min(max(x for x, _ in stock), 1.0), 0.05)
    high = min(max(*(y for _, y in [*points, *stock]), 1.1) + 0.03, _HIGHEST)

    def place(moved: float, final: float) -> tuple[float, float]:
        y = y0 + height * (1.0 - (min(final, high) - 1.0) / (high - 1.0))
        return x0 + width * min(moved, right) / right, y

    picture.text(x0, y0 - 8, scene.name, bold=True)
    for part in (0.0, 0.5, 1.0):
        value = 1.0 + part * (high - 1.0)
        ends = [place(0, value), place(right, value)]
        picture.line(ends, GRID, 1)
        picture.text(x0 - 5, ends[0][1] + 4, f"{value:.2f}", anchor="end", size=10)
        x = x0 + width * part
        picture.text(x, y0 + height + 14, f"{part * right:.2f}", anchor="middle", size=10)
    picture.line([place(0, 1.15), place(right, 1.15)], QUIET, 0.8, "4 3") if high > 1.15 else None
    picture.line([place(*point) for point in points], _BLUES[1], 1.4)
    for point in points:
        x, y = place(*point)
        picture.rect(x - 3, y - 3, 6, 6, _BLUES[1])
    for point, colour in zip(stock, _COLOURS, strict=True):
        x, y = place(*point)
        picture.rect(x - 4.5, y - 4.5, 9, 9, colour)
        if point[0] > right:
            picture.text(x + 8, y + 4, f"{point[0]:.1f}", size=10, colour=INK)
