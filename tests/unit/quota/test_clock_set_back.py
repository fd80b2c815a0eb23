"""The step when the job's clock was ahead, and is put right while it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from quotaplane.quota.config import EarlierLimits, StepConfig
from quotaplane.quota.learning import DONE
from quotaplane.quota.step import next_due_ms
from tests.unit.quota.step_cases import CONFIG, STRICT, T0, Shard, quotas, report, reports

AHEAD = T0 + 3_600_000
"""The time of the clock that is ahead; T0 is right."""


def shard_of(config: StepConfig) -> Shard:
    """Two brokers share a quota; all clocks are an hour ahead."""
    shard = Shard(config)
    shard.run(quotas(("g", 100.0)), now_ms=AHEAD)
    for at in (AHEAD, AHEAD + 1000):
        both = (report("b1", at, {"g": 90.0}), report("b2", at, {"g": 90.0}))
        shard.run(reports(*both), now_ms=at)
    return shard


@pytest.mark.parametrize("config", [CONFIG, STRICT], ids=["fast", "strict"])
def test_a_broker_that_falls_silent_expires_as_soon_as_ever(config: StepConfig) -> None:
    shard = shard_of(config)
    shard.run(now_ms=T0)
    assert shard.state.brokers.seen_at_ms.tolist() == [T0, T0]
    forgotten_ms = int(config.lease.forgotten_after_ms)
    due_ms = next_due_ms(shard.state, config)
    assert due_ms is not None
    assert due_ms <= T0 + forgotten_ms + 1
    for at in range(T0 + 10_000, T0 + forgotten_ms, 10_000):
        shard.run(now_ms=at)
    shard.run(now_ms=T0 + forgotten_ms + 1)
    assert shard.state.brokers.names == ()


def test_reports_go_on_to_be_used() -> None:
    shard = shard_of(CONFIG)
    later = T0 + 2000
    both = [report(b, later, {"g": u}, sequence=2 * AHEAD) for b, u in (("b1", 90.0), ("b2", 5.0))]
    shard.run(reports(*both), now_ms=later)
    assert shard.state.brokers.seen_at_ms.tolist() == [later, later]
    assert shard.in_force["g", "b1"] > 60.0


def test_learning_ends_a_lease_later() -> None:
    config = replace(STRICT, learns=True)
    shard = shard_of(config)
    assert shard.state.learning.until_ms > AHEAD
    shard.run(now_ms=T0)
    assert shard.state.learning.until_ms == T0 + 70_000
    shard.run(now_ms=T0 + 70_000)
    assert shard.state.learning.until_ms == DONE


def test_learning_waits_for_earlier_limits_as_long_as_they_had_to_last() -> None:
    """The checkpoint was created while the clock was ahead: its note has that clock's time."""
    earlier = EarlierLimits(until_ms=AHEAD + 300_000, left_ms=300_000)
    shard = shard_of(replace(STRICT, learns=True, earlier=earlier))
    assert shard.state.learning.until_ms == AHEAD + 310_000
    shard.run(now_ms=T0)
    assert shard.state.learning.until_ms == T0 + 310_000


def test_the_quota_of_a_deleted_group_is_free_again_after_the_leases() -> None:
    shard = shard_of(STRICT)
    shard.run(quotas("g", version=1), now_ms=AHEAD + 2000)
    shard.run(now_ms=T0)
    assert (shard.state.deleted.until_ms <= STRICT.lease.reserved_until_ms(T0)).all()
    assert len(shard.state.deleted.until_ms) == 1


def test_no_time_of_the_state_is_to_come() -> None:
    """Else the snapshot, the recording and the letters would wait for an hour."""
    shard = shard_of(CONFIG)
    shard.state = replace(shard.state, snapshot_at_ms=AHEAD, recorded_at_ms=AHEAD)
    shard.run(reports(report("b1", AHEAD + 3000, {"x": 1.0})), now_ms=AHEAD + 3000)
    assert shard.state.undefined.quiet_until_ms.tolist() == [AHEAD + 3000 + 3_600_000]
    shard.run(now_ms=T0)
    state = shard.state
    assert (state.snapshot_at_ms, state.recorded_at_ms) == (T0, T0)
    assert state.undefined.quiet_until_ms.tolist() == [T0 + 3_600_000]
    assert (state.renewed_at_ms <= T0).all()
    assert (state.leases.issued_at_ms <= T0).all()
