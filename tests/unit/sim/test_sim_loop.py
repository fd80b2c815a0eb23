"""The loop on one quota: what the network does to reports, and what the law receives."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.arena.bare import LawController
from quotaplane.laws import Allocation, Problem, get_law
from quotaplane.model import FloatArray
from quotaplane.sim.loop import PERFECT, ArrivedReports, Network, Run, Trial, run_loop, run_together
from quotaplane.throttle.terms import ThrottleTerms
from quotaplane.throttle.types import ThrottleLaw, ThrottleMode


def run_ideally(demand, controller, quota, **options) -> Run:
    """Brokers that use just min(demand, limit)."""
    return run_loop(demand, controller, quota, throttle=None, **options)


def run_stock(demand, quota, law, network: Network = PERFECT) -> Run:
    """A law on reports that don't say what was refused."""
    controller = LawController(law, demand.shape[1])
    return run_ideally(demand, controller, quota, network=network, throttled_told=False)


class Script:
    """Controller that returns the limits given to it, and records what it receives."""

    def __init__(self, *limits: list[float], initial_limit: float = np.inf) -> None:
        self.initial_limit = initial_limit
        self.arrivals: list[ArrivedReports] = []
        self.quotas: list[float] = []
        self._limits = iter(limits)

    def decide(self, round_: int, arrived: ArrivedReports, quota: float) -> FloatArray:
        assert round_ == len(self.arrivals)
        self.arrivals.append(arrived)
        self.quotas.append(quota)
        return np.array(next(self._limits))


def test_a_lost_report_leaves_the_last_known_one() -> None:
    told: list[np.ndarray] = []

    def law(problem: Problem) -> Allocation:
        told.append(problem.usage.copy())
        return Allocation(np.full(2, 50.0), np.zeros(2, np.uint8))

    demand = np.array([[10.0, 20.0], [11.0, 21.0], [12.0, 22.0]])
    lost = np.array([[False, False], [True, False], [False, True]])
    run_stock(demand, 100.0, law, Network(lost=lost))
    assert [usage.tolist() for usage in told] == [[10, 20], [10, 21], [12, 21]]


def test_a_broker_that_was_never_heard_is_not_limited() -> None:
    lost = np.zeros((4, 2), dtype=bool)
    lost[:3, 1] = True
    run = run_stock(np.full((4, 2), 80.0), 100.0, get_law("max_min"), Network(lost=lost))
    assert np.isinf(run.limit[:, 1]).all()
    assert run.limit[1:, 0].tolist() == [100.0] * 3


def test_usage_is_told_beside_the_limit_of_its_own_round() -> None:
    """With the limits of two rounds ago in between, a used-up limit would not be noticed."""
    told: list[tuple[float, float, float]] = []
    give = iter([40.0, 60.0, 80.0, 90.0])

    def law(problem: Problem) -> Allocation:
        told.append((problem.usage[0], problem.limit[0], problem.demand[0]))
        return Allocation(np.array([next(give)]), np.zeros(1, np.uint8))

    run_stock(np.full((6, 1), 100.0), 100.0, law, Network(delay_rounds=2))
    inf = float("inf")
    assert told == [
        (100.0, inf, pytest.approx(102.0)),
        (100.0, inf, pytest.approx(102.0)),
        (100.0, inf, pytest.approx(102.0)),
        (40.0, 40.0, inf),
    ]


NAN = float("nan")


def test_a_report_tells_what_was_refused_under_which_limit_and_whose_decision_that_was() -> None:
    script = Script([40.0, NAN], [NAN, 30.0], [1.0, 1.0])
    run_ideally(np.full((3, 2), 50.0), script, 100.0)
    first, second, third = script.arrivals
    assert first.limit.tolist() == [np.inf, np.inf]
    assert first.decided_round.tolist() == [-1, -1]
    assert second.usage.tolist() == [40.0, 50.0]
    assert second.throttled.tolist() == [10.0, 0.0]
    assert second.decided_round.tolist() == [0, -1]
    assert third.limit.tolist() == [40.0, 30.0]  # kept where nothing was sent
    assert third.decided_round.tolist() == [0, 1]


