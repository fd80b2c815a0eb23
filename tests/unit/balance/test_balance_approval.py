"""Whether a plan may still be executed, and how many moves are made at once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.agent.executor import MovePace
from quotabalance.planning.approval import Tolerance, check_plan
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions, Move, Split

BUNDLES = tuple(f"acme/orders/0x{place}0000000_0x{place + 1}0000000" for place in range(6))
MB = 1e6


def cluster(owner: list[int], rates_mb: list[float], brokers: int = 3) -> ClusterLoad:
    rates = np.zeros((len(owner), 4))
    rates[:, 0] = np.array(rates_mb) * MB
    return ClusterLoad(
        tuple(f"b{place}" for place in range(brokers)),
        np.zeros((brokers, 5)),
        np.zeros((brokers, 5)),
        BUNDLES[: len(owner)],
        np.array(owner),
        rates,
    )


def move(place: int, source: int, target: int, rate_mb: float) -> Move:
    return Move(BUNDLES[place], f"b{source}", f"b{target}", rate_mb * MB, "Overloaded", "")


SKEWED = cluster([0, 0, 0, 0, 1, 2], [10, 10, 10, 10, 10, 10])
PLAN = Decisions([move(0, 0, 1, 10), move(1, 0, 2, 10)])


def refusals(plan: Decisions, load: ClusterLoad, **options: object) -> str:
    return "; ".join(check_plan(plan, load, Tolerance(), **options).refusals)  # type: ignore[arg-type]


def test_a_plan_that_still_fits_is_executed() -> None:
    checked = check_plan(PLAN, SKEWED, Tolerance())
    assert checked.refusals == ()
    assert (checked.peak_before, checked.peak_after) == (2.0, 1.0)
    assert not checked.done.any()


def test_a_bundle_that_is_elsewhere_refuses_all() -> None:
    moved = cluster([2, 0, 0, 0, 1, 2], [10] * 6)
    assert refusals(PLAN, moved) == f"bundle {BUNDLES[0]} is at b2 now, not at b0"
    gone = cluster([0], [10])
    assert "has no owner, or was split or deleted" in refusals(PLAN, gone)
    two = cluster([0, 0, 0, 0, 1, 1], [10] * 6, brokers=2)
    assert refusals(PLAN, two) == "broker b2 is not in the cluster any more"


def test_what_is_done_already_is_not_held_against_it() -> None:
    half = cluster([1, 0, 0, 0, 1, 2], [10] * 6)
    checked = check_plan(PLAN, half, Tolerance())
    assert checked.done.tolist() == [True, False]
    assert checked.refusals == ()
    finished = cluster([1, 2, 0, 0, 1, 2], [10] * 6)
    assert check_plan(PLAN, finished, Tolerance()).refusals == ()


def test_changed_traffic_refuses() -> None:
    assert "has changed by 16.0 MB/s since the plan, which moves 20.0" in refusals(
        PLAN, cluster([0, 0, 0, 0, 1, 2], [2, 2, 10, 10, 2, 2])
    )
    slightly = cluster([0, 0, 0, 0, 1, 2], [13, 8, 10, 10, 10, 10])
    assert refusals(PLAN, slightly) == ""


def test_a_benefit_that_is_gone_refuses() -> None:
    # The source has cooled down; the first receiver is the busiest now.
    found = refusals(PLAN, cluster([0, 0, 0, 0, 1, 2], [10, 10, 0, 0, 30, 10]))
    assert "it would not help any more: the busiest broker that it touches has 1.50" in found
    assert "broker b1 would carry 2.00 times the mean; at most 1.25" in found


def test_a_drain_need_not_help_but_receivers_are_protected() -> None:
    drained = np.array([True, False, False])
    all_of_it = Decisions([move(0, 0, 1, 10), move(1, 0, 2, 10)])
    load = cluster([0, 0, 1, 2], [10, 10, 10, 10])
    assert refusals(all_of_it, load, drained=drained) == ""
    to_one = Decisions([move(0, 0, 1, 10), move(1, 0, 1, 10)])
    assert "b1 would carry 1.50 times the mean" in refusals(to_one, load, drained=drained)


def test_a_coarse_plan_may_halve_the_excess() -> None:
    load = cluster([0, 0, 1, 2], [24, 24, 1, 1])
    assert refusals(Decisions([move(0, 0, 1, 24)]), load) == ""


def test_a_split_needs_its_owner() -> None:
    split = Split(BUNDLES[0], "b0", (), "TooBig", "")
    assert refusals(Decisions([], [split]), SKEWED) == ""
    elsewhere = cluster([1, 0], [10, 10])
    assert f"bundle {BUNDLES[0]} is at b1 now" in refusals(Decisions([], [split]), elsewhere)


def test_bytes_are_judged_by_the_brokers_capacity() -> None:
    weights = np.array([4.0, 1.0, 1.0])
    found = refusals(PLAN, SKEWED, weights=weights)
    assert "it would not help any more" in found


def with_machines(load: ClusterLoad, cpu: list[float], limit: list[float]) -> ClusterLoad:
    usage, limits = np.zeros((3, 5)), np.zeros((3, 5))
    usage[:, 0], limits[:, 0] = cpu, limit
    return replace(load, usage=usage, limit=limits)


def test_a_larger_machine_may_carry_more() -> None:
    level = cluster([0, 0, 0, 0, 1, 2], [10] * 6)
    to_big = Decisions([move(0, 0, 1, 10), move(1, 0, 1, 10), move(2, 0, 1, 10)])
    assert "b1 would carry 2.00 times the mean" in refusals(to_big, level)
    large = with_machines(level, [40.0, 40.0, 10.0], [100.0, 400.0, 100.0])
    assert refusals(to_big, large, resources=("bandwidthIn", "cpu")) == ""


def test_a_bundle_may_leave_a_machine_that_is_full_of_something_else() -> None:
    level = cluster([0, 0, 1, 1, 2, 2], [10] * 6)
    away = Decisions([move(0, 0, 1, 10)])
    assert "it would not help any more" in refusals(away, level)
    foreign = with_machines(level, [90.0, 30.0, 30.0], [100.0] * 3)
    most = "b1 would carry 1.50 times the mean"
    assert refusals(away, foreign, resources=("cpu",)).count("times the mean") == 1
    assert most in refusals(away, foreign, resources=("cpu",))
    small = Decisions([move(0, 0, 1, 1)])
    less = replace(foreign, rates=foreign.rates * np.array([[0.1], *[[1.0]] * 5]))
    assert refusals(small, less, resources=("cpu",)) == ""


@given(st.lists(st.one_of(st.none(), st.floats(0.0, 10.0)), max_size=60), st.integers(1, 10))
def test_the_pace_stays_within_its_bounds(took: list[float | None], most: int) -> None:
    pace = MovePace(most, slow_s=2.0)
    for one in took:
        before = pace.at_once
        pace.note(one)
        good = one is not None and one <= 2.0
        assert 1 <= pace.at_once <= most
        assert pace.at_once <= before + 1
        assert good or pace.at_once in (before, max(before // 2, 1))


def test_moves_under_way_at_a_decrease_halve_once() -> None:
    pace = MovePace(8, slow_s=1.0)
    for _ in range(1 + 2 + 3 + 4 + 5 + 6 + 7):
        pace.note(0.1)
    assert pace.at_once == 8
    for _ in range(8):
        pace.note(5.0)
    assert pace.at_once == 4
    pace.note(5.0)
    assert pace.at_once == 2
    pace.note(None)
    pace.note(None)
    assert pace.failures_in_a_row == 2
    pace.note(0.1)
    assert pace.failures_in_a_row == 0


@pytest.mark.parametrize("share", [0.1, 0.9])
def test_the_tolerance_decides(share: float) -> None:
    load = cluster([0, 0, 0, 0, 1, 2], [13, 7, 10, 10, 10, 10])
    assert bool(check_plan(PLAN, load, Tolerance(share)).refusals) == (share < 0.3)
