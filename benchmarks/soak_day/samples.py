"""Use of memory, descriptors and threads by processes, and figures from many samples of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from quotaplane.model import FloatArray


class Use(NamedTuple):
    """Use by a process at one time."""

    memory_mb: float
    """Its own: anonymous pages in memory, without files that are mapped."""
    descriptors: int
    threads: int


def use_of(pid: int) -> Use:
    """Read it; Linux only."""
    status = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    anonymous_kb = int(status["RssAnon"].split()[0])
    return Use(anonymous_kb / 1024, len(os.listdir(f"/proc/{pid}/fd")), int(status["Threads"]))


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """The median of the slopes between all pairs of samples (Theil and Sen): outliers don't count.

    >>> slope([0.0, 1.0, 2.0, 3.0], [5.0, 7.0, 900.0, 11.0])
    2.0
    """
    x, y = np.asarray(at, float), np.asarray(values, float)
    first, second = np.triu_indices(len(x), 1)
    if not len(first):
        return float("nan")
    return float(np.median((y[second] - y[first]) / (x[second] - x[first])))


def without_warm_up(values: FloatArray, share: float = 1 / 3) -> FloatArray:
    """The later part of some samples.

    >>> without_warm_up(np.array([1.0, 2.0, 3.0]))
    array([2., 3.])
    """
    return values[int(len(values) * share) :]


def spread(values: Sequence[float]) -> float:
    """The largest difference from the median, as a share of it.

    >>> spread([95.0, 100.0, 103.0])
    0.05
    """
    middle = float(np.median(values))
    return float(np.abs(np.asarray(values) - middle).max()) / middle
