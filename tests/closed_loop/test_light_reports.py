"""Light reports decide as well as full ones: two clusters with the same demand, side by side."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quotaplane.client.light_reports import NAMED_EVERY, SETTLED
from quotaplane.sim.broker_fleet import BrokerSpec
from tests.closed_loop.conftest import Loop, settings_with

QUOTA = 100.0
BROKERS = ("b1", "b2", "b3")
SETTLED_AT = SETTLED + 18
"""A round by which reports leave out all that is steady."""
ROUNDS = 20
"""After that."""
BOTH = pytest.mark.parametrize("transition", ["fast", "strict"])

STEPS = {
    "an idle broker wakes": [(90, 90), (40, 40), (0, 80)],
    "demand grows": [(80, 80), (15, 60), (5, 5)],
    "demand falls": [(80, 10), (90, 90), (5, 5)],
    "all fall idle but one": [(30, 0), (60, 60), (40, 0)],
    "below the quota": [(20, 20), (30, 30), (10, 10)],
    "all are held back": [(60, 60), (60, 60), (60, 60)],
    "its quota is halved": [(60, 60), (60, 60), (60, 60)],
    "its quota is halved, below steady use": [(20, 20), (30, 30), (10, 10)],
}
"""Demand of each broker for each group, before and after ``SETTLED_AT``."""
HALVED = [group for group in STEPS if "halved" in group]


def loop_of(every: int, transition: str, *, throttled: bool = True, **options: Any) -> Loop:
    """A cluster whose brokers all name each group in one of ``every`` reports."""
    specs = {
        name: BrokerSpec(name, throttled=throttled, named_every=every, uses_ids=name == "b2")
        for name in BROKERS
    }
    wants = {
        group: {
            name: [(0, before), (SETTLED_AT, after)]
            for name, (before, after) in zip(BROKERS, rates, strict=True)
        }
        for group, rates in STEPS.items()
    }
    settings = settings_with(limits={"transition": transition, "lease_s": 20.0})
    quotas = {group: {"publish_messages": QUOTA} for group in STEPS}
    return Loop(wants, quotas, settings=settings, specs=specs, **options).run(SETTLED_AT)


def halve(loop: Loop) -> None:
    for group in HALVED:
        loop.put(group, {"publish_messages": QUOTA / 2})


def kill(loop: Loop) -> None:
    loop.world.brokers.die("b1")


def restart(loop: Loop) -> None:
    loop.world.brokers.join("b1", loop.now_ms)


@BOTH
@pytest.mark.parametrize("throttled", [True, False], ids=["refusals", "no refusals"])
@pytest.mark.parametrize("event", [halve, kill, restart])
def test_limits_are_those_of_full_reports_in_the_same_rounds(
    event: Any, transition: str, throttled: bool
) -> None:
    loops = [loop_of(every, transition, throttled=throttled) for every in (0, NAMED_EVERY)]
    for loop in loops:
        event(loop)
        loop.run(ROUNDS)
    for group in STEPS:
        full, light = (loop.series("limit", group)[-ROUNDS - 10 :] for loop in loops)
        np.testing.assert_allclose(light, full, rtol=0.05, atol=0.02 * QUOTA, err_msg=group)
        full, light = (loop.series("usage", group)[-ROUNDS:].sum(axis=0) for loop in loops)
        np.testing.assert_allclose(light, full, rtol=0.03, err_msg=group)
    assert loops[0].rejected == loops[1].rejected == []
    sizes = [
        sum(len(one.value) for one in loop.intervals[SETTLED_AT - 1].reports) for loop in loops
    ]
    assert sizes[1] < 0.8 * sizes[0]


@BOTH
def test_noisy_demand_is_served_as_well(transition: str) -> None:
    used = []
    for every in (0, NAMED_EVERY):
        loop = loop_of(every, transition, poisson=[*STEPS], seed=5).run(2 * ROUNDS)
        used.append([loop.series("usage", group)[-ROUNDS:].mean(axis=0) for group in STEPS])
    full, light = np.array(used)
    np.testing.assert_allclose(light.sum(axis=1), full.sum(axis=1), atol=0.02 * QUOTA)
    np.testing.assert_allclose(light, full, atol=0.03 * QUOTA)


def test_a_group_that_leaves_a_broker_without_a_word_frees_its_share_later() -> None:
    """Reports that only stop to name it: its share is free once it would be forgotten."""
    loop, group = loop_of(NAMED_EVERY, "fast"), "all are held back"
    loop.world.attach(group, np.array([False, True, True]))
    expire = loop.settings.brokers.expire_after_intervals
    loop.run(int(expire))
    assert loop.last("limit", group)["b2"] < 40
    loop.run(NAMED_EVERY + 2)
    assert loop.last("limit", group) == pytest.approx({"b2": 50, "b3": 50})


def test_what_light_reports_save() -> None:
    """200 idle groups on two brokers: bytes, and entries that are read."""
    groups = [f"tenant-{number:03d}" for number in range(200)]
    sent = {}
    for every in (0, NAMED_EVERY):
        specs = {name: BrokerSpec(name, throttled=True, named_every=every) for name in BROKERS[:2]}
        loop = Loop(
            {group: {"b1": [(0.0, 0.0)], "b2": [(0.0, 0.0)]} for group in groups},
            {group: {"publish_messages": 50.0} for group in groups},
            specs=specs,
        )
        last = loop.run(4 + NAMED_EVERY).intervals[-NAMED_EVERY:]
        sent[every] = sum(len(report.value) for one in last for report in one.reports)
    assert sent[NAMED_EVERY] < sent[0] / 10
