"""The loop when the network loses, duplicates, delays or reorders reports."""

from __future__ import annotations

import random

import numpy as np
import pytest

from quotaplane.model import DIMENSIONS
from quotaplane.sim.broker_fleet import BrokerSpec, Report
from tests.closed_loop.conftest import Loop, Mangle

PUBLISH = DIMENSIONS[0]
WANTS = {
    "g": {"b1": [(0, 80), (10, 20)], "b2": [(0, 20), (5, 60)], "b3": [(0, 10)]},
    "h": {"b1": [(0, 5)], "b2": [(0, 90), (12, 0)], "b3": [(0, 90)]},
}
QUOTAS = {"g": {PUBLISH: 100}, "h": {PUBLISH: 60}}
SPECS = {"b3": BrokerSpec("b3", format="stock")}
SECONDS = 22


def run(mangle: Mangle = lambda reports: reports, seconds: int = SECONDS) -> Loop:
    return Loop(WANTS, QUOTAS, specs=SPECS, mangle=mangle).run(seconds)


@pytest.fixture(scope="module")
def undisturbed() -> Loop:
    return run()


def same_limits(one, other) -> None:
    for group in QUOTAS:
        np.testing.assert_array_equal(one.series("limit", group), other.series("limit", group))


def test_duplicates_and_the_order_within_a_round_change_nothing(undisturbed) -> None:
    dice = random.Random(3)

    def twice_and_shuffled(reports: list[Report]) -> list[Report]:
        doubled = reports + reports
        dice.shuffle(doubled)
        return doubled

    same_limits(run(twice_and_shuffled), undisturbed)


def test_an_old_report_in_place_of_a_new_one_is_as_good_as_none() -> None:
    """The broker's newest report is lost, and one that was already used arrives again."""

    def without(reports: list[Report]) -> list[Report]:
        return [report for report in reports if report.broker == "b3" or not lossy(report)]

    history: dict[str, list[Report]] = {}

    def with_old_ones(reports: list[Report]) -> list[Report]:
        arrived = without(reports)
        for report in reports:
            seen = history.setdefault(report.broker, [])
            if report not in arrived and len(seen) >= 2:
                arrived.append(seen[-2])
            if report in arrived:
                seen.append(report)
        return arrived

    def lossy(report: Report) -> bool:
        return report.published_at_ms // 1000 % 3 == 1

    same_limits(run(without), run(with_old_ones))


@pytest.mark.nightly
def test_lost_reports_delay_but_do_not_mislead() -> None:
    dice = random.Random(7)
    done = run(lambda reports: [report for report in reports if dice.random() > 0.3], 60)
    for group, fair in (("g", [20, 60, 10]), ("h", [5, 0, 55])):
        late = done.series("usage", group)[30:]
        assert np.median(late, axis=0) == pytest.approx(fair, rel=0.1, abs=0.5)
