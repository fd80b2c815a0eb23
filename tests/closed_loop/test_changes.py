"""The loop while brokers, quotas and groups change."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quotaplane.model import DIMENSIONS
from quotaplane.sim.broker_fleet import BrokerSpec
from tests.closed_loop.conftest import Loop, settings_with

PUBLISH = DIMENSIONS[0]


def wanting_60_each(rounds: int = 4, **quotas: float | None) -> Loop:
    """Three brokers and these groups; None: without a quota."""
    wants = {name: [(0, 60.0)] for name in ("b1", "b2", "b3")}
    given = {name: {PUBLISH: quota} for name, quota in quotas.items() if quota is not None}
    return Loop(dict.fromkeys(quotas, wants), given).run(rounds)


def each(*rates: float) -> Any:
    return pytest.approx(dict(zip(("b1", "b2", "b3"), rates, strict=True)))


def test_a_quota_raised_and_lowered_is_in_force_in_the_next_round() -> None:
    run = wanting_60_each(g=60)
    assert run.last("share", "g") == each(20, 20, 20)
    run.put("g", {PUBLISH: 150})
    run.run(2)
    assert run.last("share", "g") == each(50, 50, 50)
    run.put("g", {PUBLISH: 30})
    run.run(2)
    assert run.last("share", "g") == each(10, 10, 10)


def test_a_deleted_group_is_no_longer_limited_and_a_new_one_is() -> None:
    run = wanting_60_each(g=60, h=None)
    assert set(run.last("limit", "h").values()) == {np.inf}
    run.delete("g")
    run.put("h", {PUBLISH: 90})
    run.run(2)
    assert set(run.last("limit", "g").values()) == {np.inf}
    assert run.last("share", "h") == each(30, 30, 30)


def test_other_groups_are_not_touched() -> None:
    run = wanting_60_each(5, g=60, h=90)
    run.put("g", {PUBLISH: 150})
    run.run(5)
    assert (run.series("limit", "h")[2:] == run.series("limit", "h")[2]).all()


def test_a_lowered_quota_lowers_limits_below_it_that_wait_for_a_lease_end() -> None:
    """Stock brokers acknowledge nothing, so a limit that fell may not move for a lease."""
    settings = settings_with(limits={"transition": "strict", "lease_s": 10.0})
    wants = {"t::a": {"b1": [(0, 90), (22, 60)], "b2": [(0, 5), (22, 90)]}}
    run = Loop(
        wants,
        {"t": {PUBLISH: 100.0}, "t::a": {}},
        settings=settings,
        specs={name: BrokerSpec(name, format="stock") for name in ("b1", "b2")},
    ).run(26)
    assert run.last("limit", "t::a")["b1"] == pytest.approx(50.0)  # it was 93
    run.put("t", {PUBLISH: 50.0})
    run.run(2)
    assert sum(run.last("limit", "t::a").values()) <= 50.0 * (1 + 1e-6)
