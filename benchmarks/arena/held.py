"""Our law on brokers that hold to limits by other throttle laws than the rest of the arena's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final

import numpy as np

from benchmarks.arena.contenders import Contender, play
from benchmarks.arena.grid import JUDGED_FROM
from benchmarks.arena.scenarios import CONDITIONS, Scenario, draw
from benchmarks.prose import wrapped
from quotaplane.sim.figures import figures
from quotaplane.throttle.terms import ThrottleTerms
from quotaplane.throttle.types import ThrottleLaw, ThrottleMode

WINDOWS: Final = (
    (ThrottleLaw.TOKEN_BUCKET, 1, 1.0),
    (ThrottleLaw.TOKEN_BUCKET, 11, 1.0),
    (ThrottleLaw.WINDOWED_RATE, 1, 1.0),
    (ThrottleLaw.WINDOWED_RATE, 11, 1.0),
    (ThrottleLaw.AMENDED_RATE, 10, 0.1),
    (ThrottleLaw.AMENDED_RATE, 11, 1.0),
    (ThrottleLaw.SLIDING_WINDOW, 10, 0.1),
    (ThrottleLaw.SLIDING_WINDOW, 11, 1.0),
)
"""(law, samples, seconds): windows of a second in all, and Kafka's eleven of a second."""

HELD_LAWS: Final = ("ours, fast", "ours, fast, stock reports")
"""The contenders of this part: one whose brokers report refusals, and one whose do not."""
SCENARIO: Final = "idle wakes"
"""Where they are tried."""

_LAST: Final = 8
"""Rounds before the next shift in which a phase has settled, also where bursts are long."""


@dataclass(frozen=True)
class Held:
    """Results of one of our contenders; see ``figures``."""

    law: str
    throttle_law: str
    mode: str
    windows: str
    settled_worst: float | None
    utilisation: float
    jain_mean: float
    overshoot_worst: float
    used: float
    """Part of the quota used at the end of phases in which all of it is wanted; a mean."""


def measure(laws: tuple[Contender, ...], scenario: Scenario) -> list[Held]:
    """Every way to hold to limits, by each of the laws; without noise."""
    case = draw(scenario, CONDITIONS[0], seed=0)
    shifts = [shift.round_ for shift in scenario.shifts]
    ends = [*shifts[1:], len(scenario.quota)]
    late = np.concatenate([np.arange(end - _LAST, end) for end in ends])
    late = late[scenario.demand[late].sum(axis=1) >= scenario.quota[late]]
    found = []
    for kind, samples, window_s in WINDOWS:
        for mode in ThrottleMode:
            terms = ThrottleTerms(law=kind, mode=mode, samples=samples, window_s=window_s)
            runs = play(scenario, [(law, case) for law in laws], terms)
            for law, run in zip(laws, runs, strict=True):
                one = figures(run, scenario.demand, shifts=shifts, judged_from=JUDGED_FROM)
                took = [phase["rounds_to_fair"] for phase in one["phases"]]
                worst = None if None in took else float(max(took))
                used = float((run.usage[late].sum(axis=1) / run.quota[late]).mean())
                rest = [one[name] for name in ("utilisation", "jain_mean", "overshoot_worst")]
                found.append(
                    Held(
                        law.name,
                        *(kind.value, mode.value, f"{samples} of {window_s:g} s", worst),
                        *(round(float(value), 9) for value in (*rest, used)),
                    )
                )
    return found


def section(held: Sequence[Held], csv: str) -> list[str]:
    """Its part of the page; ``csv`` is the file that has every figure."""
    lines = [
        "## Other throttle laws",
        "",
        *wrapped(
            f'Here brokers enforce limits by each throttle law, in "{SCENARIO}" without noise. '
            "*Windows* is how far back the law looks; *used* is the used part of the quota at the "
            "end of the phases in which all of it is wanted. *Stock reports*: brokers do not "
            f"report what they refused. The mode is soft; [{csv}]({csv}) has hard limits, too."
        ),
        "| law | windows | rounds to settle | used | stock reports: rounds to settle | used |",
        "|---|---|---|---|---|---|",
    ]
    soft = [one for one in held if one.mode == ThrottleMode.SOFT.value]
    for (law, windows), ones in groupby(soft, lambda one: (one.throttle_law, one.windows)):
        cells = [cell for one in ones for cell in (_settled(one), f"{one.used:.0%}")]
        lines.append(f"| {' | '.join((law, windows, *cells))} |")
    return [
        *lines,
        "",
        *wrapped(
            "A law that looks further back than one report covers lets a client use several "
            "rounds' limit at once and then nothing. A broker that does not report what it refused "
            "then looks idle while its clients are delayed. The token bucket allows its burst once "
            "only."
        ),
    ]


def _settled(one: Held) -> str:
    return "never" if one.settled_worst is None else f"{one.settled_worst:g}"
