"""Plays phases one after another, with normal load between them, and makes their figures."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import NamedTuple

from benchmarks.overload.figures import (
    Figures,
    Published,
    Write,
    goodput,
    of_writes,
    useful_after_s,
)
from benchmarks.overload.phases import NORMAL, Phase


class Span(NamedTuple):
    """A phase that was played; times in seconds since 1970."""

    phase: Phase
    begin_s: float
    end_s: float
    rounds: int
    peak_gb: float
    load_average: float


def play_all(
    phases: Sequence[Phase],
    play: Callable[[Phase], None],
    rounds: Callable[[], int],
    memory_gb: Callable[[], float],
) -> list[Span]:
    """Play the phases; a line for each goes to stdout.

    Args:
        phases: without those of normal load.
        play: returns when the phase is over.
        rounds: how many rounds ended so far.
        memory_gb: the most memory since its last call.
    """
    spans = []
    for phase in [NORMAL, *(each for fault in phases for each in (fault, NORMAL))]:
        begin_s, before = time.time(), rounds()
        memory_gb()
        play(phase)
        ended, load_average = rounds() - before, os.getloadavg()[0]
        spans.append(Span(phase, begin_s, time.time(), ended, memory_gb(), load_average))
        print(f"{phase.name}: {ended} rounds, load average {load_average:.1f}", flush=True)
    return spans


def figures_of(spans: Sequence[Span], found: Published, writes: Sequence[Write]) -> list[Figures]:
    """The figures of the first normal load and of all phases."""
    run_at = f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M}"
    normal_goodput = goodput(found, spans[0].begin_s, spans[0].end_s)[0]
    figures = []
    for number, span in enumerate(spans):
        if span.phase is NORMAL and number:
            continue
        until_s = spans[number + 1].end_s if number + 1 < len(spans) else span.end_s
        figures.append(
            Figures(
                span.phase.key,
                *goodput(found, span.begin_s, span.end_s),
                useful_after_s(found, span.end_s, until_s),
                *of_writes(writes, span.begin_s, span.end_s),
                rounds=span.rounds,
                peak_gb=span.peak_gb,
                load_average=span.load_average,
                normal_goodput=normal_goodput,
                run_at=run_at,
            )
        )
    return figures
