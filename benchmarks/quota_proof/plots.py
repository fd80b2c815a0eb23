"""One picture per scenario: a panel for each contender, what got through at each broker."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from benchmarks.arena.svg import COLOURS, GRID, INK, QUIET, Picture
from benchmarks.quota_proof.figures import WINDOW_S, fair, means
from benchmarks.quota_proof.record import SLOTS_PER_S, Record
from quotaplane.model import FloatArray, IntArray

_PANEL_W, _PANEL_H, _GAP = 400, 190, 76
_LEFT, _TOP = 50, 34
_EVERY = SLOTS_PER_S // 2
_DOTS, _DASHES = "1.5 3", "6 4"


def picture(records: Sequence[Record], titles: Sequence[str]) -> str:
    """SVG text; the records are of one scenario, and all panels have one scale."""
    width = _LEFT + max(2, len(records)) * (_PANEL_W + _GAP) - _GAP + 20
    drawn = Picture(width, _TOP + _PANEL_H + 66)
    peak = max(float(_seconds(_usage(record).sum(axis=1)).max()) for record in records)
    top = 1.08 * max(peak, max(max(record.quota) for record in records))
    for place, (record, title) in enumerate(zip(records, titles, strict=True)):
        _panel(drawn, record, title, _LEFT + place * (_PANEL_W + _GAP), top)
    _legend(drawn, len(records[0].usage), _TOP + _PANEL_H + 52)
    return drawn.render()


def _panel(drawn: Picture, record: Record, title: str, x0: float, top: float) -> None:
    times = record.times

    def path(values: FloatArray, at_s: FloatArray) -> list[tuple[float, float]]:
        turns = _turns(values)
        values, at_s = values[turns], at_s[turns]
        x = x0 + _PANEL_W * (at_s - times[0]) / (times[-1] - times[0])
        y = _TOP + _PANEL_H * (1.0 - np.minimum(values, top) / top)
        return list(zip(x.tolist(), y.tolist(), strict=True))

    drawn.text(x0, _TOP - 12, title, bold=True)
    for level in _levels(top):
        ((_, y),) = path(np.array([level]), times[:1])
        drawn.line([(x0, y), (x0 + _PANEL_W, y)], GRID, 1)
        drawn.text(x0 - 6, y + 4, f"{level:.0f}", anchor="end", size=10, colour=QUIET)
    for at_s in np.arange(np.ceil(times[0] / 10) * 10, times[-1], 10):
        ((x, _),) = path(np.zeros(1), np.array([at_s]))
        drawn.text(x, _TOP + _PANEL_H + 15, f"{at_s:.0f} s", anchor="middle", size=10, colour=QUIET)
    ((x, _),) = path(np.zeros(1), np.zeros(1))
    drawn.line([(x, _TOP), (x, _TOP + _PANEL_H)], QUIET, 1, "2 2")
    usage, due = _usage(record), fair(record)[::_EVERY]
    fair_times = times[: 1 - round(WINDOW_S * SLOTS_PER_S) : _EVERY] + WINDOW_S / 2
    middles = times[: 1 - SLOTS_PER_S : _EVERY] + 0.5
    drawn.line(path(np.asarray(record.quota), times), QUIET, 1.6, _DASHES)
    drawn.line(path(_seconds(usage.sum(axis=1)), middles), INK, 1.2)
    for broker in range(usage.shape[1]):
        drawn.line(path(due[:, broker], fair_times), COLOURS[broker], 1.6, _DOTS)
    for broker in range(usage.shape[1]):
        drawn.line(path(_seconds(usage[:, broker]), middles), COLOURS[broker], 2)


def _legend(drawn: Picture, brokers: int, y: float) -> None:
    entries = [(f"broker {place + 1}", COLOURS[place], "", 2.0) for place in range(brokers)]
    entries += [
        ("its fair share", COLOURS[0], _DOTS, 1.6),
        ("all together", INK, "", 1.2),
        ("quota", QUIET, _DASHES, 1.6),
    ]
    x = float(_LEFT)
    for words, colour, dash, width in entries:
        drawn.line([(x, y - 4), (x + 24, y - 4)], colour, width, dash)
        drawn.text(x + 30, y, words, colour=QUIET)
        x += 50 + 6.6 * len(words)


def _levels(top: float) -> list[float]:
    decade = 10.0 ** math.floor(math.log10(top / 6))
    step = next(step for part in (1, 2, 2.5, 5, 10) if top / (step := part * decade) <= 6)
    return np.arange(0.0, top, step).tolist()


def _usage(record: Record) -> FloatArray:
    return np.asarray(record.usage, dtype=np.float64).T


def _seconds(values: FloatArray) -> FloatArray:
    """Means over a second: tenths show the brokers' token buckets, and little else."""
    return means(values, 1.0)[::_EVERY]


def _turns(values: FloatArray) -> IntArray:
    """The points that a line cannot do without: where it goes on as it came, none is needed."""
    bends = np.flatnonzero(np.diff(values, n=2)) + 1
    return np.union1d(bends, [0, len(values) - 1])
