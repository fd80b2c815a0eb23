"""The brokers' own reports beside the enforcer's observations: which of them counts, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quotaplane.model import DIMENSIONS
from quotaplane.quota.outcome import Outcome
from quotaplane.quota.state_codec import dump
from tests.unit.quota.step_cases import CONFIG, STRICT, T0, Shard, quotas, report, reports

QUOTA = 100.0
PUBLISH, DISPATCH = "publish_messages", "dispatch_messages"


def own(broker: str, at_s: float, **uses: float) -> dict[str, Any]:
    """A broker's own report of the 5 s before ``at_s``."""
    return report(broker, T0 + round(1000 * at_s), uses, observed=False)


def seen(broker: str, at_s: float, window_s: float = 1.0, **uses: float) -> dict[str, Any]:
    """The enforcer's report of the second before ``at_s``."""
    at_ms = T0 + round(1000 * at_s)
    position = f"observed/0@{broker}-{at_ms}"
    more = {"observed": True, "window_s": window_s, "position": position}
    return report(broker, at_ms, uses, **more)


class Watched:
    """A shard with group ``g``, and a round each second."""

    def __init__(self, config: Any = CONFIG) -> None:
        self.shard = Shard(config)
        self.shard.run(quotas(("g", QUOTA)), now_ms=T0)
        self.outcome: Outcome | None = None

    def round(self, at_s: float, *made: dict[str, Any]) -> Outcome:
        self.outcome = self.shard.run(reports(*made), now_ms=T0 + round(1000 * at_s))
        return self.outcome

    def usage(self, broker: str = "b") -> float:
        state = self.shard.state
        at = state.leases.broker == state.brokers.names.index(broker)
        return float(state.leases.usage[0, at][0])

    def follow(self, begin_s: int, end_s: int, own_rate: float, seen_rate: float) -> Watched:
        """Both sources report steady usage: the broker each 5 s, the enforcer each second."""
        for at_s in range(begin_s, end_s):
            made = [seen("b", at_s, g=seen_rate)]
            if at_s % 5 == 0:
                made.append(own("b", at_s, g=own_rate))
            self.round(at_s, *made)
        return self


def test_an_observation_counts_once_it_agreed_with_an_own_report() -> None:
    # Own reports come at 5, 10, 15 s. The enforcer begins at 6 s, so that the report of 10 s is the
    # first that it can be compared with: 4 s of its 5 s were observed.
    watched = Watched()
    watched.round(5, own("b", 5, g=40.0))
    watched.round(6, seen("b", 6, g=41.0))
    assert watched.usage() == 40.0
    watched.follow(7, 10, 40.0, 41.0)
    assert watched.usage() == 40.0
    watched.follow(10, 12, 40.0, 41.0)
    assert watched.usage() == 41.0
    assert watched.outcome.counts.observed_pairs == 1
    # The own report of 15 s says 40 still; it is compared only.
    watched.follow(12, 16, 40.0, 41.0)
    assert watched.usage() == 41.0
    assert watched.outcome.counts.sources_differing == 0


def test_an_observation_of_a_part_does_not_win_over_a_broker_that_reports_more() -> None:
    # 70 of the broker's 100 are seen: more than a tenth is missing. Two reports show it.
    watched = Watched().follow(1, 10, 70.0, 70.0)
    assert watched.usage() == 70.0
    watched.follow(10, 15, 100.0, 70.0)
    assert watched.usage() == 70.0  # the report of 10 s differs; that may be a change of load
    watched.follow(15, 16, 100.0, 70.0)
    assert watched.outcome.counts.sources_differing == 1
    assert watched.outcome.counts.observed_pairs == 0
    assert watched.usage() == 100.0
    watched.follow(16, 21, 100.0, 70.0)
    assert watched.usage() == 100.0
    # The enforcer sees all of it again: from the next own report on, it counts.
    watched.follow(21, 27, 100.0, 101.0)
    assert watched.usage() == 101.0


def test_an_observation_of_a_part_never_wins_if_the_broker_was_there_before() -> None:
    watched = Watched()
    watched.round(5, own("b", 5, g=100.0))
    for at_s in range(6, 40):
        watched.follow(at_s, at_s + 1, 100.0, 70.0)
        assert watched.usage() == 100.0


