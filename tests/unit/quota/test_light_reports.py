"""Light reports leave out groups in which nothing changed: these are kept, but not for ever."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quotaplane.quota.state_codec import dump, load
from quotaplane.quota.step import next_due_ms
from tests.unit.quota.step_cases import CONFIG, STRICT, T0, Shard, quotas, report, reports

EVERY = 4
STEP_MS = 5_000
"""Between two reports."""
NAN = np.nan


def light(broker: str, at_ms: int, uses: dict[str, float], every: int = EVERY, **more: Any) -> Any:
    """A light report in our own format."""
    header = {"started_at_ms": 1, "named_every": every, "throttled": 0.0}
    return report(broker, at_ms, uses, **{**header, **more})


def two_groups(config: Any = CONFIG) -> Shard:
    """A shard after the first report of b1, which names g and h."""
    shard = Shard(config)
    shard.run(quotas(("g", 100.0), ("h", 100.0)), now_ms=T0)
    shard.run(reports(light("b1", T0, {"g": 10.0, "h": 20.0})), now_ms=T0)
    return shard


def groups_of(shard: Shard) -> list[str]:
    return sorted(shard.state.groups.names[g].as_py() for g in shard.state.leases.group)


def last_kept_ms(shard: Shard, until_ms: int, every: int) -> int:
    """The time since T0 of the last round in which h is kept, while reports name g only."""
    kept = 0
    for at in range(STEP_MS, until_ms, STEP_MS):
        shard.run(reports(light("b1", T0 + at, {"g": 10.0}, every)), now_ms=T0 + at)
        kept = at if "h" in groups_of(shard) else kept
    return kept


@pytest.mark.parametrize("config", [CONFIG, STRICT], ids=["fast", "strict"])
@pytest.mark.parametrize("every", [0, 1, EVERY, 16])
def test_a_group_left_out_is_forgotten_so_many_intervals_later(config: Any, every: int) -> None:
    forgotten_ms = int(config.lease.forgotten_after_ms + every * config.round_ms)
    assert last_kept_ms(two_groups(config), forgotten_ms + 40_000, every) == forgotten_ms


@pytest.mark.parametrize("every", [0, EVERY])
def test_a_silent_broker_is_gone_as_soon_as_any_other(every: int) -> None:
    shard = two_groups()
    shard.run(reports(light("b1", T0 + STEP_MS, {"g": 10.0}, every)), now_ms=T0 + STEP_MS)
    gone_ms = T0 + STEP_MS + int(CONFIG.expire_after_ms)
    shard.run(now_ms=gone_ms)
    assert "g" in groups_of(shard)
    shard.run(now_ms=gone_ms + 1)
    assert groups_of(shard) == []


def test_a_report_that_names_all_again_ends_it() -> None:
    shard = two_groups()
    for at in range(STEP_MS, 25_000, STEP_MS):
        shard.run(reports(light("b1", T0 + at, {"g": 10.0})), now_ms=T0 + at)
    assert groups_of(shard) == ["g", "h"]
    shard.run(reports(light("b1", T0 + 25_000, {"g": 10.0}, 0)), now_ms=T0 + 25_000)
    assert groups_of(shard) == ["g"]


def test_a_group_left_out_keeps_usage_and_limit_and_costs_no_division() -> None:
    shard = two_groups()
    before = shard.state.leases
    outcome = shard.run(reports(light("b1", T0 + STEP_MS, {"g": 50.0})), now_ms=T0 + STEP_MS)
    after = shard.state.leases
    assert outcome.counts.groups_recomputed == 1
    assert outcome.counts.entries == 1
    h, g = 0, 1  # by their ids
    assert (after.usage[0, g], after.usage[0, h]) == (50.0, 20.0)
    np.testing.assert_array_equal(after.limit[:, h], before.limit[:, h])


@pytest.mark.parametrize("config", [CONFIG, STRICT], ids=["fast", "strict"])
def test_a_group_left_out_is_renewed_in_turn(config: Any) -> None:
    """Its broker is live: without renewals its lease would end."""
    config = replace(config, refresh_rounds=2)
    shard = two_groups(config)
    told = []
    for at in range(STEP_MS, 5 * STEP_MS, STEP_MS):
        made = light("b1", T0 + at, {}, applied_epoch=1, applied_seq=9)
        outcome = shard.run(reports(made), now_ms=T0 + at)
        told += outcome.limits["group"].to_pylist()
    assert sorted(told) == ["g", "g", "h", "h"]


def test_a_returning_broker_is_told_the_limits_of_groups_that_its_report_leaves_out() -> None:
    """Strict sends nothing to a silent broker, so it missed renewals of all its groups."""
    shard = two_groups(STRICT)
    silent_ms = int(STRICT.stale_after_ms) + STEP_MS
    shard.run(now_ms=T0 + silent_ms)
    assert shard.state.brokers.stale.all()
    back = light("b1", T0 + silent_ms + STEP_MS, {"g": 10.0}, applied_epoch=1, applied_seqs=1)
    outcome = shard.run(reports(back), now_ms=T0 + silent_ms + STEP_MS)
    assert sorted(outcome.limits["group"].to_pylist()) == ["g", "h"]
    assert outcome.counts.groups_recomputed == 2


def test_strict_issues_nothing_on_a_group_that_was_left_out_for_too_long() -> None:
    """Its broker may no longer have it: a limit could outlast the lease that is waited for."""
    shard = two_groups(STRICT)
    told = []
    for at in range(STEP_MS, 100_000, STEP_MS):
        mine = light("b1", T0 + at, {"g": 10.0}, applied_epoch=1, applied_seqs=99)
        changed = quotas(("h", 100.0 + at))
        both = replace(reports(mine), groups=changed.groups)
        outcome = shard.run(both, now_ms=T0 + at)
        told += [at for row in outcome.limits.to_pylist() if row["group"] == "h"]
    assert max(told) == STRICT.stale_after_ms + EVERY * STRICT.round_ms


def test_the_state_of_a_shard_without_light_reports_is_as_before() -> None:
    """States of an earlier version have no such column, and are read."""
    shard = two_groups()
    assert shard.state.brokers.leaves_out_ms.tolist() == [EVERY * CONFIG.round_ms]
    assert load(dump(shard.state)).brokers.leaves_out_ms.tolist() == [EVERY * CONFIG.round_ms]
    shard.run(reports(light("b1", T0 + STEP_MS, {"g": 1.0}, 0)), now_ms=T0 + STEP_MS)
    blob = dump(shard.state)
    assert b"leaves_out_ms" not in blob
    assert load(blob).brokers.leaves_out_ms.tolist() == [0]


def test_the_timer_rings_when_a_group_left_out_is_forgotten() -> None:
    shard = two_groups()
    at = T0 + STEP_MS
    shard.run(reports(light("b1", at, {"g": 1.0})), now_ms=at)
    stale = replace(shard.state.brokers, stale=np.ones(1, bool))
    due_ms = next_due_ms(replace(shard.state, brokers=stale), CONFIG)
    assert due_ms == at + CONFIG.expire_after_ms + 1  # with its broker, not before


def test_use_of_groups_left_out_is_no_debt() -> None:
    """With limits.over a report that is missing counts as the limit; one that is light does not."""
    shard = Shard(replace(CONFIG, over=0.5, learns=False))
    shard.run(quotas(("g", 100.0)), now_ms=T0)
    shard.run(reports(light("b1", T0, {"g": 60.0}), light("b2", T0, {"g": 30.0})), now_ms=T0)
    for at in range(STEP_MS, 8 * STEP_MS, STEP_MS):
        made = [light(b, T0 + at, {}, every=16) for b in ("b1", "b2")]
        shard.run(reports(*made), now_ms=T0 + at)
    assert shard.state.overuse.debt.max(initial=0.0) == 0.0
