"""Figures that a run is judged by, against numbers worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.sim.figures import MEANINGS, closeness, fair_shares, figures, from_fair, jain
from quotaplane.sim.loop import Run

INF = np.inf


def run_of(demand, limit, quota=100.0, alive=True) -> Run:
    demand, limit = np.array(demand, dtype=float), np.array(limit, dtype=float)
    return Run(
        demand=demand,
        limit=limit,
        usage=np.minimum(demand, limit),
        alive=np.broadcast_to(alive, demand.shape),
        quota=np.broadcast_to(np.asarray(quota, dtype=float), len(demand)),
    )


@pytest.mark.parametrize(
    ("quota", "demand", "fair"),
    [
        (120, [1000, 60, 10], [55, 55, 10]),
        (120, [1000, 50, 10], [60, 50, 10]),
        (120, [8, 32, 38, 44], [8, 32, 38, 42]),
        (120, [100, 60, 55, 5], [115 / 3, 115 / 3, 115 / 3, 5]),
        (INF, [7, 9], [7, 9]),
        (0, [7, 9], [0, 0]),
        (10, [0, 0], [0, 0]),
    ],
)
def test_fair_shares_by_hand(quota: float, demand: list[float], fair: list[float]) -> None:
    assert fair_shares(np.array([demand], dtype=float), quota)[0] == pytest.approx(fair)


@given(
    demand=st.lists(st.floats(0, 1e6), min_size=1, max_size=8),
    quota=st.floats(0, 2e6),
)
def test_fair_shares_use_all_there_is_and_starve_nobody(demand: list[float], quota: float) -> None:
    want = np.array([demand])
    fair = fair_shares(want, quota)[0]
    assert (fair <= want[0]).all()
    assert fair.sum() == pytest.approx(min(want.sum(), quota), abs=1e-3)
    held_back = fair < want[0] - 1e-6
    if held_back.any():  # who is held back has no less than anybody else
        assert fair[held_back].min() >= fair.max() - 1e-6


def test_fair_shares_take_a_quota_for_each_round() -> None:
    demand = np.array([[60.0, 60.0], [60.0, 60.0]])
    assert fair_shares(demand, np.array([100.0, INF])).tolist() == [[50, 50], [60, 60]]


def test_jain_of_one_that_has_all_is_one_over_n() -> None:
    assert jain(np.array([3.0, 0.0, 0.0, 0.0])) == pytest.approx(0.25)
    assert jain(np.zeros(3)) == 1.0


def test_from_fair_is_the_worst_brokers_distance() -> None:
    got, fair = np.array([[50.0, 20.0, 0.0]]), np.array([[50.0, 25.0, 0.0]])
    assert from_fair(got, fair).tolist() == pytest.approx([0.2])


def test_figures_of_a_run_by_hand() -> None:
    run = run_of(
        demand=[[80, 20]] + [[80, 60]] * 4,
        limit=[[INF, INF], [80, 20], [65, 45], [50, 50], [50, 50]],
    )
    answer = figures(run)
    assert set(answer) == set(MEANINGS)
    assert answer["phases"] == [
        {"from_round": 0, "to_round": 0, "rounds_to_fair": None},  # nothing was limited yet
        {"from_round": 1, "to_round": 4, "rounds_to_fair": 2},
    ]
    assert answer["rounds_to_fair"] == 2
    assert answer["rounds_judged"] == 4
    assert answer["utilisation"] == pytest.approx(1.0)
    assert answer["overshoot_worst"] == pytest.approx(0.1)
    assert answer["overshoot_rounds"] == 1
    assert answer["limits_over_quota"] == pytest.approx(0.1)
    assert answer["jain_worst"] == pytest.approx((1.6 + 0.4) ** 2 / (2 * (1.6**2 + 0.4**2)))
    assert answer["movement"] == 0.0


def test_unfair_at_the_end_is_never_fair() -> None:
    run = run_of(demand=[[70, 70]] * 3, limit=[[50, 50], [50, 50], [70, 30]])
    assert figures(run)["rounds_to_fair"] is None


def test_movement_counts_only_once_it_is_fair() -> None:
    run = run_of(demand=[[70, 70]] * 5, limit=[[INF, INF], [90, 10], [50, 50], [52, 48], [52, 48]])
    assert figures(run)["movement"] == pytest.approx((0.04 + 0.0) / 2)


def test_the_answer_to_a_shift_that_hurt_nobody_is_no_movement() -> None:
    run = run_of(demand=[[30, 30]] * 2 + [[60, 30]] * 3, limit=[[60, 40]] * 3 + [[65, 35]] * 2)
    assert figures(run)["rounds_to_fair"] == 0
    assert figures(run)["movement"] == 0.0


def test_unused_quota_shows_in_utilisation_and_overuse_does_not_hide_it() -> None:
    run = run_of(demand=[[90, 90]] * 2, limit=[[25, 25], [75, 75]])
    assert figures(run)["utilisation"] == pytest.approx(0.75)


def test_an_unlimited_quota_leaves_nothing_to_overshoot() -> None:
    answer = figures(run_of(demand=[[5, 6]] * 3, limit=[[INF, INF]] * 3, quota=INF))
    assert answer["utilisation"] == 1.0
    assert answer["overshoot_worst"] is None
    assert answer["rounds_to_fair"] == 0


def test_noise_is_not_taken_for_unfairness() -> None:
    wanted = np.full((40, 2), 100.0)
    luck = np.random.default_rng(1).poisson(wanted).astype(float)
    run = run_of(demand=luck, limit=np.full((40, 2), 60.0), quota=120.0)
    assert figures(run, wanted)["rounds_to_fair"] == 0


def test_a_death_and_a_new_quota_are_shifts_and_the_dead_are_owed_nothing() -> None:
    alive = np.array([[True, True]] * 3 + [[True, False]] * 4)
    run = run_of(
        demand=np.where(alive, 80.0, 0.0),
        limit=[[50, 50]] * 3 + [[50, 0], [80, 0], [80, 0], [60, 0]],
        quota=[100] * 6 + [60],
        alive=alive,
    )
    answer = figures(run)
    assert [(phase["from_round"], phase["rounds_to_fair"]) for phase in answer["phases"]] == [
        (0, 0),
        (3, 1),
        (6, 0),
    ]
    assert answer["fair_part"] == pytest.approx(6 / 7)
    assert answer["limits_over_quota"] == 0.0
    assert answer["jain_mean"] == 1.0  # of those who want something, nobody has less than another
    assert answer["movement"] == 0.0


def test_a_joining_broker_without_a_limit_counts_as_one_with_the_whole_quota() -> None:
    run = run_of(
        demand=[[80, 0], [80, 0], [80, 80]],
        limit=[[100, 0], [100, 0], [100, INF]],
        alive=[[True, False], [True, False], [True, True]],
    )
    answer = figures(run)
    assert answer["limits_over_quota"] == pytest.approx(1.0)
    assert answer["overshoot_worst"] == pytest.approx(0.6)
    assert answer["rounds_judged"] == 3


def test_shifts_and_the_first_round_that_counts_can_be_given() -> None:
    run = run_of(demand=[[40, 60], [60, 40]] * 3, limit=[[INF, INF]] + [[50, 50]] * 5)
    answer = figures(run, shifts=[0, 3], judged_from=1)
    assert [phase["from_round"] for phase in answer["phases"]] == [0, 3]
    assert answer["rounds_judged"] == 5


def test_throttled_of_innocents_by_hand() -> None:
    """The fair level is 65 and then 75: a is none, b is one, c is one in the second phase only."""
    wanted = np.array([[90, 20, 70]] * 3 + [[90, 0, 75]] * 3, dtype=float)
    demand = wanted.copy()
    demand[:, 1] = [20, 30, 10, 0, 0, 0]
    run = run_of(demand, [[60, 0, 60], [60, 24, 60], [60, 24, 60]] + [[75, 0, 60]] * 3, quota=150)
    answer = figures(run, wanted, judged_from=0)
    # Rounds 0 and 3 begin phases. b wants 30 + 10 and lacks 6; c wants 75 + 75 and lacks 15 twice.
    assert answer["throttled_innocents"] == pytest.approx(36 / 190)
    assert answer["throttled_innocents_worst"] == pytest.approx(30 / 150)


def test_without_innocents_nothing_is_said_of_them() -> None:
    answer = figures(run_of([[80, 60]] * 3, [[50, 50]] * 3))
    assert answer["throttled_innocents"] is answer["throttled_innocents_worst"] is None
    fitting = figures(run_of([[40, 60]] * 3, [[40, 30]] * 3))
    assert fitting["throttled_innocents"] == pytest.approx(0.3)
    assert fitting["throttled_innocents_worst"] == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("used", "quota", "worst"),
    [
        ([120, 90, 130, 50, 110], 100, 0.4),  # the first three together: 20 - 10 + 30
        ([120, 70, 130, 50, 110], 100, 0.3),
        ([100, 80, 90], 100, 0.0),
        ([300, 150], [200, 100], 1.0),  # each round by its own quota
        ([300, 150, 110], [INF, 100, 100], 0.6),
    ],
)
def test_worst_stretch_over_the_quota_by_hand(used, quota, worst: float) -> None:
    run = run_of([[one] for one in used], [[one] for one in used], quota=quota)
    assert figures(run, judged_from=0)["stretch_worst"] == pytest.approx(worst)


def test_a_round_is_as_fair_as_the_noise_allows() -> None:
    run = run_of([[80, 40]] * 4, [[60, 40], [50, 40], [45, 40], [25, 40]], quota=100)
    assert [
        figures(run, judged_from=0, close=closeness(noise))["fair_part"]
        for noise in (0.0, 0.18, 0.3, 9.0)
    ] == [0.25, 0.5, 0.75, 0.75]  # half of a fair share is never fair
