"""How a shard's groups stand beside their quotas after a round, and how shards are added up."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from quotaplane.arrays import map_arrays
from quotaplane.model import group_id
from quotaplane.quota.shard import Shard as WorkingSet
from quotaplane.quota.standing_counts import standing
from quotaplane.quota.state import ShardState
from quotaplane.round_counts import MOST_NAMED, RoundCounts, merged
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


def counted(state: ShardState) -> RoundCounts:
    """The standing of a state whose arrays a test has changed."""
    shard = WorkingSet(state.groups.narrowed(state.leases.dimensions), state.brokers, state.leases)
    untouched = np.zeros(len(state.groups), bool)
    return RoundCounts(**standing(shard, state.renewed_at_ms, untouched, learning=False))


def with_leases(shard: Shard, **arrays: object) -> ShardState:
    """A shard's state with other values in the dimension of publish messages."""
    leases = shard.state.leases
    leases = map_arrays(np.copy, leases)
    for name, values in arrays.items():
        getattr(leases.estimates if name == "demand" else leases, name)[0] = values
    return replace(shard.state, leases=leases)


def test_the_share_of_a_quota_that_groups_use() -> None:
    shard = Shard()
    made = quotas(("g", 100), ("h", 200), ("free", None))
    shard.run(made, now_ms=T0)
    uses = {"g": 60, "h": 50, "free": 1e9}
    counts = shard.run(reports(report("a", T0, uses), report("b", T0, uses)), now_ms=T0).counts
    assert counts.shares == {"g": 1.2, "h": 0.5}
    assert counts.worst_quota_used == 1.2
    assert counts.groups == {"hard": 3, "soft": 0, "shadow": 0}
    assert counts.groups_over_quota == {"hard": 1, "soft": 0, "shadow": 0}
    assert counts.limits_in_force == 4, "those that have a quota"


def test_a_group_counts_with_all_groups_below_it_and_no_quota_at_all_is_exceeded_at_once() -> None:
    shard = with_quotas(("t", 100), ("t::x", None), ("t::y", 10), ("none", 0))
    uses = {"t::x": 30, "t::y": 20, "none": 1}
    counts = shard.run(reports(report("a", T0, uses)), now_ms=T0).counts
    assert counts.shares == {"none": np.inf, "t::y": 2.0, "t": 0.5}
    assert RoundCounts.from_bytes(counts.to_bytes()) == counts


def test_of_many_groups_the_worst_are_named() -> None:
    shard = Shard()
    names = [f"g{number:03d}" for number in range(100)]
    shard.run(quotas(*[(name, 1000) for name in names]), now_ms=T0)
    uses = {name: float(number) for number, name in enumerate(names)}
    counts = shard.run(reports(report("a", T0, uses)), now_ms=T0).counts
    assert sorted(counts.shares) == names[-MOST_NAMED:]
    assert counts.worst_quota_used == 0.099


def test_limits_that_fit_the_quota_are_no_overcommitment() -> None:
    shard = with_quotas(("g", 100), ("h", 50))
    uses = {"g": 90, "h": 3}
    counts = shard.run(reports(report("a", T0, uses), report("b", T0, uses)), now_ms=T0).counts
    assert (counts.groups_overcommitted, counts.overcommits) == (0, {})
    assert counts.worst_overcommit == pytest.approx(1.0, abs=1e-6)
    of_g = shard.state.leases.group == shard.state.groups.names.to_pylist().index("g")
    shard.state = with_leases(shard, limit=np.where(of_g, 75.0, 25.0))
    counts = counted(shard.state)
    assert (counts.groups_overcommitted, counts.overcommits) == (1, {"g": 1.5})
    assert counts.worst_overcommit == 1.5
    unenforced = replace(shard.state.leases, enforced=np.zeros(4, bool))
    assert counted(replace(shard.state, leases=unenforced)).worst_overcommit == 0.0


