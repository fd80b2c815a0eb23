"""The numbers of a running program at one moment: what its metrics are read from."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

Key: TypeAlias = tuple[str, ...]
"""The values of a metric's labels, in their order; () = it has none."""

Numbers: TypeAlias = Mapping[Key, float]
"""A number for each combination of label values."""


class Distribution(NamedTuple):
    """How long something took, so far."""

    counts: Sequence[int]
    """How many took at most each bound of ``Durations.bounds``, and longer than the one before; the
    last one is how many took longer than all bounds."""
    total_s: float
    """How long all of them took together."""


@dataclass(frozen=True)
class Readings:
    """Numbers by the name that a metric's ``source`` has."""

    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    """Counts since the start, and current values; a name without a number is not known."""
    durations: Mapping[str, Mapping[Key, Distribution]] = field(default_factory=dict)


class Durations:
    """Counts durations by bounds, as a histogram needs it. Not thread-safe.

    >>> durations = Durations([0.1, 1.0])
    >>> for seconds in (0.05, 0.1, 0.5, 30.0):
    ...     durations.add(seconds)
    >>> durations.read()
    Distribution(counts=(2, 1, 1), total_s=30.65)
    """

    def __init__(self, bounds: Sequence[float]) -> None:
        """``bounds``: in seconds, ascending."""
        self.bounds = tuple(bounds)
        self._counts = [0] * (len(self.bounds) + 1)
        self._total_s = 0.0

    def add(self, seconds: float) -> None:
        """Count one duration."""
        self._counts[bisect_left(self.bounds, seconds)] += 1
        self._total_s += seconds

    def read(self) -> Distribution:
        """The counts so far."""
        return Distribution(tuple(self._counts), self._total_s)