@pytest.mark.parametrize(
    ("quota", "own_rates", "seen_rates", "misses"),
    [
        # A broker counts what it reads of its own system topics, which the enforcer leaves out.
        pytest.param(PUBLISH, (40.0, 3.0), (40.0, 0.0), 0, id="usage that no quota limits"),
        pytest.param("total_messages", (40.0, 60.0), (40.0, 0.0), 2, id="only a total is limited"),
        pytest.param(PUBLISH, (3.0, 0.0), (0.0, 0.0), 2, id="the enforcer sees nothing"),
    ],
)
def test_a_difference_counts_where_a_quota_limits(
    quota: str, own_rates: tuple[float, float], seen_rates: tuple[float, float], misses: int
) -> None:
    watched = Watched()
    watched.shard.run(quotas(("g", {quota: QUOTA})), now_ms=T0)
    for at_s in range(1, 32):
        made = [seen("b", at_s, g=dict(zip((PUBLISH, DISPATCH), seen_rates, strict=True)))]
        if at_s % 5 == 0:
            made.append(own("b", at_s, g=dict(zip((PUBLISH, DISPATCH), own_rates, strict=True))))
        outcome = watched.round(at_s, *made)
        assert misses or outcome.counts.sources_differing == 0
    assert watched.shard.state.observed.misses.tolist() == [misses]


def test_a_window_in_which_a_limit_came_into_force_shows_at_least_what_was_used() -> None:
    """``b`` wakes up, and its first full window is half under its old limit."""
    watched = Watched()
    for at_s in range(1, 21):
        watched.round(at_s, seen("a", at_s, g=80.0), seen("b", at_s, g=0.0))
    low = watched.shard.in_force["g", "b"]
    assert low < 10
    watched.round(21, seen("a", 21, g=90.0), seen("b", 21, g=low))
    assert watched.shard.in_force["g", "b"] == pytest.approx(50)
    watched.round(22, seen("a", 22, g=70.0), seen("b", 22, g=28.0))
    assert watched.shard.in_force["g", "b"] == pytest.approx(50), "28 of 50 say nothing yet"
    for at_s in (23, 24, 25):
        watched.round(at_s, seen("a", at_s, g=60.0), seen("b", at_s, g=28.0))
    assert watched.shard.in_force["g", "b"] < 45, "all of these windows were under the new limit"


@pytest.mark.parametrize("dimension", [PUBLISH, DISPATCH])
def test_usage_that_ends_is_followed_at_once_unless_it_comes_in_batches(dimension: str) -> None:
    """Once a topic has moved away, the enforcer reports its old broker only once more."""
    watched = Watched()
    watched.shard.run(quotas(("g", {dimension: QUOTA})), now_ms=T0)
    for at_s in range(1, 31):
        used = {name: {dimension: 60.0} for name in "ab"}
        watched.round(at_s, *(seen(name, at_s, g=rate) for name, rate in used.items()))
    watched.round(31, seen("a", 31, g={dimension: 50.0}), seen("b", 31, g={dimension: 0.0}))
    state = watched.shard.state
    of_b = state.leases.broker == state.brokers.names.index("b")
    place = state.leases.dimensions.index(DIMENSIONS.index(dimension))
    demand = float(state.leases.estimates.demand[place, of_b][0])
    assert demand > 40.0 if dimension == DISPATCH else demand == 0.0


@pytest.mark.parametrize("used", [5.0, 20.0, 35.0])
def test_a_reported_window_under_two_limits_shows_at_least_what_was_used(used: float) -> None:
    """The limit of ``b`` came into force late in the window, as on a busy machine."""
    watched = Watched()
    for at_s in (5, 10, 15, 20):
        watched.round(at_s, own("a", at_s, g=80.0), own("b", at_s, g=0.0))
    low = watched.shard.in_force["g", "b"]
    watched.round(25, own("a", 25, g=80.0), own("b", 25, g=low))
    assert watched.shard.in_force["g", "b"] > 40
    watched.round(30, own("a", 30, g=70.0), own("b", 30, g=used))
    assert watched.shard.in_force["g", "b"] > 40, "so much of 49 says nothing yet"
    for at_s in (35, 40, 45):
        watched.round(at_s, own("a", at_s, g=80.0), own("b", at_s, g=20.0))
    assert watched.shard.in_force["g", "b"] < 30, "all of these windows were under the new limit"