def test_a_broker_that_wants_more_than_half_an_equal_share_while_quota_is_free_starves() -> None:
    shard = with_quotas(("g", 100))
    shard.report(T0, {"a": 5, "b": 60})
    starving = with_leases(shard, limit=[5.0, 95.0], demand=[np.inf, 60.0], usage=[5.0, 60.0])
    assert counted(starving).groups_starving == 1
    crowded = with_leases(shard, limit=[5.0, 95.0], demand=[np.inf, 95.0], usage=[5.0, 95.0])
    assert counted(crowded).groups_starving == 0
    satisfied = with_leases(shard, limit=[5.0, 95.0], demand=[4.0, 60.0], usage=[4.0, 60.0])
    assert counted(satisfied).groups_starving == 0
    fair = with_leases(shard, limit=[30.0, 70.0], demand=[np.inf, 30.0], usage=[30.0, 30.0])
    assert counted(fair).groups_starving == 0


@pytest.mark.nightly
@pytest.mark.parametrize("strict", [False, True])
def test_no_limit_was_published_before_the_oldest_renewal(strict: bool) -> None:
    """And where nothing changes, the oldest one was published just then."""
    config = replace(STRICT if strict else CONFIG, refresh_rounds=7, learns=False)
    shard = Shard(config)
    names = [f"g{number}" for number in range(40)]
    shard.run(quotas(*[(name, 100) for name in names]), now_ms=T0)
    random = np.random.default_rng(3)
    published: dict[tuple[str, str], int] = {}
    exact = 0
    for number in range(60):
        now_ms = T0 + 1000 * number + int(random.integers(0, 900))
        uses = {name: float(random.integers(0, 60)) for name in names if number < 20}
        uses = uses or dict.fromkeys(names, 10.0)
        made = [report(broker, now_ms, uses, applied_seqs=shard.seq - 1) for broker in "ab"]
        outcome = shard.run(reports(*made), now_ms=now_ms)
        for row in outcome.limits.to_pylist():
            if row["published"]:
                published[row["broker"], row["group"]] = now_ms
        oldest_ms = outcome.counts.oldest_renewal_ms
        if published:
            assert 0 < oldest_ms <= min(published.values())
            exact += oldest_ms == min(published.values())
    assert exact >= 30


def test_of_silent_brokers_no_renewal_is_expected() -> None:
    shard = with_quotas(("g", 100), config=replace(STRICT, refresh_rounds=3, learns=False))
    shard.report(T0, {"a": 5})
    assert shard.report(T0 + 1, {"a": 5}).counts.oldest_renewal_ms
    shard.run(now_ms=T0 + 10_000)
    late_ms = T0 + 2 * int(STRICT.stale_after_ms)
    counts = shard.run(now_ms=late_ms).counts
    assert (counts.brokers_stale, counts.oldest_renewal_ms) == (0, 0), "the program counts brokers"
    assert shard.state.brokers.stale.all()


def test_a_shard_without_a_round_counts_as_it_stood_last() -> None:
    first = RoundCounts(
        shard=0, reports=3, groups={"hard": 2}, worst_quota_used=0.5, shares={"a": 0.5}
    )
    second = RoundCounts(
        shard=1, reports=3, groups={"hard": 1, "soft": 1}, worst_quota_used=2.0, shares={"b": 2.0}
    )
    both = merged([first, second])
    assert both.groups == {"hard": 3, "soft": 1}
    assert (both.worst_quota_used, both.shares) == (2.0, {"b": 2.0, "a": 0.5})
    again = RoundCounts(shard=0, reports=1, groups={"hard": 5}, oldest_renewal_ms=7)
    alone = merged([again], latest=[again, second])
    assert (alone.reports, alone.groups) == (1, {"hard": 6, "soft": 1})
    assert (alone.worst_quota_used, alone.oldest_renewal_ms) == (2.0, 7)
    assert alone.shard == -1


def test_ids_of_groups_decide_their_turn() -> None:
    """As ``issue`` has it; a test of the two files' agreement is above."""
    shard = with_quotas(("g", 100), config=replace(CONFIG, refresh_rounds=2))
    assert shard.state.renewed_at_ms.tolist() == [T0, T0]
    turn, oldest_ms = group_id("g") % 2, []
    for at in (T0 + 5, T0 + 6):
        counts = shard.report(at, {"a": 5}).counts
        oldest_ms.append(counts.oldest_renewal_ms)
    assert shard.state.renewed_at_ms.tolist() == [T0 + 5, T0 + 6]
    assert oldest_ms == ([T0 + 5, T0 + 5] if turn == 0 else [T0, T0 + 6])
