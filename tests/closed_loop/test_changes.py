"""The loop while brokers, quotas and groups change."""

from __future__ import annotations

import numpy as np
import pytest

from quotaplane.model import DIMENSIONS

PUBLISH = DIMENSIONS[0]


def three(rate: float) -> dict[str, list[tuple[float, float]]]:
    return {name: [(0, rate)] for name in ("b1", "b2", "b3")}


def test_a_dead_brokers_share_is_given_on_after_three_missed_intervals(loop) -> None:
    run = loop({"g": three(60)}, {"g": {PUBLISH: 120}}).run(5)
    assert run.last("share", "g") == pytest.approx({"b1": 40, "b2": 40, "b3": 40})
    run.world.brokers.die("b3")
    run.run(3)
    assert run.last("limit", "g")["b1"] == pytest.approx(40)  # it may only be slow
    run.run(3)
    assert run.last("share", "g") == pytest.approx({"b1": 60, "b2": 60, "b3": 0})


def test_a_broker_that_comes_back_is_heard_at_once(loop) -> None:
    run = loop({"g": three(60)}, {"g": {PUBLISH: 120}}).run(4)
    run.world.brokers.die("b3")
    run.run(7)
    run.world.brokers.join("b3", run.intervals[-1].now_ms + 500)
    run.run(3)
    assert run.last("share", "g") == pytest.approx({"b1": 40, "b2": 40, "b3": 40})


def test_a_broker_that_restarts_at_once_keeps_its_share(loop) -> None:
    run = loop({"g": three(60)}, {"g": {PUBLISH: 120}}).run(4)
    run.world.brokers.join("b3", run.intervals[-1].now_ms + 500)  # forgot its limits and sequence
    run.run(15)  # long enough for every limit to be sent again
    assert run.last("limit", "g") == pytest.approx({"b1": 40, "b2": 40, "b3": 40})


def test_a_quota_raised_and_lowered_is_in_force_in_the_next_round(loop) -> None:
    run = loop({"g": three(60)}, {"g": {PUBLISH: 60}}).run(4)
    assert run.last("share", "g") == pytest.approx({"b1": 20, "b2": 20, "b3": 20})
    run.put("g", {PUBLISH: 150})
    run.run(2)
    assert run.last("share", "g") == pytest.approx({"b1": 50, "b2": 50, "b3": 50})
    run.put("g", {PUBLISH: 30})
    run.run(2)
    assert run.last("share", "g") == pytest.approx({"b1": 10, "b2": 10, "b3": 10})


def test_a_quota_taken_away_frees_the_brokers(loop) -> None:
    run = loop({"g": three(60)}, {"g": {PUBLISH: 60}}).run(4)
    run.put("g", {})
    run.run(2)
    assert run.last("limit", "g") == {"b1": np.inf, "b2": np.inf, "b3": np.inf}


def test_a_deleted_group_is_no_longer_limited_and_a_new_one_is(loop) -> None:
    run = loop({"g": three(60), "h": three(60)}, {"g": {PUBLISH: 60}}).run(4)
    assert set(run.last("limit", "h").values()) == {np.inf}
    run.delete("g")
    run.put("h", {PUBLISH: 90})
    run.run(2)
    assert set(run.last("limit", "g").values()) == {np.inf}
    assert run.last("share", "h") == pytest.approx({"b1": 30, "b2": 30, "b3": 30})


def test_a_group_deleted_and_made_again_starts_anew(loop) -> None:
    run = loop({"g": three(60)}, {"g": {PUBLISH: 60}}).run(4)
    run.delete("g")
    run.run(2)
    run.put("g", {PUBLISH: 90})
    run.run(3)
    assert run.last("share", "g") == pytest.approx({"b1": 30, "b2": 30, "b3": 30})


def test_other_groups_are_not_touched(loop) -> None:
    run = loop({"g": three(60), "h": three(60)}, {"g": {PUBLISH: 60}, "h": {PUBLISH: 90}}).run(5)
    run.put("g", {PUBLISH: 150})
    run.run(5)
    assert (run.series("limit", "h")[2:] == run.series("limit", "h")[2]).all()