def test_a_broker_that_is_held_back_gets_its_share_however_noisy_it_was() -> None:
    """It can't show more than its limit, so its noise is no reason to leave the limit as it is."""
    watched = Watched()
    rng = np.random.default_rng(2)
    for at_s in range(1, 41):
        made = {
            name: min(float(rng.poisson(60)), watched.shard.in_force.get(("g", name), 100.0))
            for name in "abc"
        }
        watched.round(at_s, *(seen(name, at_s, g=used) for name, used in made.items()))
    limits = [watched.shard.in_force["g", name] for name in "abc"]
    assert limits == pytest.approx([QUOTA / 3] * 3, rel=0.05)


def test_an_observation_of_more_counts_and_is_reported() -> None:
    watched = Watched().follow(1, 10, 40.0, 40.0).follow(10, 31, 40.0, 80.0)
    assert watched.usage() == 80.0
    assert watched.outcome.counts.sources_differing == 1


def test_a_broker_that_wakes_up_between_two_ends_of_windows_is_no_difference() -> None:
    # It begins at 9.5 s with 100 per second. Its report of 10 s says 10; nothing was observed yet.
    # The one of 15 s says 100, and 100 was observed in most of that time.
    watched = Watched().follow(1, 10, 0.0, 0.0)
    watched.round(10, own("b", 10, g=10.0))
    watched.round(10.4, seen("b", 10.4, g=90.0))
    assert watched.usage() == 90.0
    watched.follow(11, 16, 100.0, 100.0)
    assert watched.usage() == 100.0
    assert watched.shard.state.observed.misses.tolist() == [0]


def test_an_enforcer_that_stops_leaves_all_as_it_was() -> None:
    # It stops after 12 s: its last observation is current until 15 s. The own report of 15 s is
    # compared only, that of 20 s is used; the broker counts as live all the time.
    watched = Watched().follow(1, 13, 40.0, 40.0)
    for at_s in range(13, 31):
        watched.round(at_s, *([own("b", at_s, g=25.0)] if at_s % 5 == 0 else []))
        assert not watched.shard.state.brokers.stale.any()
        assert watched.usage() == (40.0 if at_s < 20 else 25.0)
    assert not len(watched.shard.state.observed)


def test_unchanged_refers_to_the_own_report_before() -> None:
    watched = Watched().follow(1, 13, 40.0, 42.0)
    assert watched.usage() == 42.0
    watched.round(20, own("b", 20, g=np.nan))
    assert watched.usage() == 40.0


def test_the_comparison_knows_what_unchanged_stands_for() -> None:
    watched = Watched().follow(1, 10, 100.0, 100.0)
    for at_s in range(10, 21):
        made = [seen("b", at_s, g=60.0)]
        if at_s % 5 == 0:
            made.append(own("b", at_s, g=np.nan))
        watched.round(at_s, *made)
    assert watched.usage() == 100.0


def test_without_own_reports_the_observation_is_used() -> None:
    watched = Watched()
    watched.round(5, own("b", 5, g=100.0))
    for at_s in range(6, 25):
        watched.round(at_s, seen("b", at_s, g=30.0))
    # Own reports are missing for stale_after_ms (10 s) from 15 s on.
    assert watched.usage() == 30.0


def test_a_broker_with_an_agent_is_not_observed() -> None:
    watched = Watched()
    agent = report("b", T0 + 5000, {"g": 50.0}, started_at_ms=7, sequence=1, observed=False)
    watched.round(5, agent, seen("b", 5, g=10.0))
    assert watched.usage() == 50.0
    watched.round(6, seen("b", 6, g=10.0))
    assert watched.usage() == 50.0
    agent = report("b", T0 + 7000, {"g": 51.0}, started_at_ms=7, sequence=2, observed=False)
    watched.round(7, agent)
    assert watched.usage() == 51.0


