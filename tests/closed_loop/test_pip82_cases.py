"""PIP-82's own examples and goals, with the default law, through bytes and back."""

from __future__ import annotations

import numpy as np
import pytest

from quotaplane.model import DIMENSIONS
from quotaplane.sim.broker_fleet import BrokerSpec
from quotaplane.sim.broker_throttle import SLOTS_PER_S
from quotaplane.sim.demand_schedule import Change
from quotaplane.sim.figures import fair_shares
from tests.closed_loop.conftest import Loop, settings_with
from tests.examples import in_nightly

PUBLISH = DIMENSIONS[0]
CLOSE = 0.1  # "an approximation of, say, 10 %"
A_REQUEST = 1 / SLOTS_PER_S  # so much of a second's limit it is at most


REPORTS = 3
"""The quota must be used again from this report after a change on."""


def use_after_a_change(
    settings, change_at: int, *, noisy: bool = False, seed: int = 0, rounds: int = 14
) -> np.ndarray:
    """Use of a quota of 100 that stock brokers want 70/30 of, and then 80/20, by round from the
    change on: what is used of what could be. Index 1: after one report of the new demand."""
    at_s = change_at * settings.reports.interval_s
    wants = {"b1": [(0.0, 70.0), (at_s, 80.0)], "b2": [(0.0, 30.0), (at_s, 20.0)]}
    run = Loop(
        {"g": wants},
        {"g": {PUBLISH: 100}},
        settings=settings,
        specs={name: BrokerSpec(name, format="stock") for name in wants},
        poisson=["g"] if noisy else [],
        seed=seed,
    ).run(change_at + rounds)
    used, wanted = (run.series(what, "g")[change_at:].sum(axis=1) for what in ("usage", "demand"))
    return np.minimum(used, 100.0) / np.minimum(wanted, 100.0)


def steady(*rates: float) -> dict[str, list[tuple[float, float]]]:
    return {f"b{number}": [(0, rate)] for number, rate in enumerate(rates, start=1)}


@pytest.mark.parametrize(
    ("quota", "wants", "fair"),
    [
        (100, (10, 50, 30), (10, 50, 30)),
        (100, (80, 20), (80, 20)),
        (100, (80, 60), (50, 50)),
        (100, (70, 70), (50, 50)),
        (120, (80, 80, 60), (40, 40, 40)),
        (120, (100, 60, 55, 5), (115 / 3, 115 / 3, 115 / 3, 5)),
        (100, (100, 100, 100, 100), (25, 25, 25, 25)),
    ],
)
def test_use_settles_within_ten_percent_of_the_fair_shares(quota, wants, fair) -> None:
    run = Loop({"g": steady(*wants)}, {"g": {PUBLISH: quota}}).run(10)
    assert run.series("share", "g")[2:] == pytest.approx(np.tile(fair, (8, 1)), rel=CLOSE)
    bursts_over = run.series("usage", "g")[6:]
    assert bursts_over == pytest.approx(np.tile(fair, (4, 1)), rel=CLOSE)


def test_eighty_twenty_becomes_half_and_half_when_the_second_wants_more() -> None:
    wants = {"b1": [(0, 80)], "b2": [(0, 20), (5, 60)]}
    run = Loop({"g": wants}, {"g": {PUBLISH: 100}}).run(5)
    assert run.last("usage", "g")["b2"] == pytest.approx(20)
    run.run(2)  # the round in which it is seen saturated, and the next
    assert run.last("share", "g") == pytest.approx({"b1": 50, "b2": 50})
    run.run(2)  # the first has a burst left
    assert run.last("usage", "g") == pytest.approx({"b1": 50, "b2": 50}, rel=A_REQUEST)


def test_an_idle_broker_that_wakes_has_its_share_one_round_after_it_was_seen() -> None:
    wants = {"b1": [(0, 80)], "b2": [(0, 80)], "b3": [(0, 0), (6, 60)]}
    run = Loop({"g": wants}, {"g": {PUBLISH: 120}}).run(6)
    assert sum(run.last("usage", "g").values()) > 0.95 * 120
    run.run(2)
    assert run.last("share", "g") == pytest.approx({"b1": 40, "b2": 40, "b3": 40})
    assert run.last("usage", "g") == pytest.approx({"b1": 40, "b2": 40, "b3": 40}, rel=A_REQUEST)


@pytest.mark.parametrize("format_", ["own", "stock"])
@pytest.mark.parametrize("uses_ids", [False, True])
def test_what_a_broker_speaks_makes_no_difference(format_: str, uses_ids: bool) -> None:
    specs = {
        "b1": BrokerSpec("b1", format=format_, uses_ids=uses_ids),
        "b2": BrokerSpec("b2", throttled=True),
    }
    wants = {"b1": [(0, 80), (8, 30)], "b2": [(0, 60)]}
    run = Loop({"g": wants}, {"g": {PUBLISH: 100}}, specs=specs).run(7)
    assert run.last("usage", "g") == pytest.approx({"b1": 50, "b2": 50}, rel=A_REQUEST)
    run.run(8)
    assert run.last("usage", "g") == pytest.approx({"b1": 30, "b2": 60}, rel=CLOSE)
    assert run.rejected == []


