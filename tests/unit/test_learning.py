"""A control plane that starts without any state among brokers that obey an earlier one."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from quotaplane.control import next_due_ms
from quotaplane.laws.reason import Reason
from quotaplane.model import DIMENSIONS
from tests.unit.step_cases import CONFIG, STRICT, T0, Shard, quotas, report, reports

PUBLISH_REASON = f"{DIMENSIONS[0]}_reason"


def taken_over(*, limits_told: bool = True) -> Shard:
    """A control plane of epoch 7 that starts with nothing; b1 and b2 have 70 and 30 of epoch 6."""
    shard = Shard(replace(CONFIG, lease_ms=60_000), epoch=7)
    shard.run(quotas(("g", 100)), now_ms=T0)
    shard.run(
        reports(
            *(
                report(
                    broker,
                    T0,
                    {"g": used},
                    applied_epoch=6,
                    applied_seq=5,
                    limit=limit if limits_told else np.nan,
                )
                for broker, used, limit in (("b1", 70.0, 70.0), ("b2", 5.0, 30.0))
            )
        ),
        now_ms=T0,
    )
    return shard


def test_without_state_it_hands_back_what_brokers_have() -> None:
    shard = taken_over()
    assert shard.in_force == {("g", "b1"): 70, ("g", "b2"): 30}
    at = T0 + 50_000
    shard.run(reports(report("b1", at, {"g": 70}), report("b2", at, {"g": 5})), now_ms=at)
    assert shard.in_force == {("g", "b1"): 70, ("g", "b2"): 30}


def test_what_is_handed_back_goes_out_under_the_new_epoch_with_its_reason() -> None:
    shard = Shard(CONFIG, epoch=7)
    shard.run(quotas(("g", 100)), now_ms=T0)
    mine = report("b1", T0, {"g": 70}, applied_epoch=6, applied_seq=5, limit=70.0)
    (row,) = shard.run(reports(mine), now_ms=T0).limits.to_pylist()
    assert (row["changed"], row[PUBLISH_REASON]) == (True, Reason.HANDED_BACK)


def test_after_one_lease_it_divides_by_demand() -> None:
    shard = taken_over()
    at = T0 + 55_000
    shard.run(reports(report("b1", at, {"g": 70}), report("b2", at, {"g": 5})), now_ms=at)
    until = shard.state.learning.until_ms
    assert until == T0 + 60_000 + CONFIG.stale_after_ms
    assert next_due_ms(shard.state, shard.config) <= until
    shard.run(now_ms=until)
    assert shard.in_force["g", "b1"] > 90
    assert not shard.state.learning.on


def test_limits_that_brokers_do_not_tell_are_left_alone_meanwhile() -> None:
    shard = taken_over(limits_told=False)
    assert shard.in_force == {}


def test_among_brokers_without_limits_there_is_nothing_to_learn() -> None:
    shard = Shard(CONFIG, epoch=7)
    shard.run(quotas(("g", 100)), now_ms=T0)
    shard.run(reports(report("b1", T0, {"g": 70})), now_ms=T0)
    assert shard.in_force == {("g", "b1"): 100}


def test_strict_without_state_waits_a_lease_whatever_it_hears() -> None:
    """Its first report may be of a broker that just started, among others that hold the quota."""
    shard = Shard(replace(STRICT, learns=True), epoch=7)
    shard.run(quotas(("g", 100)), now_ms=T0)
    for at in (0, 30_000, 69_999):
        now = T0 + at
        shard.run(reports(report("b2", now, {"g": 0}, throttled=90.0)), now_ms=now)
        assert shard.in_force == {}
    shard.run(reports(report("b2", now, {"g": 0}, throttled=90.0)), now_ms=T0 + 70_000)
    assert shard.in_force["g", "b2"] == pytest.approx(100)


def test_strict_waits_for_the_leases_of_the_run_before_when_they_were_longer() -> None:
    """Somebody out of reach may still have all of it."""
    until = T0 + 300_000
    shard = Shard(replace(STRICT, learns=True, earlier_until_ms=until), epoch=7)
    shard.run(quotas(("g", 100)), now_ms=T0)
    for at in (T0, T0 + 100_000, until + int(STRICT.stale_after_ms) - 1):
        shard.run(reports(report("b1", at, {"g": 0.0}, throttled=100.0)), now_ms=at)
        assert shard.in_force.get(("g", "b1"), 0.0) == 0
    at = until + int(STRICT.stale_after_ms) + 1
    shard.run(reports(report("b1", at, {"g": 0.0}, throttled=100.0)), now_ms=at)
    assert shard.in_force["g", "b1"] == pytest.approx(100)


def test_of_several_reports_the_newest_is_handed_back_and_never_more_than_the_quota() -> None:
    shard = Shard(CONFIG, epoch=7)
    shard.run(quotas(("g", 100)), now_ms=T0)
    made = [
        report("b1", T0 + at, {"g": 1}, applied_epoch=6, applied_seq=5, limit=limit)
        for at, limit in ((200, 40.0), (100, 90.0))
    ]
    huge = report("b2", T0, {"g": 1}, applied_epoch=6, applied_seq=5, limit=1e300)
    shard.run(reports(*made, huge), now_ms=T0 + 300)
    assert shard.in_force == {("g", "b1"): 40, ("g", "b2"): 100}
