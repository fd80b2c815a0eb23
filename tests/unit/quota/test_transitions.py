"""Tests of transitions: ``strict``, and limits that move step by step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.laws.segments import Segments
from quotaplane.model import Transition
from quotaplane.quota.config import StepConfig
from quotaplane.quota.transition import grant, step_capped
from tests.unit.quota.step_cases import (
    CONFIG,
    STRICT,
    T0,
    Shard,
    quotas,
    report,
    reports,
    with_quotas,
)

BOTH = {"b1": 1, "b2": 1}
"""Brokers that have applied what the first round with reports gave them."""
MORE = {"b1": 90.0, "b2": 60.0}


class Cluster(Shard):
    """A shard whose brokers each use one group; each round sets demands and acknowledgements."""

    def round(
        self, at_ms: int, acked: dict[str, int], group: str = "g", **wants: float
    ) -> dict[str, float]:
        """A round in which each broker reports; ``acked``: the seq that each one has applied."""
        made = []
        for broker, want in wants.items():
            used = min(want, self.in_force.get((group, broker), 0.0)) if broker in acked else 0.0
            seq = acked.get(broker, -1)
            header = {"applied_epoch": 1, "applied_seq": 99} if seq >= 0 else {}
            told = {"throttled": want - used, "applied_seqs": seq, **header}
            made.append(report(broker, at_ms, {group: used}, **told))
        self.run(reports(*made), now_ms=at_ms)
        return {broker: limit for (_, broker), limit in self.in_force.items()}


def strict(config: StepConfig = STRICT) -> Cluster:
    """b1 has a limit of 90 of 100, b2 of 10; the last round was seq 2 at T0 + 5 s."""
    cluster = Cluster(config)
    cluster.run(quotas(("g", 100)), now_ms=T0)
    cluster.round(T0, {}, b1=90, b2=10)
    found = cluster.round(T0 + 5_000, BOTH, b1=90, b2=10)
    assert found == pytest.approx({"b1": 90, "b2": 10})
    return cluster


def coming_down(config: StepConfig = STRICT) -> Cluster:
    """The same after the round of seq 3 at T0 + 10 s: b2 wants more, and b1 must come down."""
    cluster = strict(config)
    assert cluster.round(T0 + 10_000, BOTH, **MORE) == pytest.approx({"b1": 50, "b2": 10})
    return cluster


def test_a_raise_waits_until_who_comes_down_has_said_so() -> None:
    cluster = coming_down()
    told = cluster.round(T0 + 15_000, BOTH, **MORE)  # nothing new from b1
    assert told == pytest.approx({"b1": 50, "b2": 10})
    told = cluster.round(T0 + 20_000, {"b1": 3, "b2": 1}, **MORE)
    assert told == pytest.approx({"b1": 50, "b2": 50})


@pytest.mark.parametrize(
    "said",
    [
        # Its header says 99, of another group or shard. Here it still has what round 1 gave.
        pytest.param({"applied_epoch": 1, "applied_seq": 99, "applied_seqs": 2}, id="of the group"),
        pytest.param({"applied_epoch": 1, "applied_seq": 99}, id="a header alone"),
        pytest.param({"applied_epoch": 9, "applied_seq": 9, "applied_seqs": 9}, id="not our epoch"),
    ],
)
def test_what_acknowledges_nothing(said: dict[str, int]) -> None:
    cluster = coming_down()
    for at in (T0 + 15_000, T0 + 20_000):
        b1 = report("b1", at, {"g": 90}, throttled=0.0, **said)
        waits = {"throttled": 50.0, "applied_epoch": 1, "applied_seqs": 1}
        cluster.run(reports(b1, report("b2", at, {"g": 10}, **waits)), now_ms=at)
        assert cluster.in_force["g", "b2"] == pytest.approx(10)


def test_who_does_not_say_so_is_waited_for_until_its_lease_is_over() -> None:
    cluster = coming_down()
    over = 10_000 + 60_000 + STRICT.stale_after_ms
    for at in range(15_000, int(over) + 1, 5_000):
        assert cluster.round(T0 + at, BOTH, **MORE)["b2"] == pytest.approx(10)
    assert cluster.round(T0 + int(over) + 5_000, BOTH, **MORE)["b2"] == pytest.approx(50)


def test_who_must_come_down_is_told_again_every_round_and_nothing_else() -> None:
    cluster = coming_down(replace(STRICT, lease_ms=2e9))  # nothing else is due
    outcome = cluster.report(T0 + 15_000, {"b1": 90}, throttled=0.0, applied_seqs=1)
    told = [(row["broker"], row["changed"]) for row in outcome.limits.to_pylist()]
    assert told == [("b1", False)]


def test_a_silent_broker_keeps_its_share_until_its_lease_is_over() -> None:
    cluster = strict()
    for at in range(10_000, 100_000, 5_000):
        told = cluster.round(T0 + at, {"b2": 1}, b2=500)
        if at <= 10_000 + 60_000 + 10_000:  # told to come down at 10 s, a lease, and the clocks
            assert told["b2"] == pytest.approx(10)
    assert told == pytest.approx({"b2": 100})


def test_a_limit_is_for_one_incarnation_of_its_broker() -> None:
    start_ms = T0 + 9_000
    outcome = strict().report(T0 + 10_000, {"b1": 0}, throttled=90.0, started_at_ms=start_ms)
    told = outcome.limits.to_pylist()
    assert {row["for_start_ms"] for row in told if row["broker"] == "b1"} == {start_ms}


def test_a_limit_moves_by_no_more_than_the_step_in_a_round() -> None:
    shard = with_quotas(("g", 100), config=replace(CONFIG, max_step=0.1))
    uses = {"b1": 90.0, "b2": 10.0}
    found = []
    for turn in range(8):
        shard.report(T0 + turn * 5_000, uses, throttled=0.0)
        found.append([shard.in_force["g", "b1"], shard.in_force["g", "b2"]])
        uses = {"b1": 10.0, "b2": 90.0}
    steps = np.abs(np.diff(found, axis=0))
    assert found[0] == pytest.approx([90, 10])
    assert steps.max() == pytest.approx(10)
    assert found[-1] == pytest.approx([20, 80])


def wanted(shard: Shard, at_ms: int, **wants: tuple[str, float]) -> dict[str, float]:
    """A round with one group and demand per broker; each has applied its latest limit."""
    made = []
    for broker, (group, want) in wants.items():
        used = min(want, shard.in_force.get((group, broker), 0.0))
        told = {"applied_epoch": 1, "applied_seqs": shard.seq - 1}
        made.append(report(broker, at_ms, {group: used}, throttled=want - used, **told))
    shard.run(reports(*made), now_ms=at_ms)
    return {broker: limit for (_, broker), limit in shard.in_force.items()}


def stepping(transition: Transition) -> Shard:
    return Shard(replace(CONFIG, max_step=0.1, transition=transition, learns=False))


@pytest.mark.parametrize("transition", Transition)
def test_steps_in_a_tree_are_of_the_least_quota_above(transition: Transition) -> None:
    """Not of the group's share at the time: the root has no brokers, one child has no quota."""
    shard = stepping(transition)
    shard.run(quotas(("t", 100), ("t::a", None), ("t::b", 80)), now_ms=T0)
    found = []
    for turn in range(14):
        a, b = (90.0, 10.0) if turn < 2 else (10.0, 90.0)
        found.append(wanted(shard, T0 + turn * 5_000, b1=("t::a", a), b2=("t::b", b)))
    assert found[1] == pytest.approx({"b1": 90, "b2": 10})
    assert found[-1] == pytest.approx({"b1": 20, "b2": 80})
    limits = np.array([list(one.values()) for one in found[1:]])
    assert np.abs(np.diff(limits, axis=0)).max(axis=0) == pytest.approx([10, 8])
    assert limits.sum(axis=1).max() <= 100


