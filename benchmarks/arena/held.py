"""Our law on brokers that hold to limits by other throttle laws than the rest of the arena's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.arena.contenders import Contender, play
from benchmarks.arena.grid import JUDGED_FROM
from benchmarks.arena.scenarios import CONDITIONS, Scenario, draw
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
"""So many rounds before the next shift a phase has settled, also where bursts are long."""


@dataclass(frozen=True)
class Held:
    """What one of ours reached; see ``figures``."""

    law: str
    terms: ThrottleTerms
    settled_worst: float | None
    utilisation: float
    jain_mean: float
    overshoot_worst: float
    used: float
    """Of the quota, on average at the end of the scenario's phases in which all is wanted."""


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
                worst = None if None in took else max(took)
                used = float((run.usage[late].sum(axis=1) / run.quota[late]).mean())
                rest = (one[name] for name in ("utilisation", "jain_mean", "overshoot_worst"))
                found.append(Held(law.name, terms, worst, *rest, used))
    return found


def section(held: Sequence[Held]) -> list[str]:
    """Its part of the page."""
    told, guessed = (
        [one for one in held if one.law == law] for law in dict.fromkeys(one.law for one in held)
    )
    lines = [
        "## Other throttle laws",
        "",
        "Above, limits are token buckets of one second. Here brokers enforce them by each throttle",
        f'law and mode, in "{SCENARIO}" without noise. *Windows* is how far back the law looks.',
        "*Used* is the part of the quota that was used in the last rounds of the phases in which",
        "all of it is wanted, on average: what the law itself lets through. *Rounds to settle* are",
        "those of the worst shift. The first figure is of brokers that report what they refused,",
        "the second of those that don't.",
        "",
        "| law | mode | windows | rounds to settle | utilisation | Jain | overshoot | used |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for one, other in zip(told, guessed, strict=True):
        by = one.terms
        settled = " / ".join(
            "never" if each.settled_worst is None else f"{each.settled_worst:g}"
            for each in (one, other)
        )
        lines.append(
            f"| {by.law.value} | {by.mode.value} | {by.samples} of {by.window_s:g} s | {settled} "
            f"| {one.utilisation:.3f} / {other.utilisation:.3f} "
            f"| {one.jain_mean:.3f} / {other.jain_mean:.3f} "
            f"| {one.overshoot_worst:.0%} / {other.overshoot_worst:.0%} "
            f"| {one.used:.0%} / {other.used:.0%} |"
        )
    return [
        *lines,
        "",
        "A law that looks further back than one report covers lets a client use several rounds'",
        "limit at once and then nothing, and again when the burst is no longer in its windows.",
        "KIP-599 has the token bucket because of that: its burst comes only once. A broker that",
        "does not report what it refused looks idle while its clients are delayed, and takes",
        "longer to settle.",
        "",
    ]
