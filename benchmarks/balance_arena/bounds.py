"""The least bytes that must be moved: an integer program on true loads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

import highspy
import numpy as np

from benchmarks.balance_arena.figures import LEVELS
from benchmarks.balance_arena.reach import forbidden, mean_use, pools
from benchmarks.balance_arena.scenario import Scenario
from benchmarks.balance_arena.scenarios import beginning, named
from benchmarks.balance_arena.verdicts import Bounds
from benchmarks.balance_arena.world import CAPACITY_BYTES_PER_S, World
from quotaplane.errors import QuotaplaneError
from quotaplane.model import FloatArray

_GAP: Final = 0.01
_WITHIN_S: Final = 600.0


def least_bytes(scenes: Sequence[Scenario], most_seeds: int, processes: int) -> Bounds:
    """Least bytes to move at the beginning of scenarios with a bound, as part of the cluster's."""
    jobs = [
        (scene.name, seed)
        for scene in scenes
        for seed in range(min(scene.seeds, most_seeds) if scene.bound else 0)
    ]
    with ProcessPoolExecutor(processes) as pool:
        return dict(zip(jobs, pool.map(_of_start, jobs), strict=True))


def _of_start(job: tuple[str, int]) -> tuple[float, ...]:
    name, seed = job
    scene = named(name)
    world, factors = scene.make(beginning(seed))
    if factors:
        world.rates = world.rates * factors(0)[:, None]
    size = world.bundle_rates()[:, :2].sum(axis=1)
    world.policies = scene.policies_at(scene.minutes)
    capacity, mean = CAPACITY_BYTES_PER_S * world.size, mean_use(world, size, pools(world))
    return tuple(
        float(least(world, size, level * mean * capacity) / size.sum()) for level in LEVELS
    )


def least(world: World, size: FloatArray, most: FloatArray) -> float:
    """Bytes that must be moved so that isolation policies hold, and no broker carries too much.

    Minimises the sum of moved sizes, with a variable for each bundle and each other broker that it
    may be on; at most 1 % above the true minimum. Anti-affinity is left out.

    Args:
        world: The cluster.
        size: Bytes per second of each bundle; shape (N,).
        most: Bytes per second that each broker may carry, with foreign load; shape (B,).

    Raises:
        QuotaplaneError: there is no such placement, or it was not found in ten minutes.
    """
    owner, allowed = world.owner, pools(world)
    brokers, bundles = len(most), len(size)
    foreign = world.foreign * CAPACITY_BYTES_PER_S * world.size
    carried = foreign + np.bincount(owner, size, brokers)
    must = forbidden(world, allowed)
    if (carried <= most).all() and not must.any():
        return 0.0
    open_to = allowed.open_to[allowed.of_bundle]
    bundle, target = np.nonzero(open_to & (owner[:, None] != np.arange(brokers)))
    scale = size.mean()
    count = len(bundle)
    # A move out takes from its owner's row, adds to its target's, and a bundle moves at most once.
    starts = np.arange(0, 3 * count + 1, 3)
    index = np.stack([owner[bundle], target, brokers + bundle], axis=1).ravel()
    weight = size[bundle] / scale
    value = np.stack([-weight, weight, np.ones(count)], axis=1).ravel()
    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = count, brokers + bundles
    lp.col_cost_ = weight
    lp.col_lower_, lp.col_upper_ = np.zeros(count), np.ones(count)
    lp.row_lower_ = np.concatenate([np.full(brokers, -highspy.kHighsInf), must])
    # Rounding must not make a balanced cluster infeasible.
    slack = (most - carried) / scale + 1e-9
    lp.row_upper_ = np.concatenate([slack, np.ones(bundles)])
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_, lp.a_matrix_.index_, lp.a_matrix_.value_ = starts, index, value
    lp.integrality_ = [highspy.HighsVarType.kInteger] * count
    solver = highspy.Highs()
    solver.setOptionValue("output_flag", False)
    solver.setOptionValue("mip_rel_gap", _GAP)
    solver.setOptionValue("time_limit", _WITHIN_S)
    solver.passModel(lp)
    solver.run()
    if solver.getModelStatus() != highspy.HighsModelStatus.kOptimal:
        status = solver.modelStatusToString(solver.getModelStatus())
        raise QuotaplaneError(f"the least bytes were not found: {status}")
    return float(solver.getInfo().objective_function_value * scale)
