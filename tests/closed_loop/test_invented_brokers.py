"""1,000 invented saturated brokers beside ten real ones: what each setting leaves to the real."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.model import DIMENSIONS
from quotaplane.settings import Settings
from quotaplane.settings.transports import brokers_of
from quotaplane.sim.broker_fleet import Report
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.report_own import encode_report
from quotaplane.wire.sender_rules import AllowedBrokers, SenderRules
from tests.closed_loop.conftest import START_MS, Loop, reports_by_reason, settings_with

REAL = [f"real-{n}" for n in range(10)]
GROUP, QUOTA = "g", 1000.0
WANTS = {GROUP: {name: [(0, 40.0 + 20.0 * n), (5, 150.0)] for n, name in enumerate(REAL)}}
ROUNDS = 9
ATTACKER = "real-0"
"""Broker whose role was stolen: invented reports are written with its rights."""


def saturated(broker: str, **more: Any) -> bytes:
    much = np.full((1, 4), 1e6)
    numbers = {"started_at_ms": 1, "window_ms": 1000, **more}
    return encode_report(broker=broker, groups=[GROUP], usage=much, throttled=much, **numbers)


def invented(begins: int = 0) -> Callable[[list[Report]], list[Report]]:
    """The real reports, and from a round on those of 1,000 invented brokers before them."""
    rounds = iter(range(ROUNDS))

    def mangle(reports: list[Report]) -> list[Report]:
        number = next(rounds)
        if number < begins:
            return reports
        one = saturated("ghost-0000", sequence=number + 1)
        values = [one.replace(b"ghost-0000", b"ghost-%04d" % n) for n in range(1000)]
        at_ms = START_MS + 1000 * number
        return [*(Report(ATTACKER, value, at_ms) for value in values), *reports]

    return mangle


def forged(reports: list[Report]) -> list[Report]:
    """The real reports, and before them 20 in the name of one that seem newer than its own."""
    values = [
        saturated("real-7", started_at_ms=START_MS + 5000, sequence=2**60 + n) for n in range(20)
    ]
    return [*(Report(ATTACKER, value, reports[0].published_at_ms) for value in values), *reports]


def by_key(reports: list[Report]) -> SenderRules:
    return SenderRules(pa.array([one.broker.encode() for one in reports], pa.binary()), "key")


def by_topic(reports: list[Report]) -> SenderRules:
    names = ["persistent://acme/ops/reports-{broker}"]
    topics = [f"persistent://acme/ops/reports-{one.broker}-partition-0" for one in reports]
    return SenderRules(pa.array(brokers_of(names, topics), pa.binary()), "topic")


def by_pattern(reports: list[Report]) -> SenderRules:
    return SenderRules(allowed=AllowedBrokers("real-?", patterns=("real-?",)))


def by_list(reports: list[Report]) -> SenderRules:
    return SenderRules(allowed=AllowedBrokers("the cluster's list", names=frozenset(REAL)))


def run_with(settings: Settings | None = None, **more: Any) -> Loop:
    return Loop(WANTS, {GROUP: {DIMENSIONS[0]: QUOTA}}, settings=settings, **more).run(ROUNDS)


def published(run: Loop) -> list[Any]:
    """Everything that real brokers were sent, in its order."""
    read = [(decode_limits(value), value) for value in run.messages]
    return [value for message, value in read if message.broker in REAL]


@pytest.fixture(scope="module")
def alone() -> Loop:
    return run_with()


def test_without_a_setting_ten_real_brokers_keep_one_percent() -> None:
    run = run_with(mangle=invented(begins=ROUNDS - 3))
    left = run.series("share", GROUP)[-1].sum() / QUOTA
    assert left == pytest.approx(0.01, abs=0.002)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("senders", "reason"),
    [
        (by_key, "other_broker"),
        (by_topic, "other_broker"),
        (by_pattern, "broker_not_allowed"),
        (by_list, "broker_not_allowed"),
    ],
)
def test_invented_brokers_take_nothing(alone: Loop, senders: Any, reason: str) -> None:
    run = run_with(mangle=invented(), senders=senders)
    assert published(run) == published(alone)
    assert np.array_equal(run.series("limit", GROUP), alone.series("limit", GROUP))
    assert reports_by_reason(run.rejected) == {reason: 1000 * ROUNDS}


def test_beyond_max_brokers_invented_ones_take_nothing(alone: Loop) -> None:
    settings = settings_with(reports={"interval_s": 1.0, "max_brokers": 10})
    run = run_with(settings, mangle=invented(begins=3))
    assert published(run) == published(alone)
    assert reports_by_reason(run.letters) == {"too_many_brokers": 1000 * (ROUNDS - 3)}


@pytest.mark.parametrize("senders", [by_key, by_topic])
def test_a_forged_report_of_a_real_broker_takes_the_place_of_none_of_its_own(
    alone: Loop, senders: Any
) -> None:
    run = run_with(mangle=forged, senders=senders)
    assert published(run) == published(alone)
    assert reports_by_reason(run.rejected) == {"other_broker": 20 * ROUNDS}


def test_without_a_check_a_forged_report_takes_the_place_of_a_real_one(alone: Loop) -> None:
    assert published(run_with(mangle=forged)) != published(alone)