def test_reports_may_overtake_each_other_and_say_what_round_they_are_of() -> None:
    script = Script(*[[NAN]] * 4)
    delays = np.array([[2], [0], [1], [5]])
    demand = np.array([[1.0], [2.0], [3.0], [4.0]])
    run_ideally(demand, script, 100.0, network=Network(delay_rounds=delays))
    assert [arrived.usage.tolist() for arrived in script.arrivals] == [[], [2.0], [1.0], [3.0]]
    assert script.arrivals[3].about_round.tolist() == [2]


def test_an_overtaken_report_does_not_replace_a_newer_one() -> None:
    told: list[float] = []

    def law(problem: Problem) -> Allocation:
        told.append(problem.usage[0])
        return Allocation(np.array([100.0]), np.zeros(1, np.uint8))

    delays = np.array([[2], [0], [1], [0]])
    demand = np.array([[1.0], [2.0], [3.0], [4.0]])
    run_stock(demand, 100.0, law, Network(delay_rounds=delays))
    assert told == [2.0, 2.0, 4.0]


def test_the_dead_neither_use_nor_report_nor_hear_and_come_back_knowing_nothing() -> None:
    script = Script([10.0, 10.0], [20.0, 20.0], [30.0, 30.0], [40.0, 40.0], initial_limit=5.0)
    alive = np.array([[True, True], [True, False], [True, True], [True, True]])
    run = run_ideally(np.full((4, 2), 50.0), script, 100.0, alive=alive)
    assert run.limit.tolist() == [[5, 5], [10, 0], [20, 5], [30, 30]]
    assert run.usage[1].tolist() == [10, 0]
    assert run.demand[1].tolist() == [50, 0]
    assert [arrived.broker.tolist() for arrived in script.arrivals] == [[0, 1], [0], [0, 1], [0, 1]]
    assert script.arrivals[2].decided_round.tolist() == [1, -1]


def test_a_new_quota_is_known_at_the_end_of_its_first_round() -> None:
    script = Script(*[[NAN]] * 3)
    run = run_ideally(np.full((3, 1), 50.0), script, np.array([100.0, 60.0, 60.0]))
    assert script.quotas == run.quota.tolist() == [100.0, 60.0, 60.0]


def test_a_silent_broker_is_forgotten_when_asked_to_and_counts_again_when_heard() -> None:
    alive = np.array([[True, True]] + [[True, False]] * 4 + [[True, True]] * 2)
    law = get_law("static")
    for forget, first in ((None, [50, 50, 50, 50, 50, 50]), (3, [50, 50, 50, 100, 100, 50])):
        controller = LawController(law, 2, forget_after_rounds=forget)
        run = run_ideally(np.full((7, 2), 90.0), controller, 100.0, alive=alive)
        assert run.limit[1:, 0].tolist() == first


def test_brokers_have_buckets_that_come_back_full_with_them() -> None:
    """A limit of 20, a demand of 60 in requests of 1: 21 more than come in, then 20 a second."""
    script = Script(*[[20.0]] * 8)
    alive = np.array([[True], [True], [True], [True], [False], [True], [True], [True]])
    used = run_loop(np.full((8, 1), 60.0), script, 100.0, alive=alive).usage[:, 0]
    assert used == pytest.approx([60, 40, 20, 20, 0, 60, 40, 20], abs=1)
    assert [arrived.throttled.tolist() for arrived in script.arrivals] == [
        [60 - one] if here else [] for one, here in zip(used, alive[:, 0], strict=True)
    ]


def test_a_round_of_five_seconds_has_the_burst_of_one() -> None:
    used = run_loop(np.full((3, 1), 60.0), Script(*[[20.0]] * 3), 100.0, round_s=5.0).usage
    assert used[:, 0] == pytest.approx([60, 24, 20], abs=0.2)


def test_together_is_as_one_by_one() -> None:
    hard = ThrottleTerms(law=ThrottleLaw.SLIDING_WINDOW, mode=ThrottleMode.HARD)

    def trial(brokers: int) -> Trial:
        rng = np.random.default_rng(brokers)
        demand, alive = rng.uniform(0, 90, (12, brokers)), rng.random((12, brokers)) < 0.9
        controller = LawController(get_law("max_min"), brokers)
        return Trial(demand, controller, 100.0, alive, throttled_told=brokers != 2)

    together = run_together([trial(2), trial(5), trial(1)], throttle=hard)
    for brokers, other in zip((2, 5, 1), together, strict=True):
        alone = run_together([trial(brokers)], throttle=hard)[0]
        for name, values in vars(alone).items():
            np.testing.assert_array_equal(values, getattr(other, name))