def test_observations_are_used_in_their_order_and_only_newer_ones() -> None:
    watched = Watched()
    outcome = watched.round(4, seen("b", 3, g=30.0), seen("b", 4, g=40.0), seen("b", 2, g=20.0))
    assert (watched.usage(), outcome.counts.entries) == (40.0, 3)
    outcome = watched.round(5, seen("b", 1, g=10.0), seen("b", 4, g=99.0))
    assert (watched.usage(), outcome.counts.entries) == (40.0, 0)


def test_the_order_of_arrival_makes_no_difference() -> None:
    made = [seen("b", at_s, g=10.0 * at_s) for at_s in (1, 2, 3)]
    made += [own("b", 3, g=20.0), seen("c", 2, g=5.0), {**seen("b", 2, g=7.0), "position": "z"}]
    states = []
    for arrived in (made, made[::-1]):
        watched = Watched()
        watched.round(3.5, *arrived)
        states.append(dump(watched.shard.state))
    assert states[0] == states[1]


@pytest.mark.parametrize("ahead_s", [-3.0, 3.0])
def test_own_reports_are_used_whatever_the_enforcers_clock_says(ahead_s: float) -> None:
    watched = Watched()
    for at_s in range(1, 11):
        watched.round(at_s, {**seen("b", at_s + ahead_s, g=40.0)})
    for at_s in (15, 20, 25):
        watched.round(at_s, own("b", at_s, g=25.0))
        assert not watched.shard.state.brokers.stale.any()
    assert watched.usage() == 25.0


def test_a_report_of_a_very_long_window_does_not_silence_its_broker() -> None:
    watched = Watched()
    watched.round(5, own("b", 5, g=40.0))
    watched.round(6, seen("b", 6, window_s=4e6, g=1.0))
    watched.round(20, own("b", 20, g=80.0))
    assert watched.usage() == 80.0


def test_groups_that_are_not_defined_take_no_memory() -> None:
    watched = Watched()
    outcome = watched.round(1, seen("b", 1, invented=1.0, g=5.0))
    assert watched.usage() == 5.0
    assert outcome.unknown_entries == 1
    assert len(watched.shard.state.observed) == 1


def test_a_number_from_the_end_of_time_blocks_nothing_for_long() -> None:
    watched = Watched()
    for at_s in (5, 10):
        watched.round(at_s, own("b", at_s, g=40.0))
    watched.round(11, {**seen("b", 11, g=1.0), "sequence": 2**63 - 1})
    watched.round(15, own("b", 15, g=50.0))
    assert watched.usage() == 50.0
    watched.follow(16, 26, 50.0, 51.0)
    assert watched.usage() == 51.0


def test_strict_acknowledges_nothing_by_an_observation() -> None:
    watched = Watched(STRICT)
    watched.round(1, seen("b", 1, g=60.0))
    watched.round(2, seen("b", 2, g=10.0), seen("c", 2, g=60.0))
    in_force = watched.shard.state.leases.max_in_force[0]
    assert in_force.sum() <= QUOTA


@pytest.mark.parametrize(("seen_rate", "counted"), [(100.0, "reports"), (200.0, "observed")])
def test_of_reports_set_aside_those_of_the_source_that_counts_are_recorded(
    seen_rate: float, counted: str
) -> None:
    """After 25 s without a round; both sources report the same seconds."""
    watched = Watched().follow(1, 31, 200.0, seen_rate)
    made = [own("b", at_s, g=200.0) for at_s in range(35, 60, 5)]
    made += [seen("b", at_s + 0.3, g=seen_rate) for at_s in range(31, 56)]
    late = [one for one in made if one["published_at_ms"] < T0 + 50_000]
    aside, now = reports(*late), reports(*(one for one in made if one not in late))
    assert aside.headers is not None
    assert aside.entries is not None
    events = replace(now, aside=(aside.headers, aside.entries))
    outcome = watched.shard.run(events, now_ms=T0 + 56_000)
    recorded = outcome.usage["position"].to_pylist()
    assert {position.split("/")[0] for position in recorded} == {counted}
    assert len(recorded) == {"reports": 5, "observed": 25}[counted]
