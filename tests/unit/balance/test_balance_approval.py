"""Whether a plan may still be executed, and how many moves are made at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.agent.executor import SLOW_MOVE_S, MovePace
from quotabalance.planning.approval import ClusterNow, PlanCheck, Tolerance, check_plan
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions, Move, Split
from quotabalance.planning.placement_rules import PlacementRules
from quotabalance.planning.policies import read_policies
from quotaplane.model import FloatArray

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


def now(
    load: ClusterLoad,
    policies: dict[str, Any] | None = None,
    weights: FloatArray | None = None,
    drained: Sequence[bool] = (),
    resources: Sequence[str] = (),
) -> ClusterNow:
    brokers = len(load.brokers)
    out = np.array(drained or [False] * brokers)
    rules = PlacementRules(
        read_policies(policies or {}), load.brokers, ~out, load.bundles, load.owner
    )
    weights = np.ones(brokers) if weights is None else weights
    return ClusterNow(load, [rules], weights, out, resources)


def check(plan: Decisions, load: ClusterLoad, **options: Any) -> PlanCheck:
    return check_plan(plan, now(load, **options), Tolerance())


def refusals(plan: Decisions, load: ClusterLoad, **options: Any) -> str:
    found = check(plan, load, **options)
    return "; ".join((*found.refusals, *filter(None, (*found.of_moves, *found.of_splits))))


def test_a_plan_that_still_fits_is_executed() -> None:
    checked = check(PLAN, SKEWED)
    assert refusals(PLAN, SKEWED) == ""
    assert (checked.peak_before, checked.peak_after) == (2.0, 1.0)
    assert not checked.done.any()


def test_only_the_move_of_a_bundle_that_is_elsewhere_is_refused() -> None:
    moved = cluster([3, 0, 0, 0, 1, 2], [10] * 6, brokers=4)
    assert check(PLAN, moved).of_moves == (f"bundle {BUNDLES[0]} is at b3 now, not at b0", "")
    gone = cluster([0], [10])
    assert "has no owner, or was split or deleted" in refusals(PLAN, gone)
    two = cluster([0, 0, 0, 0, 1, 1], [10] * 6, brokers=2)
    assert check(PLAN, two).of_moves == ("", "broker b2 is not in the cluster any more")


def test_what_is_done_already_is_not_held_against_it() -> None:
    half = cluster([1, 0, 0, 0, 1, 2], [10] * 6)
    assert check(PLAN, half).done.tolist() == [True, False]
    assert refusals(PLAN, half) == ""
    finished = cluster([1, 2, 0, 0, 1, 2], [10] * 6)
    assert refusals(PLAN, finished) == ""


def test_changed_traffic_refuses() -> None:
    assert "has changed by 16.0 MB/s since the plan, which moves 20.0" in refusals(
        PLAN, cluster([0, 0, 0, 0, 1, 2], [2, 2, 10, 10, 2, 2])
    )
    slightly = cluster([0, 0, 0, 0, 1, 2], [13, 8, 10, 10, 10, 10])
    assert refusals(PLAN, slightly) == ""


def test_a_benefit_that_is_gone_refuses() -> None:
    # The source has cooled down; the first receiver is the busiest now.
    found = check(PLAN, cluster([0, 0, 0, 0, 1, 2], [10, 10, 0, 0, 30, 10])).of_moves
    assert all(
        "it would not help any more: the busiest broker that is touched has 1.50" in why
        for why in found
    )


def test_the_last_moves_to_a_full_receiver_are_refused() -> None:
    load = cluster([0, 0, 0, 0, 1, 2], [10, 10, 10, 10, 12, 8])
    plan = Decisions([move(0, 0, 1, 10), move(1, 0, 1, 10), move(2, 0, 2, 10)])
    first, second, third = check(plan, load).of_moves
    assert (first, third) == ("", "")
    assert "broker b1 would carry 1.60 times its mean; at most 1.50" in second


def test_a_drain_need_not_help_but_receivers_are_protected() -> None:
    drained = [True, False, False]
    all_of_it = Decisions([move(0, 0, 1, 10), move(1, 0, 2, 10)])
    load = cluster([0, 0, 1, 2], [10, 10, 10, 10])
    assert refusals(all_of_it, load, drained=drained) == ""
    to_one = Decisions([move(0, 0, 1, 10), move(1, 0, 1, 10)])
    found = check(to_one, load, drained=drained).of_moves
    assert found[0] == ""
    assert "b1 would carry 1.50 times its mean" in found[1]


def test_a_drain_fills_machines_but_does_not_overload_them() -> None:
    load = with_machines(cluster([0, 0, 1, 2], [10, 10, 10, 10]), [60.0, 40.0, 70.0], [100.0] * 3)
    drain = Decisions([move(0, 0, 1, 10), move(1, 0, 2, 10)])
    found = check(drain, load, drained=[True, False, False], resources=("cpu",)).of_moves
    assert found == ("", "broker b2 would use 100% of its machine; at most 85% is allowed")


def test_what_a_policy_demands_is_not_refused_for_the_mean() -> None:
    rule = {"isolation": {"vip": {"namespaces": ["acme/.*"], "primary": ["b2"]}}}
    load = cluster([0, 2, 2, 2, 2, 2], [10] * 6)
    back = Decisions([move(0, 0, 2, 10)])
    assert "it would not help any more" in refusals(back, load)
    assert refusals(back, load, policies=rule) == ""
    # A label is no proof: any writer to the topic can write it.
    labelled = Decisions([back.moves[0]._replace(label="Policy")])
    assert "it would not help any more" in refusals(labelled, load)
    full = with_machines(load, [10.0, 10.0, 84.0], [100.0] * 3)
    found = refusals(back, full, policies=rule, resources=("cpu",))
    assert "b2 would use 94% of its machine" in found


def test_a_move_that_a_policy_forbids_takes_no_other_with_it() -> None:
    rule = {"isolation": {"other": {"namespaces": ["x/y"], "primary": ["b1"]}}}
    assert check(PLAN, SKEWED, policies=rule).of_moves == (
        f"a policy keeps bundle {BUNDLES[0]} away from b1",
        "",
    )


def test_a_swap_is_made_as_a_whole_or_not_at_all() -> None:
    load = cluster([0, 0, 1, 2], [30, 10, 5, 15])
    swap = [
        one._replace(label="Swap", reason="b0 carries too much")
        for one in (move(0, 0, 1, 30), move(2, 1, 0, 5))
    ]
    gone = cluster([0, 0, 2, 2], [30, 10, 5, 15])
    assert refusals(Decisions(swap), load) == ""
    assert check(Decisions(swap), gone).of_moves == (
        "it belongs to a swap whose other move is refused",
        f"bundle {BUNDLES[2]} is at b2 now, not at b1",
    )


def test_reserved_brokers_are_compared_among_themselves() -> None:
    rule = {"isolation": {"vip": {"namespaces": ["acme/.*"], "primary": ["b[01]"]}}}
    load = cluster([0, 0, 0, 1], [10] * 4, brokers=8)
    even = Decisions([move(0, 0, 1, 10)])
    assert refusals(even, load, policies=rule) == ""


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
    assert "it would not help any more" in refusals(to_big, level)
    large = with_machines(level, [40.0, 40.0, 10.0], [100.0, 400.0, 100.0])
    assert refusals(to_big, large, resources=("bandwidthIn", "cpu")) == ""


def test_a_bundle_may_leave_a_machine_that_is_full_of_something_else() -> None:
    level = cluster([0, 0, 1, 1, 2, 2], [10] * 6)
    away = Decisions([move(0, 0, 1, 10)])
    assert "it would not help any more" in refusals(away, level)
    foreign = with_machines(level, [90.0, 30.0, 30.0], [100.0] * 3)
    found = refusals(away, foreign, resources=("cpu",))
    assert found == "broker b1 would carry 1.50 times its mean; at most 1.25 is allowed"
    small = Decisions([move(0, 0, 1, 1)])
    less = replace(foreign, rates=foreign.rates * np.array([[0.1], *[[1.0]] * 5]))
    assert refusals(small, less, resources=("cpu",)) == ""


@given(st.lists(st.one_of(st.none(), st.floats(0.0, 10.0)), max_size=60), st.integers(1, 10))
def test_the_pace_stays_within_its_bounds(took: list[float | None], most: int) -> None:
    pace = MovePace(most)
    for one in took:
        before = pace.at_once
        pace.note(one)
        good = one is not None and one <= SLOW_MOVE_S
        assert 1 <= pace.at_once <= most
        assert pace.at_once <= before + 1
        assert good or pace.at_once in (before, max(before // 2, 1))


def test_moves_under_way_at_a_decrease_halve_once() -> None:
    pace = MovePace(8)
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
    assert bool(check_plan(PLAN, now(load), Tolerance(share)).refusals) == (share < 0.3)


def test_a_bundle_without_traffic_may_go_to_a_full_machine() -> None:
    load = with_machines(cluster([0, 1, 2], [0, 10, 10]), [10.0, 98.0, 98.0], [100.0] * 3)
    drain = Decisions([move(0, 0, 1, 0)])
    assert refusals(drain, load, drained=[True, False, False], resources=("cpu",)) == ""
