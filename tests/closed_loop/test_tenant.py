"""A tenant with many groups, most of them idle: the active ones share its quota."""

from __future__ import annotations

import pytest

from quotaplane.model import DIMENSIONS
from quotaplane.sim.broker_fleet import BrokerSpec
from tests.closed_loop.conftest import Loop

PUBLISH = DIMENSIONS[0]
IDLE = [f"acme::g{number}" for number in range(1, 200)]


@pytest.mark.parametrize(("told", "part"), [(True, 0.99), (False, 0.95)])
@pytest.mark.parametrize("own_quota", [{}, {PUBLISH: 990.0}], ids=["none", "own quotas"])
def test_who_is_alone_among_many_idle_groups_gets_nearly_all(told, part, own_quota) -> None:
    wants = {name: {"b1": [(0, 0.0)]} for name in IDLE[1:]}
    wants |= {"acme::busy": {"b1": [(0, 5000.0)]}, "acme::wakes": {"b1": [(0, 0.0), (8, 300.0)]}}
    quotas = {"acme": {PUBLISH: 1000.0}, **dict.fromkeys(wants, own_quota)}
    run = Loop(wants, quotas, specs={"b1": BrokerSpec("b1", throttled=told)}).run(13)
    busy, wakes = (run.series("share", name)[:, 0] for name in ("acme::busy", "acme::wakes"))
    assert (busy[1:9] >= part * 1000).all()
    assert wakes[8:] == pytest.approx([wakes[8], 300, 300, 300, 300])
    # Of what the other leaves over it gives at most the price for that one's headroom.
    assert busy[-1] >= (1 - 0.05) * (part - 0.3) * 1000
    assert sum(run.last("limit", name)["b1"] for name in wants) <= 1000 * (1 + 1e-9)