@pytest.mark.parametrize("transition", Transition)
def test_steps_do_not_keep_limits_above_a_lowered_quota(transition: Transition) -> None:
    shard = stepping(transition)
    shard.run(quotas(("t", 1000), ("t::a", None), ("u", 1000)), now_ms=T0)
    wants = {"b1": ("t::a", 900.0), "b2": ("u", 900.0), "b3": ("u", 100.0)}
    for turn in range(3):
        wanted(shard, T0 + turn * 5_000, **wants)
    shard.run(quotas(("t", 10), version=9), now_ms=T0 + 11_000)
    assert shard.in_force["t::a", "b1"] == pytest.approx(10)
    # Of the other group nothing was lowered.
    told = wanted(shard, T0 + 15_000, **{**wants, "b2": ("u", 0.0), "b3": ("u", 1000.0)})
    assert told["b2"] == pytest.approx(800)


def test_a_group_that_its_broker_no_longer_names_is_not_renewed() -> None:
    """The broker's last lease ends when its share is given to others, not later."""
    cluster = strict()
    told = []
    for at in range(10_000, 100_000, 5_000):
        other = report("b1", T0 + at, {"h": 1.0}, applied_epoch=1, applied_seq=1)
        mine = report("b2", T0 + at, {"g": 10}, throttled=80.0, applied_epoch=1, applied_seqs=1)
        outcome = cluster.run(reports(other, mine), now_ms=T0 + at)
        told += [at for row in outcome.limits.to_pylist() if row["broker"] == "b1"]
    assert max(told) <= 5_000 + STRICT.stale_after_ms
    assert cluster.in_force["g", "b2"] == pytest.approx(100)


