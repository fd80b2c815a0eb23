"""The results page: numbers as they were measured, with what was wished beside them."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.machine import machine
from benchmarks.prose import wrapped
from quotaplane.throttle.types import ThrottleLaw


class Measured(NamedTuple):
    """Seconds for all requests; None where Kafka has no such law."""

    law: ThrottleLaw
    spread: str
    throttled: float
    """The part of the requests that was delayed or refused."""
    arrays_s: float
    loop_s: float
    loop: str
    alone_s: float | None
    sensor_s: float | None


def page(found: Sequence[Measured], entities: int, count: int) -> str:
    """The page as Markdown, of ``count`` requests each."""
    lines = [
        "# Benchmarks of the throttle laws",
        "",
        *wrapped(
            "How fast quotaplane's throttle laws, which work on arrays, answer requests, beside a "
            "plain loop and Kafka's class in a warm JVM. [Throttle laws](../explain/"
            "throttle-laws.md) has the laws. `make bench-throttle` writes this page; do not edit "
            "it."
        ),
        "## Result",
        "",
        *wrapped(
            "Wished: at least 20 times as fast as the loop, and at most 3 times as long as Kafka's "
            "class, which runs alone, and in a `Sensor` as in Kafka's brokers. The loop is the "
            "fastest of several. Empty: Kafka has no such law."
        ),
        "| law | requests | times as fast as the loop | times as long as the class alone "
        "| as in a Sensor | requests a second |",
        "|---|---|---|---|---|---|",
        *(
            f"| {row.law.value} | {row.spread} | {row.loop_s / row.arrays_s:.1f} "
            f"| {_times(row.arrays_s, row.alone_s)} | {_times(row.arrays_s, row.sensor_s)} "
            f"| {_rate(count, row.arrays_s)} |"
            for row in found
        ),
        "",
        *wrapped(
            "Where it falls short: a wave has one request of every entity that has requests left. "
            "Requests of many entities need few operations; requests of a single entity are a "
            "loop in any form."
        ),
        "## Method",
        "",
        *wrapped(
            f"{count:,} requests of a minute, in one batch, to {entities:,} entities; each asks "
            "for half more than its quota, and half of them are hard. 11 windows of a second, "
            "Kafka's default. All contenders must give the same answers. Medians of five warm runs "
            "(the loop: one run) on one core; reading requests, making entities and starting a JVM "
            "are not counted."
        ),
        machine("numpy"),
        "",
        *wrapped(
            "`make bench-throttle` runs it again and writes "
            "[throttle/results.csv](throttle/results.csv): requests a second of each, and which "
            "loop was the fastest."
        ),
    ]
    return "\n".join(lines).rstrip() + "\n"


def rates_csv(found: Sequence[Measured], count: int) -> str:
    """Requests a second of each, as CSV."""
    out = io.StringIO()
    rows = csv.writer(out, lineterminator="\n")
    rows.writerow(["law", "requests", "throttled", "arrays", "loop", "loop_is", "alone", "sensor"])
    for row in found:
        arrays, loop, alone, sensor = (
            None if took_s is None else round(count / took_s)
            for took_s in (row.arrays_s, row.loop_s, row.alone_s, row.sensor_s)
        )
        throttled = f"{row.throttled:.2f}"
        rows.writerow([row.law.value, row.spread, throttled, arrays, loop, row.loop, alone, sensor])
    return out.getvalue()


def _times(ours_s: float, theirs_s: float | None) -> str:
    return "" if theirs_s is None else f"{ours_s / theirs_s:.1f}"


def _rate(count: int, took_s: float | None) -> str:
    return "" if took_s is None else f"{count / took_s:,.0f}"