def test_each_dimension_is_divided_by_itself_and_what_has_no_quota_is_free() -> None:
    each = dict(zip(DIMENSIONS, (80.0, 5e6, 10.0, 9e6), strict=False))
    changes = [Change(0, broker, "g", each) for broker in ("b1", "b2")]
    quota = {"publish_messages": 100, "publish_bytes": 4e6, "dispatch_messages": 1000}
    run = Loop({}, {"g": quota}, changes=changes).run(5)
    used = {name: run.last("usage", "g", name) for name in DIMENSIONS}
    assert used["publish_messages"] == pytest.approx({"b1": 50, "b2": 50})
    assert used["publish_bytes"] == pytest.approx({"b1": 2e6, "b2": 2e6})
    assert used["dispatch_messages"] == pytest.approx({"b1": 10, "b2": 10})
    assert used["dispatch_bytes"] == pytest.approx({"b1": 9e6, "b2": 9e6})
    assert run.last("limit", "g", "dispatch_bytes") == {"b1": np.inf, "b2": np.inf}


def test_noise_within_the_headroom_moves_few_limits() -> None:
    wants = {f"b{n}": [(0, 2000.0 * n)] for n in range(1, 5)}
    run = Loop({"g": wants}, {"g": {PUBLISH: 30_000}}, poisson=["g"]).run(25)
    limit, fair = run.series("limit", "g")[3:], fair_shares(run.series("wanted", "g")[3:], 30_000)
    assert (limit >= 0.95 * fair).all()
    moved = (np.diff(limit, axis=0) != 0).any(axis=1)
    assert moved.sum() <= 4


@pytest.mark.parametrize("change_at", [6, *in_nightly(12, 24)])
def test_a_quota_of_100_is_used_from_the_third_stock_report_on(change_at: int) -> None:
    """PIP-82's goal "the quota is not under-utilized", at its own numbers."""
    settings = settings_with(reports={"interval_s": 5.0})
    assert (use_after_a_change(settings, change_at)[REPORTS:] >= 0.97).all()


def test_a_steady_quota_of_100_is_used_but_for_the_price_with_windows_of_a_second() -> None:
    """A window has 20 messages. Where usage is reported as unchanged, there is no noise."""
    use = use_after_a_change(settings_with(), 6, rounds=40)
    assert use[-10:].mean() >= 0.97


RATES = 30.0, 20.0
"""Demand of the satisfied broker before the change and after it, per second."""
ALARMS_EVERY = 120.0
"""Windows between two false alarms of ``learn``."""


def information(interval_s: float) -> float:
    """Mean information of a window for the new rate against the old one, in nats."""
    before, after = (rate * interval_s for rate in RATES)
    return after * np.log(after / before) - after + before


def clairvoyant_use(interval_s: float, limits: tuple[float, float], rounds: int) -> np.ndarray:
    """Use by round of an estimator that knows both rates and only has to notice the change.

    It has the chart that finds it first with so many false alarms (CUSUM of the logarithm of the
    likelihood ratio). ``limits``: of the first broker before and after it noticed; the second has
    the rest.
    """
    rng, runs = np.random.default_rng(1), 20_000
    before, after = (rate * interval_s for rate in RATES)

    def chart(total: np.ndarray, counts: np.ndarray) -> np.ndarray:
        return np.maximum(total + counts * np.log(after / before) + before - after, 0.0)

    def alarms(most: float) -> float:
        total, found = np.zeros(200), 0
        for _ in range(1000):
            total = chart(total, rng.poisson(before, 200))
            found += int((total > most).sum())
            total[total > most] = 0.0
        return found / (200 * 1000)

    most = next(h for h in np.arange(0.2, 12.0, 0.2) if alarms(h) <= 1.0 / ALARMS_EVERY)
    total, noticed, use = np.zeros(runs), np.zeros(runs, bool), []
    for _ in range(rounds):
        first, second = (rng.poisson(rate * interval_s, runs) / interval_s for rate in (80.0, 20.0))
        limit = np.where(noticed, limits[1], limits[0])
        used = np.minimum(first, limit) + np.minimum(second, 100.0 - limit)
        use.append(np.minimum(used, 100.0).sum() / np.minimum(first + second, 100.0).sum())
        total = chart(total, second * interval_s)
        noticed |= total > most
    return np.array(use)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("interval_s", "limits", "least", "says"),
    # Limits: the price of headroom, 5 % of 70 and of 80; of 80 with windows of 5 s what 1 % asks
    # for, 1.8 at a noise of 2.
    [(5.0, (66.5, 78.2), 0.96, 9.45), (1.0, (66.5, 76.0), 0.91, 1.89)],
)
def test_noise_bounds_how_soon_a_quota_of_100_is_used(
    interval_s: float, limits: tuple[float, float], least: float, says: float
) -> None:
    """docs/explain/laws.md has these numbers."""
    assert information(interval_s) == pytest.approx(says, abs=0.005)
    bound = clairvoyant_use(interval_s, limits, REPORTS + 1)[REPORTS]
    assert (bound > 0.97) == (interval_s == 5.0)
    settings = settings_with(reports={"interval_s": interval_s})
    use = [
        use_after_a_change(settings, 12, noisy=True, seed=seed, rounds=REPORTS + 1)[REPORTS]
        for seed in range(24)
    ]
    assert least <= np.mean(use) <= bound
