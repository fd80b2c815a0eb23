"""Faults that a seed enables happen at random times, each as often as the seed says."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random

from tests.simulation.virtual_time import Timeline


class RandomFaults:
    """Lets faults happen until they are ``over``; the fault ``name`` is the method ``_name``.

    Args:
        rates: times per second by name.
        timeline: of the run.
        rng: the run's.
    """

    def __init__(self, rates: Mapping[str, float], timeline: Timeline, rng: Random) -> None:
        self._rates, self._timeline, self.rng = rates, timeline, rng
        self.over = False

    def begin(self) -> None:
        """Let the enabled faults happen from now on."""
        for name in self._rates:
            self._plan(name)

    def _plan(self, name: str) -> None:
        wait_ms = int(1000 * self.rng.expovariate(self._rates[name]))
        self._timeline.after(wait_ms, lambda: self._happen(name))

    def _happen(self, name: str) -> None:
        if not self.over:
            getattr(self, f"_{name}")()
            self._plan(name)
