"""Tests of learning mode: a start without state, while brokers obey an earlier control plane."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quotaplane.laws.reason import Reason
from quotaplane.model import DIMENSIONS, SAFE_COLUMNS
from quotaplane.quota.config import EarlierLimits, StepConfig
from quotaplane.quota.step import next_due_ms
from tests.unit.quota.step_cases import (
    CONFIG,
    STRICT,
    T0,
    Rates,
    Shard,
    quotas,
    report,
    reports,
    with_quotas,
)

PUBLISH_REASON = f"{DIMENSIONS[0]}_reason_code"
FAST = replace(CONFIG, lease_ms=60_000)
LEARNS = replace(STRICT, learns=True)


def learning(*groups: tuple[str, Rates], config: StepConfig = FAST) -> Shard:
    """A control plane of epoch 7 without state."""
    return with_quotas(*groups, config=config, epoch=7)


def learning_strict(*groups: tuple[str, Rates]) -> Shard:
    return learning(*groups, config=LEARNS)


def had(broker: str, at_ms: int, uses: Rates, limit: float, group: str = "g") -> dict[str, Any]:
    """A report of a broker that obeys epoch 6."""
    return report(broker, at_ms, {group: uses}, applied_epoch=6, applied_seq=5, limit=limit)


def earlier(broker: str, at_ms: int, limits: dict[str, float], **more: float) -> dict[str, Any]:
    """A report of a broker that obeys epoch 6, uses its whole limit, and wants more."""
    (one,) = set(limits.values())
    header = {"applied_epoch": 6, "applied_seq": 5, "published_at_ms": at_ms, **more}
    return report(broker, at_ms, limits, throttled=50.0, limit=one, **header)


def obeying(shard: Shard, *brokers: str, at_ms: int) -> None:
    """A round in which these brokers acknowledge their latest limits."""
    told = {"applied_epoch": 7, "applied_seq": shard.seq - 1, "applied_seqs": shard.seq - 1}
    uses = {broker: shard.in_force["g", broker] for broker in brokers}
    shard.report(at_ms, uses, throttled=50.0, **told)


def taken_over(*limits: float) -> Shard:
    """b1 uses 70 and b2 5; they have these limits of epoch 6."""
    shard = learning(("g", 100))
    made = (
        had(broker, T0, used, limit)
        for broker, used, limit in zip(("b1", "b2"), (70.0, 5.0), limits, strict=True)
    )
    shard.run(reports(*made), now_ms=T0)
    return shard


def test_without_state_it_hands_back_what_brokers_have_and_after_a_lease_it_divides() -> None:
    shard = taken_over(70, 30)
    assert shard.in_force == {("g", "b1"): 70, ("g", "b2"): 30}
    shard.report(T0 + 55_000, {"b1": 70, "b2": 5})
    assert shard.in_force == {("g", "b1"): 70, ("g", "b2"): 30}
    until = shard.state.learning.until_ms
    assert until == T0 + 60_000 + CONFIG.stale_after_ms
    assert next_due_ms(shard.state, shard.config) <= until
    shard.run(now_ms=until)
    assert shard.in_force["g", "b1"] > 90
    assert not shard.state.learning.on


def test_what_is_handed_back_goes_out_under_the_new_epoch_with_its_reason() -> None:
    shard = learning(("g", 100))
    outcome = shard.run(reports(had("b1", T0, 70, 70.0)), now_ms=T0)
    assert outcome.limits["changed"].to_pylist() == [True]
    assert outcome.changed[PUBLISH_REASON].to_pylist() == [Reason.HANDED_BACK]


@pytest.mark.parametrize("own", [None, 100, 250])
def test_no_limit_above_a_quota_of_its_tree_is_handed_back(own: float | None) -> None:
    shard = learning(("t", 100), ("t::a", own))
    # A broker to which the group's topics have just come: it has no limit for it yet.
    shard.run(reports(had("b1", T0, 70, np.inf, "t::a")), now_ms=T0)
    assert shard.in_force["t::a", "b1"] == 100


@pytest.mark.parametrize("more", [(), (("g::below", None),)], ids=["a group", "a tree"])
def test_groups_whose_limits_are_only_handed_back_are_not_counted_as_divided(more: Any) -> None:
    shard = learning(("g", 100), *more)
    outcome = shard.run(reports(had("b1", T0, 70, 70.0)), now_ms=T0)
    assert outcome.counts.groups_recomputed == 0
    until = shard.state.learning.until_ms
    assert shard.run(now_ms=until).counts.groups_recomputed == 1 + len(more)


def test_limits_that_brokers_do_not_tell_are_left_alone_meanwhile() -> None:
    assert taken_over(np.nan, np.nan).in_force == {}


def test_among_brokers_without_limits_there_is_nothing_to_learn() -> None:
    shard = learning(("g", 100))
    shard.report(T0, {"b1": 70})
    assert shard.in_force == {("g", "b1"): 100}


@pytest.mark.parametrize(
    ("config", "until_ms"),
    [
        pytest.param(LEARNS, T0 + 60_000, id="its own leases"),
        pytest.param(
            replace(LEARNS, earlier=EarlierLimits(T0 + 300_000)),
            T0 + 300_000,
            id="the longer ones of the run before",
        ),
    ],
)
def test_strict_without_state_waits_for_all_leases_whatever_it_hears(
    config: StepConfig, until_ms: int
) -> None:
    """The first report may be of a new broker, while others still use the whole quota."""
    shard = learning(("g", 100), config=config)
    until_ms += int(STRICT.stale_after_ms)
    for at in (T0, T0 + 30_000, until_ms - 1):
        shard.report(at, {"b2": 0}, throttled=100.0)
        assert shard.in_force == {}
    shard.report(until_ms, {"b2": 0}, throttled=100.0)
    assert shard.in_force["g", "b2"] == pytest.approx(100)


def test_strict_counts_a_lowered_limit_until_it_is_acknowledged_whatever_others_report() -> None:
    """In learning mode a quota is lowered; another broker then still reports earlier limits."""
    shard = learning_strict(("g", 100))
    told = {"applied_epoch": 6, "applied_seq": 5, "applied_seqs": 5, "limit": 40.0}
    shard.report(T0, {"b1": 40, "b2": 40}, **told)
    assert shard.in_force == {("g", "b1"): 40, ("g", "b2"): 40}
    shard.run(quotas(("g", 50), version=1), now_ms=T0 + 1000)
    assert shard.state.leases.max_in_force[0].tolist() == [40, 40]
    shard.report(T0 + 2000, {"b2": 40}, **told)
    assert shard.state.leases.limit[0].sum() <= 50
    assert shard.state.leases.max_in_force[0].tolist() == [40, 40]


def test_of_several_reports_the_newest_is_handed_back_and_never_more_than_the_quota() -> None:
    shard = learning(("g", 100))
    made = [had("b1", T0 + at, 1, limit) for at, limit in ((200, 40.0), (100, 90.0))]
    shard.run(reports(*made, had("b2", T0, 1, 1e300)), now_ms=T0 + 300)
    assert shard.in_force == {("g", "b1"): 40, ("g", "b2"): 100}


def test_strict_hands_back_no_more_than_the_quota_together() -> None:
    """The limit that a reports is outdated: b was given half of it since, and reports later."""
    shard = learning_strict(("g", 100))
    shard.run(reports(earlier("a", T0 + 1_000, {"g": 99.0})), now_ms=T0 + 1_000)
    assert shard.in_force == {("g", "a"): 99.0}
    shard.run(reports(earlier("b", T0 + 2_000, {"g": 50.0})), now_ms=T0 + 2_000)
    held = shard.state.leases.max_in_force[0]
    assert shard.in_force == pytest.approx({("g", "a"): 50.0, ("g", "b"): 1.0})
    assert held.sum() <= 100.0
    for second in (3, 4):  # a has come down, b goes up: nobody waits for learning to be over
        obeying(shard, "a", "b", at_ms=T0 + second * 1_000)
    assert shard.in_force == pytest.approx({("g", "a"): 50.0, ("g", "b"): 50.0})
    assert shard.state.learning.on


def test_a_quota_lowered_while_no_job_ran_is_kept_to_from_the_first_round_on() -> None:
    shard = learning_strict(("g", 60))
    both = (earlier(b, T0 + 1_000, {"g": limit}) for b, limit in (("a", 60.0), ("b", 40.0)))
    shard.run(reports(*both), now_ms=T0 + 1_000)
    assert shard.in_force == pytest.approx({("g", "a"): 30.0, ("g", "b"): 30.0})
    # Its usage is held against the limit that it had, not the lower one under way.
    assert shard.state.leases.previous_limit[0].tolist() == [60.0, 40.0]


def test_a_quota_lowered_while_it_learns_is_kept_to_at_once() -> None:
    shard = learning_strict(("g", 100))
    both = (earlier(b, T0 + 1_000, {"g": limit}) for b, limit in (("a", 60.0), ("b", 40.0)))
    shard.run(reports(*both), now_ms=T0 + 1_000)
    assert shard.in_force == {("g", "a"): 60.0, ("g", "b"): 40.0}
    shard.run(quotas(("g", 150), version=1), now_ms=T0 + 1_500)
    assert shard.in_force == {("g", "a"): 60.0, ("g", "b"): 40.0}  # others may hold what is new
    shard.run(quotas(("g", 60), version=2), now_ms=T0 + 2_000)
    assert shard.in_force == pytest.approx({("g", "a"): 30.0, ("g", "b"): 30.0})


def test_what_is_handed_back_in_a_tree_fits_the_quota_above() -> None:
    shard = learning_strict(("t", 60), ("t::a", None), ("t::b", 50), ("g", 100))
    made = (
        earlier("a", T0 + 1_000, {"t::a": 40.0}),
        earlier("b", T0 + 1_000, {"t::b": 40.0}),
        earlier("c", T0 + 1_000, {"g": 70.0}),
    )
    shard.run(reports(*made), now_ms=T0 + 1_000)
    assert shard.in_force["t::a", "a"] + shard.in_force["t::b", "b"] <= 60.0
    assert shard.in_force["g", "c"] == 70.0


def test_strict_hands_nothing_back_by_a_report_that_was_long_under_way() -> None:
    """A limit issued now is in force for a lease from now, but its broker expires earlier."""
    shard = learning_strict(("g", 100))
    long_ago = T0 + 20_000 - int(STRICT.stale_after_ms) - 1
    late, fresh = earlier("a", long_ago, {"g": 60.0}), earlier("b", T0 + 20_000, {"g": 40.0})
    shard.run(reports(late, fresh), now_ms=T0 + 20_000)
    assert shard.in_force == {("g", "b"): 40.0}


def test_strict_hands_nothing_back_when_learning_is_over() -> None:
    shard = learning_strict(("g", 100))
    shard.run(reports(earlier("a", T0 + 65_000, {"g": 100.0})), now_ms=T0 + 65_000)
    over = shard.state.learning.until_ms
    shard.run(reports(earlier("b", over, {"g": 80.0})), now_ms=over)
    assert shard.state.leases.max_in_force[0].sum() <= 100.0
    assert shard.in_force == pytest.approx({("g", "a"): 50.0, ("g", "b"): 0.0}, abs=1e-4)


def test_strict_tells_with_every_limit_that_nothing_is_to_be_used_after_its_lease() -> None:
    """A broker may have a safe limit of an earlier run under fast, and any message may be lost."""
    shard = learning(("g", 100), config=replace(STRICT, safe_share=0.0))
    for second, wants in enumerate(({"a": 90.0, "b": 10.0}, {"a": 10.0, "b": 90.0})):
        table = shard.report(T0 + second * 5_000, wants, throttled=0.0).limits
        assert table["changed"].to_pylist() == table["with_safe_limit"].to_pylist() == [True, True]
        assert set(table[SAFE_COLUMNS[0]].to_pylist()) == {0.0}


def test_while_it_learns_an_order_for_a_group_is_carried_out_in_all_its_tree() -> None:
    shard = learning(("t", 100), ("t::a", None), ("t::b", None))
    both = (earlier("a", T0, {"t::a": 60.0}), earlier("b", T0, {"t::b": 40.0}))
    shard.run(reports(*both), now_ms=T0)
    shard.run(quotas(("t::a", 90), version=5), now_ms=T0 + 1_000)
    assert sum(shard.in_force.values()) <= 100.0
    shard.run(quotas(("t", 20), version=6), now_ms=T0 + 2_000)
    assert sum(shard.in_force.values()) <= 20.0


def test_while_it_learns_a_group_that_is_new_to_it_resets_nobody_in_its_tree() -> None:
    """The groups of the table may arrive in several rounds."""
    shard = learning(("t", 100), ("t::a", None))
    shard.run(reports(earlier("a", T0, {"t::a": 60.0})), now_ms=T0)
    shard.run(quotas(("t::b", 90), version=5), now_ms=T0 + 1_000)
    shard.run(reports(earlier("b", T0 + 2_000, {"t::b": 40.0})), now_ms=T0 + 2_000)
    assert shard.in_force == {("t::a", "a"): 60.0, ("t::b", "b"): 40.0}
