"""The control loop on one quota, round by round: brokers measure, reports travel, a law answers.

One dimension of one group, for ``quotaplane simulate``. ``sim.world`` simulates a whole cluster
with its messages; here it is only the law, the estimate of demand, and what the network does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quotaplane.demand import estimate, probe
from quotaplane.laws import Law, Problem
from quotaplane.model import BoolArray, FloatArray
from quotaplane.settings import Demand


@dataclass(frozen=True)
class Run:
    """What happened; every array has shape (rounds, brokers), rates per second.

    ``limit`` is the one in force in the round, inf where there was none.
    """

    demand: FloatArray
    limit: FloatArray
    usage: FloatArray


def run_loop(
    demand: FloatArray,
    quota: float,
    law: Law,
    *,
    lost: BoolArray | None = None,
    delay_rounds: int = 0,
    estimation: Demand | None = None,
) -> Run:
    """Run a law on true demand of shape (rounds, brokers); ``quota`` inf is unlimited.

    At the end of round r the reports of round r - ``delay_rounds`` arrive, unless ``lost`` (same
    shape as ``demand``) has them lost; of a broker without a new report the last known holds. A
    broker that was never heard of is not limited. The new limits are in force in round r + 1.

    >>> from quotaplane.laws import get_law
    >>> run = run_loop(np.array([[80.0, 80.0]] * 2), 100.0, get_law("max_min"))
    >>> run.limit.tolist(), run.usage.tolist()
    ([[inf, inf], [50.0, 50.0]], [[80.0, 80.0], [50.0, 50.0]])
    """
    tuning = estimation or Demand()
    rounds, brokers = demand.shape
    limits, usage = np.full(demand.shape, np.inf), np.empty(demand.shape)
    heard_in = np.full(brokers, -1)  # the round that the newest report of each broker is about
    in_force = np.full(brokers, np.inf)
    for this in range(rounds):
        limits[this] = in_force
        usage[this] = np.minimum(demand[this], in_force)
        about = this - delay_rounds
        if about >= 0:
            heard_in[slice(None) if lost is None else ~lost[about]] = about
        known = np.flatnonzero(heard_in >= 0)
        if len(known):
            # Usage says something about demand only beside the limit of the round it is from.
            measured = usage[heard_in[known], known], limits[heard_in[known], known]
            in_force = in_force.copy()
            in_force[known] = _divide(*measured, quota, law, tuning)
    return Run(demand=demand, limit=limits, usage=usage)


def _divide(
    usage: FloatArray, limit: FloatArray, quota: float, law: Law, tuning: Demand
) -> FloatArray:
    """One answer of the law for one group whose brokers all weigh the same."""
    starts, quotas, weight = np.array([0, len(usage)]), np.array([quota]), np.ones(len(usage))
    wanted = estimate(
        usage,
        limit,
        np.full(len(usage), np.nan),
        headroom=tuning.headroom,
        saturated_from=tuning.saturated_from,
    )
    problem = Problem(
        starts=starts,
        quota=quotas,
        usage=usage,
        limit=limit,
        demand=probe(wanted, starts, quotas, weight, tuning.probe_share),
        weight=weight,
        floor=np.zeros(len(usage)),
    )
    return law(problem).limits
