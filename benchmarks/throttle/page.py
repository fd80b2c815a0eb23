"""The results page: numbers as they were measured, with what was wished beside them."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Final, NamedTuple

import numpy as np

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


_PAGE: Final = """\
# Benchmarks of the throttle laws

Written by `make bench-throttle`; nothing here is edited by hand. What is measured and how is
told in `benchmarks/throttle/`.

{count:,} requests of a minute, in one batch, to {entities:,} entities; each entity asks for
half more than its quota, and half of them are hard. 11 windows of a second, Kafka's default.
Whoever answers the same requests gives the same answers, or the run ends.

Machine: {cores} cores, one of them used, {system}; Python {python}, numpy {numpy}; {day}.

## Ratios

How many times as fast as the plain loop arrays are (wished: at least 20), and how many times as
long as Kafka's class in a warm JVM they take (wished: at most 3): the class alone, and in a
`Sensor` as in Kafka's brokers. The loop is the fastest of several: each request as it comes,
all of an entity together, the token bucket also written out by hand.

| law | requests | times as fast as the loop | times as long as the class alone | as in a Sensor |
|---|---|---|---|---|
{ratios}

A wave holds one request of every entity that is left. What is spread over many entities takes
few operations; what all goes to one is a loop, whoever answers it.

## Requests a second, on this machine

| law | requests | throttled | arrays | loop | class alone | in a Sensor |
|---|---|---|---|---|---|---|
{rates}

Medians of five warm runs (the loop: one run). Reading requests, making entities and starting a
JVM are not counted for anybody.
"""


def page(found: Sequence[Measured], entities: int, count: int) -> str:
    """The page as Markdown, of ``count`` requests each."""
    ratios = [
        f"| {row.law.value} | {row.spread} | {row.loop_s / row.arrays_s:.1f} "
        f"| {_times(row.arrays_s, row.alone_s)} | {_times(row.arrays_s, row.sensor_s)} |"
        for row in found
    ]
    rates = [
        f"| {row.law.value} | {row.spread} | {row.throttled:.0%} "
        f"| {_rate(count, row.arrays_s)} | {_rate(count, row.loop_s)} ({row.loop}) "
        f"| {_rate(count, row.alone_s)} | {_rate(count, row.sensor_s)} |"
        for row in found
    ]
    return _PAGE.format(
        count=count,
        entities=entities,
        cores=os.cpu_count(),
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        numpy=np.__version__,
        day=f"{datetime.now(timezone.utc):%Y-%m-%d}",
        ratios="\n".join(ratios),
        rates="\n".join(rates),
    )


def _times(ours_s: float, theirs_s: float | None) -> str:
    return "" if theirs_s is None else f"{ours_s / theirs_s:.1f}"


def _rate(count: int, took_s: float | None) -> str:
    return "" if took_s is None else f"{count / took_s:,.0f}"
