"""The least bytes that must be moved: an integer program on true loads."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from typing import Final

import highspy
import numpy as np

from benchmarks.balance_arena.figures import LEVELS
from benchmarks.balance_arena.scenarios import Scenario, beginning, named
from benchmarks.balance_arena.verdicts import Bounds
from benchmarks.balance_arena.world import CAPACITY_BYTES_PER_S
from quotaplane.errors import QuotaplaneError
from quotaplane.model import FloatArray, IntArray

_GAP: Final = 0.01
_WITHIN_S: Final = 60.0


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
    (scene,) = named([name])
    world, factors = scene.make(beginning(seed))
    if factors:
        world.rates = world.rates * factors(0)[:, None]
    size = world.bundle_rates()[:, :2].sum(axis=1)
    capacity = CAPACITY_BYTES_PER_S * world.size
    return tuple(
        float(least(size, world.owner, capacity, world.foreign * capacity, level) / size.sum())
        for level in LEVELS
    )


def least(
    size: FloatArray, owner: IntArray, capacity: FloatArray, foreign: FloatArray, level: float
) -> float:
    """Bytes that must be moved so that no broker's use exceeds ``level`` times the mean use.

    Minimises the sum of moved sizes, with a variable for each bundle and each other broker; at most
    1 % above the true minimum.

    Args:
        size: Bytes per second of each bundle; shape (N,).
        owner: Its broker; shape (N,).
        capacity: Bytes per second that each broker can carry; shape (B,).
        foreign: The part of it that other programs use; shape (B,).
        level: At least 1.

    Raises:
        QuotaplaneError: there is no such placement, or it was not found in a minute.

    >>> size, owner = np.array([3.0, 2.0, 1.0]), np.array([0, 0, 0])
    >>> round(least(size, owner, np.full(2, 10.0), np.zeros(2), 1.0), 6)
    3.0
    """
    brokers, bundles = len(capacity), len(size)
    carried = foreign + np.bincount(owner, size, brokers)
    most = level * carried.sum() / capacity.sum() * capacity
    if (carried <= most).all():
        return 0.0
    bundle, target = np.nonzero(owner[:, None] != np.arange(brokers))
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
    lp.row_lower_ = np.full(brokers + bundles, -highspy.kHighsInf)
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
        raise QuotaplaneError(f"the least bytes for {level:.2f} were not found: {status}")
    return float(solver.getInfo().objective_function_value * scale)
