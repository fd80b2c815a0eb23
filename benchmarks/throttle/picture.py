"""The picture of docs/explain/throttle-laws.md: four laws, one burst."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from benchmarks.arena.svg import COLOURS, GRID, INK, QUIET, Picture
from quotaplane.throttle.bank import FORMS
from quotaplane.throttle.types import Answers, Quotas, Requests, ThrottleLaw
from quotaplane.throttle.waves import answer

QUOTA, SAMPLES, BURST, BURST_S, SECONDS = 5.0, 20, 150.0, 10.0, 40.0
EVERY_S: Final = 0.5
_BEGIN_MS: Final = 1_700_000_000_000
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP_X, _GAP_Y = 360.0, 130.0, 52.0, 40.0, 76.0, 84.0
_LOW, _HIGH = -80.0, 110.0
_ADMITTED, _REFUSED = COLOURS[2], COLOURS[3]


def burst_at(law: ThrottleLaw) -> tuple[Requests, Answers]:
    """One unit every half second, a burst at ten, and how a law answers them, hard."""
    seconds = np.arange(0.0, SECONDS, EVERY_S)
    units = np.where(seconds == BURST_S, BURST, 1.0)
    at_ms = _BEGIN_MS + np.rint(seconds * 1000).astype(np.int64)
    requests = Requests(np.zeros(len(units), np.int64), at_ms, units)
    quotas = Quotas.of([QUOTA], samples=SAMPLES, hard=True)
    form: Any = FORMS[law]
    return requests, answer(form, form.begin(quotas), quotas, requests)[1]


def picture() -> str:
    """The picture as a file's text."""
    drawn = Picture(2 * _WIDTH + _LEFT + _GAP_X + 20, 2 * (_HEIGHT + _GAP_Y) + _TOP + 4)
    for place, law in enumerate(FORMS):
        x0 = _LEFT + (_WIDTH + _GAP_X) * (place % 2)
        y0 = _TOP + (_HEIGHT + _GAP_Y) * (place // 2)
        _panel(drawn, law, x0, y0)
    y = _TOP + 2 * (_HEIGHT + _GAP_Y) - 10
    x = _LEFT
    for words, colour in [
        ("what is left, in units", COLOURS[0]),
        ("admitted", _ADMITTED),
        ("refused", _REFUSED),
    ]:
        drawn.line([(x, y - 4), (x + 22, y - 4)], colour, 3)
        drawn.text(x + 28, y, words, colour=QUIET)
        x += 52 + 7 * len(words)
    return drawn.render()


def _panel(drawn: Picture, law: ThrottleLaw, x0: float, y0: float) -> None:
    requests, answers = burst_at(law)
    seconds = (requests.at_ms - _BEGIN_MS) / 1000.0

    def x(second: float) -> float:
        return x0 + _WIDTH * second / SECONDS

    def y(units: float) -> float:
        return y0 + _HEIGHT * (_HIGH - units) / (_HIGH - _LOW)

    drawn.text(x0, y0 - 20, law.value, bold=True)
    drawn.text(x0 + _WIDTH, y0 - 20, _told(seconds, answers), anchor="end", colour=QUIET)
    for units in (-50, 0, 50, 100):
        drawn.line([(x0, y(units)), (x0 + _WIDTH, y(units))], QUIET if units == 0 else GRID, 1)
        drawn.text(x0 - 6, y(units) + 4, str(units), anchor="end", size=10, colour=QUIET)
    for second in range(0, int(SECONDS) + 1, 10):
        drawn.text(x(second), y0 + _HEIGHT + 26, f"{second} s", anchor="middle", size=10)
    drawn.line([(x(BURST_S), y0), (x(BURST_S), y0 + _HEIGHT)], QUIET, 1, "2 2")
    drawn.text(x(BURST_S), y0 - 4, f"asks for {BURST:.0f}", anchor="middle", size=10, colour=INK)
    steps = []
    for second, units in zip(seconds.tolist(), answers.balance.tolist(), strict=True):
        steps += [(x(second), steps[-1][1] if steps else y(units)), (x(second), y(units))]
    drawn.line(steps, COLOURS[0], 2)
    for second, admitted in zip(seconds.tolist(), answers.admitted.tolist(), strict=True):
        colour = _ADMITTED if admitted else _REFUSED
        drawn.rect(x(second) - 1.5, y0 + _HEIGHT + 4, 3, 8, colour)


def _told(seconds: Any, answers: Answers) -> str:
    """Time that the first refusal asks to wait, and what became of it."""
    first = int((~answers.admitted).argmax())
    wait_ms = answers.throttle_ms[first]
    if np.isinf(wait_ms):
        return "the burst never fits; all else is admitted"
    again = first + int(answers.admitted[first:].argmax())
    waited_s = seconds[again] - seconds[first]
    return f"next: come back in {wait_ms / 1000:g} s; admitted after {waited_s:g} s"
