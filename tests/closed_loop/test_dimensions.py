"""Totals and controller mutations through the whole loop: reported, divided, obeyed."""

from __future__ import annotations

import numpy as np
import pytest

from quotaplane.model import DIMENSIONS
from quotaplane.quota.headroom import DEFAULT_PRICE
from quotaplane.sim.broker_fleet import BrokerSpec
from quotaplane.sim.demand_schedule import Change
from tests.closed_loop.conftest import Loop

PUBLISH, DISPATCH, TOTAL, MUTATIONS = (DIMENSIONS[d] for d in (0, 2, 4, 6))
SPECS = {
    "stock": BrokerSpec("b1", format="stock"),
    "own": BrokerSpec("b1"),
    "own, with throttled": BrokerSpec("b1", throttled=True),
    "own, with totals": BrokerSpec("b1", throttled=True, totals=True),
}
WANTS = [
    Change(0, "b1", "g", {PUBLISH: 60.0, DISPATCH: 60.0}),
    Change(0, "b2", "g", {PUBLISH: 30.0, DISPATCH: 10.0}),
]
HELD_BACK = 1.0 - DEFAULT_PRICE
"""Part of its fair share that a broker keeps when it pays for the headroom of others."""
SHARES = {"b1": HELD_BACK * 60, "b2": 40}


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS)
def test_publish_and_dispatch_share_one_quota(spec: BrokerSpec) -> None:
    run = Loop({}, {"g": {TOTAL: 100.0}}, changes=WANTS, specs={"b1": spec}).run(12)
    assert run.last("usage", "g", TOTAL) == pytest.approx(SHARES, rel=0.06)
    assert run.last("usage", "g", PUBLISH)["b1"] == pytest.approx(HELD_BACK * 30, rel=0.08)
    assert run.last("limit", "g", PUBLISH) == {"b1": np.inf, "b2": np.inf}
    assert (run.series("limit", "g", TOTAL)[1:].sum(axis=1) <= 100.0 * (1 + 1e-9)).all()
    assert run.rejected == []


def test_a_total_beside_a_quota_on_one_of_its_parts() -> None:
    run = Loop({}, {"g": {TOTAL: 100.0, PUBLISH: 20.0}}, changes=WANTS).run(15)
    assert sum(run.last("usage", "g", PUBLISH).values()) <= 20.0 * (1 + 1e-9)
    assert sum(run.last("usage", "g", TOTAL).values()) == pytest.approx(90, rel=0.05)
