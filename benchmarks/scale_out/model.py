"""A model of what a round needs, fitted to measured sizes: processor time, memory, bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Size(NamedTuple):
    """How much a round has to do."""

    groups: float
    entries: float
    """Pairs of a group and a broker that it is on."""
    reported: float
    """Entries that the round's reports have; nearly all of them get a new limit."""


class Line(NamedTuple):
    """A quantity (seconds, bytes) that grows with each part of a size.

    >>> Line(0.5, 1e-6, 2e-6, 3e-6).at(Size(groups=1e5, entries=5e5, reported=5e5))
    3.1
    """

    fixed: float
    group: float
    entry: float
    reported: float

    def at(self, size: Size) -> float:
        """The quantity at a size."""
        return self.fixed + sum(each * count for each, count in zip(self[1:], size, strict=True))


def fitted(sizes: Sequence[Size], found: Sequence[float]) -> Line:
    """The line with the least sum of squared relative errors; no part of it is negative.

    Raises:
        ValueError: there are fewer than four sizes.

    >>> line = Line(0.5, 1e-6, 2e-6, 3e-6)
    >>> sizes = [Size(1e5, 5e5, 5e5), Size(1e5, 5e5, 5e4), Size(1e5, 2e6, 2e6), Size(3e5, 1e6, 1e5)]
    >>> [round(each * 1e6, 3) for each in fitted(sizes, [line.at(size) for size in sizes])]
    [500000.0, 1.0, 2.0, 3.0]
    """
    if len(sizes) < len(Line._fields):
        raise ValueError(f"{len(sizes)} sizes do not tell apart {len(Line._fields)} parts")
    # In units in which the parts are alike, as the solver takes tiny ones for nothing.
    units = np.array([1.0, 1e-5, 1e-6, 1e-6])
    measured = np.array(found, float)
    rows = np.column_stack([np.ones(len(sizes)), np.array(sizes)]) * units / measured[:, None]
    kept = list(range(len(units)))
    while True:
        part, *_ = np.linalg.lstsq(rows[:, kept], np.ones(len(sizes)), rcond=None)
        if (part >= 0).all() or len(kept) == 1:
            break
        del kept[int(np.argmin(part))]
    line = np.zeros(len(units))
    line[kept] = part
    return Line(*(line * units).tolist())


def straight(at: Sequence[float], found: Sequence[float]) -> tuple[float, float]:
    """The line with the least sum of squared errors: its value at 0, and its slope.

    >>> straight([1.0, 2.0, 3.0], [3.0, 5.0, 7.0])
    (1.0, 2.0)
    """
    slope, fixed = np.polyfit(at, found, 1)
    return round(float(fixed), 12), round(float(slope), 12)


@dataclass(frozen=True)
class Costs:
    """All that a round needs, by its size."""

    tasks_s: Line
    """Processor seconds of all executors."""
    driver_s: Line
    """Processor seconds of the driver, which no executor takes off it."""
    to_driver: Line
    """Bytes that tasks send to the driver's Python."""
    worker_gb: tuple[float, float]
    """Memory of Python on an executor's core: fixed, and for each entry of a shard."""
    jvm_gb: tuple[float, float]
    """Memory of an executor's JVM: fixed, and for each entry that the executor has."""
    driver_gb: tuple[float, float]
    """Memory of the driver: fixed, and for each entry of the job."""


class Machines(NamedTuple):
    """Machines for a job."""

    driver_s: float
    """The driver's part of a round."""
    cores: float
    """Cores of all executors; inf: the driver alone takes longer than a round may."""
    executors_gb: float
    """Memory of all executors."""
    driver_gb: float


def machines(costs: Costs, size: Size, shards: int, round_s: float) -> Machines:
    """Machines with which a round takes ``round_s`` seconds.

    Tasks and driver take turns, so tasks have what the driver leaves of a round. Each executor has
    one core, as those that were measured.

    >>> none = Line(0, 0, 0, 0)
    >>> costs = Costs(Line(0, 0, 6e-6, 0), none, none, (1.0, 0.0), (0.5, 1e-6), (1.0, 0.0))
    >>> machines(costs, Size(1e6, 5e6, 5e6), 8, round_s=7.5)
    Machines(driver_s=0.0, cores=4, executors_gb=11.0, driver_gb=1.0)
    >>> machines(Costs(none, Line(9, 0, 0, 0), *[none, (0, 0), (0, 0), (0, 0)]),
    ...     Size(1, 1, 1), 8, round_s=5.0).cores
    inf
    """
    driver_s = costs.driver_s.at(size)
    driver_gb = costs.driver_gb[0] + costs.driver_gb[1] * size.entries
    if driver_s >= round_s:
        return Machines(driver_s, math.inf, math.inf, driver_gb)
    cores = max(math.ceil(costs.tasks_s.at(size) / (round_s - driver_s)), 1)
    of_core = costs.worker_gb[0] + costs.worker_gb[1] * size.entries / shards
    executors_gb = cores * (of_core + costs.jvm_gb[0]) + costs.jvm_gb[1] * size.entries
    return Machines(driver_s, cores, executors_gb, driver_gb)
