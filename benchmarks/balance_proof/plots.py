"""Two pictures per scene: the imbalance, and the longest publish, of all contenders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from benchmarks.arena.svg import COLOURS, GRID, INK, QUIET, Picture
from benchmarks.balance_proof.figures import GOALS
from benchmarks.balance_proof.record import SceneRecord
from quotaplane.model import FloatArray

_W: Final = 400.0
_H: Final = 190.0
_LEFT: Final = 56.0
_TOP: Final = 34.0
_GAP: Final = 84.0
_DASHES: Final = "6 4"


def picture(records: Sequence[SceneRecord], titles: Sequence[str]) -> str:
    """SVG text: on the left max/mean, on the right the longest publish; a line per contender."""
    drawn = Picture(2 * _LEFT + 2 * _W + _GAP, _TOP + _H + 66)
    imbalance = [record.max_mean() for record in records]
    longest = [np.asarray(record.longest_ms) / 1000.0 for record in records]
    top = max(float(values.max()) for values in imbalance)
    levels = np.arange(1.0, top + 0.25, 0.25)
    _panel(drawn, _LEFT, "Busiest broker by the mean", imbalance, levels, GOALS)
    highest = max(0.5, max(float(values.max()) for values in longest))
    step = next(step for step in (0.1, 0.25, 0.5, 1, 2, 5, 10, 20, 50) if highest / step <= 6)
    levels = np.arange(0.0, highest + step, step)
    _panel(drawn, _LEFT + _W + _GAP, "Longest publish, seconds", longest, levels, ())
    x = _LEFT
    for place, title in enumerate(titles):
        drawn.line([(x, _TOP + _H + 46), (x + 24, _TOP + _H + 46)], COLOURS[place], 2)
        drawn.text(x + 30, _TOP + _H + 50, title, colour=QUIET)
        x += 60 + 7.0 * len(title)
    return drawn.render()


def _panel(
    drawn: Picture,
    x0: float,
    title: str,
    lines: Sequence[FloatArray],
    levels: FloatArray,
    goals: Sequence[float],
) -> None:
    low, high = float(levels[0]), float(levels[-1])
    seconds = max(len(values) for values in lines)

    def y_of(value: float) -> float:
        return _TOP + _H * (1.0 - (value - low) / (high - low))

    drawn.text(x0, _TOP - 12, title, bold=True)
    for level in levels.tolist():
        drawn.line([(x0, y_of(level)), (x0 + _W, y_of(level))], GRID, 1)
        drawn.text(x0 - 6, y_of(level) + 4, f"{level:g}", anchor="end", size=10, colour=QUIET)
    for goal in goals:
        if low < goal < high:
            drawn.line([(x0, y_of(goal)), (x0 + _W, y_of(goal))], INK, 1, _DASHES)
    for second in range(0, seconds + 1, 30):
        x = x0 + _W * second / seconds
        drawn.text(x, _TOP + _H + 16, f"{second} s", anchor="middle", size=10, colour=QUIET)
    for place, values in enumerate(lines):
        points = [
            (x0 + _W * at / seconds, y_of(min(value, high)))
            for at, value in enumerate(values.tolist())
        ]
        drawn.line(points, COLOURS[place], 2)
