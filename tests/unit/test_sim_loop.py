"""The loop on one quota: what the network does to reports, and what the law is told."""

from __future__ import annotations

import numpy as np
import pytest

from quotaplane.laws import LAWS, Allocation, Problem, get_law
from quotaplane.sim.loop import run_loop


def test_a_lost_report_leaves_the_last_known_one() -> None:
    told: list[np.ndarray] = []

    def law(problem: Problem) -> Allocation:
        told.append(problem.usage.copy())
        return Allocation(np.full(2, 50.0), np.zeros(2, np.uint8))

    demand = np.array([[10.0, 20.0], [11.0, 21.0], [12.0, 22.0]])
    lost = np.array([[False, False], [True, False], [False, True]])
    run_loop(demand, 100.0, law, lost=lost)
    assert [usage.tolist() for usage in told] == [[10, 20], [10, 21], [12, 21]]


def test_a_broker_that_was_never_heard_is_not_limited() -> None:
    lost = np.zeros((4, 2), dtype=bool)
    lost[:3, 1] = True
    run = run_loop(np.full((4, 2), 80.0), 100.0, get_law("max_min"), lost=lost)
    assert np.isinf(run.limit[:, 1]).all()
    assert run.limit[1:, 0].tolist() == [100.0] * 3


def test_usage_is_told_beside_the_limit_of_its_own_round() -> None:
    """With the limits of two rounds ago in between, a used-up limit would not be noticed."""
    told: list[tuple[float, float, float]] = []
    give = iter([40.0, 60.0, 80.0, 90.0])

    def law(problem: Problem) -> Allocation:
        told.append((problem.usage[0], problem.limit[0], problem.demand[0]))
        return Allocation(np.array([next(give)]), np.zeros(1, np.uint8))

    run_loop(np.full((6, 1), 100.0), 100.0, law, delay_rounds=2)
    inf = float("inf")
    assert told == [
        (100.0, inf, pytest.approx(110.0)),
        (100.0, inf, pytest.approx(110.0)),
        (100.0, inf, pytest.approx(110.0)),
        (40.0, 40.0, inf),
    ]


@pytest.mark.parametrize("delay_rounds", [0, 1, 3])
@pytest.mark.parametrize("law", [name for name, info in LAWS.items() if info.conserving])
def test_limits_keep_to_the_quota_in_each_round(law: str, delay_rounds: int) -> None:
    rng = np.random.default_rng(4)
    demand = rng.uniform(0, 100, (60, 5)) * rng.integers(0, 2, (60, 5))
    run = run_loop(demand, 150.0, get_law(law), delay_rounds=delay_rounds)
    limited = run.limit[delay_rounds + 1 :]
    assert np.isfinite(limited).all()
    assert (limited.sum(axis=1) <= 150.0 * (1 + 1e-9)).all()


@pytest.mark.parametrize(
    "options",
    [
        {"residual": residual, "steal": steal}
        for residual in ("each", "proportional")
        for steal in (True, False)
    ],
)
def test_every_variant_of_pip82_runs(options: dict[str, object]) -> None:
    run = run_loop(np.full((12, 3), 60.0), 120.0, get_law("pip82", options))
    assert run.usage[-1].sum() == pytest.approx(120.0, rel=0.1)


def test_an_infinite_quota_never_limits() -> None:
    run = run_loop(np.full((3, 2), 60.0), float("inf"), get_law("max_min"))
    assert np.isinf(run.limit).all()
    assert (run.usage == 60.0).all()
