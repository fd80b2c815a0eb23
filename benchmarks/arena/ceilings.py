"""Upper bounds of results: with the future known, and with demand seen a round late."""

from __future__ import annotations

import numpy as np

from benchmarks.arena.scenarios import Scenario
from quotaplane.model import BoolArray, FloatArray
from quotaplane.sim.figures import fair_shares
from quotaplane.sim.loop import ArrivedReports, Run


def best_limits(demand: FloatArray, quota: FloatArray, alive: BoolArray) -> FloatArray:
    """Max-min fair shares of a known demand, and the spare divided evenly among the living.

    ``demand`` and ``alive`` have shape (rounds, brokers), ``quota`` (rounds,); rounds are divided
    each by itself.

    >>> best_limits(np.array([[90.0, 10.0], [30.0, 10.0]]), np.array([60.0, 60.0]),
    ...             np.ones((2, 2), dtype=bool)).tolist()
    [[50.0, 10.0], [40.0, 20.0]]
    """
    wants = np.where(alive, demand, 0.0)
    fair = fair_shares(wants, quota)
    spare = np.maximum(quota - fair.sum(axis=1), 0.0) / np.maximum(alive.sum(axis=1), 1)
    return np.where(alive, fair + spare[:, None], 0.0)


def clairvoyant(demand: FloatArray, scenario: Scenario) -> Run:
    """The limits of each round from that round's own demand, quota and living brokers."""
    limit = best_limits(demand, scenario.quota, scenario.alive)
    wants = np.where(scenario.alive, demand, 0.0)
    return Run(wants, limit, np.minimum(wants, limit), scenario.alive, scenario.quota)


class CausalOptimum:
    """The exact answer to the round that has just ended: true demand, seen one round late.

    It needs no reports: it sees what everybody wanted, and who lives. Nobody can do better who has
    to wait for a round's end; what is beyond it is luck.
    """

    initial_limit = np.inf

    def __init__(self, demand: FloatArray, scenario: Scenario) -> None:
        self._limits = best_limits(demand, scenario.quota, scenario.alive)
        self._alive = scenario.alive

    def decide(self, round_: int, arrived: ArrivedReports, quota: float) -> FloatArray:
        """See ``quotaplane.sim.loop.Controller``."""
        return np.where(self._alive[round_], self._limits[round_], np.nan)
