"""PIP-82's own examples and goals, with the default law, through bytes and back."""

from __future__ import annotations

import numpy as np
import pytest

from quotaplane.laws import LAWS
from quotaplane.model import DIMENSIONS
from quotaplane.sim.broker_fleet import BrokerSpec
from quotaplane.sim.broker_throttle import SLOTS_PER_S
from quotaplane.sim.demand_schedule import Change
from quotaplane.sim.figures import fair_shares

PUBLISH = DIMENSIONS[0]
CLOSE = 0.1  # "an approximation of, say, 10 %"
A_REQUEST = 1 / SLOTS_PER_S  # so much of a second's limit it is at most


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
def test_use_settles_within_ten_percent_of_the_fair_shares(loop, quota, wants, fair) -> None:
    run = loop({"g": steady(*wants)}, {"g": {PUBLISH: quota}}).run(10)
    assert run.series("share", "g")[2:] == pytest.approx(np.tile(fair, (8, 1)), rel=CLOSE)
    bursts_over = run.series("usage", "g")[6:]
    assert bursts_over == pytest.approx(np.tile(fair, (4, 1)), rel=CLOSE)


def test_eighty_twenty_becomes_half_and_half_when_the_second_wants_more(loop) -> None:
    wants = {"b1": [(0, 80)], "b2": [(0, 20), (5, 60)]}
    run = loop({"g": wants}, {"g": {PUBLISH: 100}}).run(5)
    assert run.last("usage", "g")["b2"] == pytest.approx(20)
    run.run(2)  # the round in which it is seen saturated, and the next
    assert run.last("share", "g") == pytest.approx({"b1": 50, "b2": 50})
    run.run(2)  # the first has a burst left
    assert run.last("usage", "g") == pytest.approx({"b1": 50, "b2": 50}, rel=A_REQUEST)


def test_an_idle_broker_that_wakes_has_its_share_one_round_after_it_was_seen(loop) -> None:
    wants = {"b1": [(0, 80)], "b2": [(0, 80)], "b3": [(0, 0), (6, 60)]}
    run = loop({"g": wants}, {"g": {PUBLISH: 120}}).run(6)
    assert sum(run.last("usage", "g").values()) > 0.95 * 120
    run.run(2)
    assert run.last("share", "g") == pytest.approx({"b1": 40, "b2": 40, "b3": 40})
    assert run.last("usage", "g") == pytest.approx({"b1": 40, "b2": 40, "b3": 40}, rel=A_REQUEST)


@pytest.mark.parametrize("format_", ["own", "stock"])
@pytest.mark.parametrize("uses_ids", [False, True])
def test_what_a_broker_speaks_makes_no_difference(loop, format_: str, uses_ids: bool) -> None:
    specs = {
        "b1": BrokerSpec("b1", format=format_, uses_ids=uses_ids),
        "b2": BrokerSpec("b2", throttled=True),
    }
    wants = {"b1": [(0, 80), (8, 30)], "b2": [(0, 60)]}
    run = loop({"g": wants}, {"g": {PUBLISH: 100}}, specs=specs).run(7)
    assert run.last("usage", "g") == pytest.approx({"b1": 50, "b2": 50}, rel=A_REQUEST)
    run.run(8)
    assert run.last("usage", "g") == pytest.approx({"b1": 30, "b2": 60}, rel=CLOSE)
    assert run.rejected == []


def test_each_dimension_is_divided_by_itself_and_what_has_no_quota_is_free(loop) -> None:
    each = dict(zip(DIMENSIONS, (80.0, 5e6, 10.0, 9e6), strict=False))
    changes = [Change(0, broker, "g", each) for broker in ("b1", "b2")]
    quota = {"publish_messages": 100, "publish_bytes": 4e6, "dispatch_messages": 1000}
    run = loop({}, {"g": quota}, changes=changes).run(5)
    used = {name: run.last("usage", "g", name) for name in DIMENSIONS}
    assert used["publish_messages"] == pytest.approx({"b1": 50, "b2": 50})
    assert used["publish_bytes"] == pytest.approx({"b1": 2e6, "b2": 2e6})
    assert used["dispatch_messages"] == pytest.approx({"b1": 10, "b2": 10})
    assert used["dispatch_bytes"] == pytest.approx({"b1": 9e6, "b2": 9e6})
    assert run.last("limit", "g", "dispatch_bytes") == {"b1": np.inf, "b2": np.inf}


@pytest.mark.parametrize("law", [name for name, info in LAWS.items() if info.conserving])
def test_the_limits_in_force_never_add_up_to_more_than_the_quota(loop, with_settings, law) -> None:
    rng = np.random.default_rng(2)
    wants = {
        f"g{group}": {
            f"b{broker}": [(at, float(rng.integers(0, 100))) for at in range(0, 30, 3)]
            for broker in range(5)
        }
        for group in range(6)
    }
    quotas = {group: {PUBLISH: float(40 + 50 * place)} for place, group in enumerate(wants)}
    run = loop(wants, quotas, settings=with_settings(law={"name": law})).run(30)
    for group, quota in quotas.items():
        total = run.series("limit", group)[1:].sum(axis=1)
        assert (total <= quota[PUBLISH] * (1 + 1e-6)).all()


def test_noise_within_the_headroom_moves_few_limits(loop) -> None:
    wants = {f"b{n}": [(0, 2000.0 * n)] for n in range(1, 5)}
    run = loop({"g": wants}, {"g": {PUBLISH: 30_000}}, poisson=["g"]).run(25)
    limit, fair = run.series("limit", "g")[3:], fair_shares(run.series("wanted", "g")[3:], 30_000)
    assert (limit >= 0.95 * fair).all()
    moved = (np.diff(limit, axis=0) != 0).any(axis=1)
    assert moved.sum() <= 4