def test_what_a_deleted_group_gave_is_waited_for() -> None:
    cluster = strict()
    cluster.run(quotas("g", version=5), now_ms=T0 + 6_000)
    cluster.run(quotas(("g", 100), version=6), now_ms=T0 + 7_000)
    hungry = {"throttled": 100.0, "applied_epoch": 1, "applied_seq": 1}
    for at in (10_000, 80_000):
        cluster.report(T0 + at, {"b2": 10}, **hungry)
        assert cluster.in_force["g", "b2"] < 0.001
    cluster.report(T0 + 90_000, {"b2": 10}, **hungry)
    assert cluster.in_force["g", "b2"] > 50


@pytest.mark.slow
def test_deletions_in_a_tree_cost_it_what_they_held_and_no_more() -> None:
    """One deletion a minute: new brokers still get what is left, and a lowered quota holds."""
    groups = [f"t::x{number}" for number in range(12)]
    shard = with_quotas(("t", 100), ("t::a", None), *((g, None) for g in groups), config=STRICT)
    at = T0
    for number in range(10):
        shard.run(quotas(groups[number], version=9 + number), now_ms=at)
        if number == 5:
            shard.run(quotas(("t", 40), version=50), now_ms=at + 1)
        for _ in range(12):
            at += 5_000
            seq = shard.seq - 1
            told = {"throttled": 50.0, "applied_epoch": 1, "applied_seq": seq, "applied_seqs": seq}
            wants = {"b1": {"t::a": 90.0, **dict.fromkeys(groups[number + 1 :], 1.0)}}
            wants["b2"] = {"t::a": 50.0}
            made = [
                report(
                    b, at, {g: min(w, shard.in_force.get((g, b), 0)) for g, w in of.items()}, **told
                )
                for b, of in wants.items()
            ]
            shard.run(reports(*made), now_ms=at)
        assert shard.in_force["t::a", "b2"] > (10 if number < 5 else 5)
    assert 30 < sum(shard.in_force.values()) <= 40


def test_a_quota_where_there_was_none_waits_for_who_is_out_of_sight() -> None:
    """The broker was notified that it is unlimited, which has no end that could be waited for."""
    cluster = Cluster(STRICT)
    cluster.run(quotas(("g", None), version=0), now_ms=T0)
    cluster.round(T0, {}, b1=90, b2=10)
    cluster.run(quotas(("h", 1), ("g", 1), version=1), now_ms=T0 + 12_000)  # both are stale by now
    for at in (15_000, 20_000, 200_000):
        told = cluster.round(T0 + at, {"b2": 2}, b2=60)
        assert not np.isnan(list(told.values())).any()


rates = st.floats(0, 1e6) | st.just(np.inf)


@given(st.lists(st.tuples(rates, rates, rates), min_size=1, max_size=9), st.floats(0, 1e6))
def test_what_is_held_never_grows_beyond_the_quota(rows, quota: float) -> None:
    limit, more, target = (np.array(column) for column in zip(*rows, strict=True))
    held = limit + more
    new = grant(Segments(np.array([0, len(limit)])), limit, held, target, np.array([quota]))
    after = np.maximum(held, new)
    assert not np.isnan(new).any()
    assert after.sum() <= max(quota, held.sum())
    assert (new <= np.maximum(target, limit)).all()
    assert (new[target <= limit] == target[target <= limit]).all()
    assert (new >= np.minimum(target, limit)).all()


finite = st.floats(0, 1e6)


@given(st.lists(st.tuples(finite, finite), min_size=1, max_size=9), st.floats(0.01, 1))
def test_capped_steps_are_small_and_keep_to_the_quota(rows, most: float) -> None:
    limit, target = (np.array(column) for column in zip(*rows, strict=True))
    quota = np.array([max(limit.sum(), target.sum())])
    new = step_capped(Segments(np.array([0, len(limit)])), limit, target, quota, most)
    assert (np.abs(new - limit) <= most * quota * (1 + 1e-9)).all()
    assert new.sum() <= quota * (1 + 1e-9)
    lowered = np.array([target.sum()])
    new = step_capped(Segments(np.array([0, len(limit)])), limit, target, lowered, most)
    assert new.sum() <= lowered * (1 + 1e-9)
