"""A model of what a round needs, fitted to measured sizes: processor time, memory, bytes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np


class Size(NamedTuple):
    """What a round has to do with."""

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


@dataclass(frozen=True)
class Costs:
    """What a round needs; all lines are of the same sizes."""

    tasks_s: Line
    """Processor seconds of all executors."""
    driver_s: Line
    """Processor seconds of the driver, which no executor takes off it."""
    executors_gb: Line
    """Peak memory of all executors together; ``fixed``: of one."""
    driver_gb: Line
    """Peak memory of the driver."""
    to_driver: Line
    """Bytes that tasks send to the driver."""


class Machines(NamedTuple):
    """Machines for a job."""

    cores: float
    """Of all executors; inf: the driver alone takes longer than a round may."""
    executors_gb: float
    driver_s: float
    driver_gb: float


def machines(costs: Costs, size: Size, round_s: float) -> Machines:
    """Machines with which a round takes ``round_s`` seconds.

    Tasks and driver take turns, so tasks have what the driver leaves of a round.

    >>> none = Line(0, 0, 0, 0)
    >>> costs = Costs(Line(0, 0, 6e-6, 0), Line(1, 0, 0, 0), none, none, none)
    >>> machines(costs, Size(1e6, 5e6, 5e6), round_s=11.0).cores
    3.0
    >>> machines(costs, Size(1e6, 5e6, 5e6), round_s=1.0).cores
    inf
    """
    driver_s = costs.driver_s.at(size)
    left_s = round_s - driver_s
    cores = costs.tasks_s.at(size) / left_s if left_s > 0 else math.inf
    return Machines(cores, costs.executors_gb.at(size), driver_s, costs.driver_gb.at(size))
