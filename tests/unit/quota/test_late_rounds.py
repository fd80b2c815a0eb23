"""Rounds that run late, and clocks that are wrong: brokers that report keep their service."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from quotaplane.model import Transition
from quotaplane.quota.config import StepConfig
from quotaplane.quota.step import next_due_ms
from tests.unit.quota.step_cases import (
    CONFIG,
    STRICT,
    T0,
    Shard,
    quotas,
    report,
    reports,
    with_quotas,
)

CONFIGS = {"fast": CONFIG, "strict": replace(STRICT, lease_ms=120_000, refresh_rounds=10)}
BOTH = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS)


class Cluster(Shard):
    """A shard whose brokers report what they use of 100, each by a clock that is so much behind."""

    def __init__(self, config: StepConfig, **behind_ms: int) -> None:
        super().__init__(config)
        self.behind_ms, self.statuses = behind_ms, list[tuple[str, str]]()
        self.published_at_ms: dict[tuple[str, str], int] = {}
        self.run(quotas(("g", 100)), now_ms=T0)

    def round(self, now_ms: int, made_ms: int, *names: str, use: float = 40.0) -> list[str]:
        """A round at ``now_ms`` that reads a report of each broker, made at ``made_ms`` of real
        time; returns the brokers that limits are published to.
        """
        told = {"throttled": 0.0, "applied_seqs": self.seq - 1, "applied_epoch": 1}
        made = [report(name, made_ms - self.behind_ms[name], {"g": use}, **told) for name in names]
        outcome = self.run(reports(*made), now_ms=now_ms)
        self.statuses += [(row["broker"], row["status"]) for row in outcome.brokers.to_pylist()]
        rows = [row for row in outcome.limits.to_pylist() if row["published"]]
        self.published_at_ms |= {(row["broker"], row["group"]): now_ms for row in rows}
        return [row["broker"] for row in rows]


@pytest.mark.nightly
@pytest.mark.parametrize("behind_ms", [13_000, 60_000, 119_000])
def test_a_broker_whose_clock_is_behind_keeps_its_service(behind_ms: int) -> None:
    """It and the other one report in turns, so that rounds without its report come between."""
    cluster = Cluster(CONFIG, a=0, b=behind_ms)
    for number in range(60):
        now_ms = T0 + 1_000 + 2_500 * number
        cluster.round(now_ms, now_ms - 500, "ab"[number % 2])
        cluster.round(now_ms + 1_000, now_ms)
        if ("b", "g") in cluster.published_at_ms:
            assert now_ms - cluster.published_at_ms["b", "g"] <= 32_500
    assert cluster.statuses == [("a", "live"), ("b", "live")]
    assert cluster.in_force.keys() == {("g", "a"), ("g", "b")}


@pytest.mark.parametrize("behind_ms", [0, 13_000, 60_000])
def test_a_broker_that_died_expires_in_its_time_whatever_its_clock_said(behind_ms: int) -> None:
    cluster = Cluster(CONFIG, a=0, b=behind_ms)
    cluster.round(T0, T0, "a", "b")
    for at in range(5_000, 16_000, 5_000):
        cluster.round(T0 + at, T0 + at, "a")
        assert ("b", "gone") not in cluster.statuses
    due_ms = next_due_ms(cluster.state, cluster.config)
    assert due_ms == T0 + 15_001
    cluster.round(due_ms, due_ms)
    assert cluster.statuses[-1] == ("b", "gone")
    assert ("g", "b") not in cluster.in_force


@pytest.mark.nightly
@BOTH
@pytest.mark.parametrize("step_ms", [4_000, 6_000, 60_000, 119_000])
def test_a_clock_that_is_corrected_forward_ends_no_lease(config: StepConfig, step_ms: int) -> None:
    """Stock brokers leave unchanged groups out; a group that is left out for good ends in time."""
    shard = with_quotas(("g", 100), ("h", 100), config=config)
    end_ms = 0

    def told(at_ms: int, *groups: str, behind_ms: int) -> None:
        nonlocal end_ms
        made = report("b", at_ms - behind_ms, dict.fromkeys(groups, 40.0))
        shard.run(reports(made), now_ms=at_ms)
        if not end_ms and len(shard.state.leases) == 1:
            end_ms = at_ms

    # h is in every third report, and last in that of 30 s.
    for second in range(0, 35, 5):
        told(T0 + 1000 * second, *("g" if second % 15 else "gh"), behind_ms=step_ms)
    forgotten_ms = int(config.lease.forgotten_after_ms)
    for at_ms in range(T0 + 35_000, T0 + 50_000 + forgotten_ms, 5_000):
        told(at_ms, "g", behind_ms=0)
    assert forgotten_ms - 5_000 < end_ms - (T0 + 30_000) <= forgotten_ms + 5_000


@pytest.mark.parametrize("round_ms", [3_000, 8_000, 20_000])
def test_a_broker_that_died_expires_in_the_first_round_after_its_time(round_ms: int) -> None:
    cluster = Cluster(CONFIG, a=0, b=0)
    cluster.round(T0, T0 - 100, "a", "b")
    rounds = range(T0 + round_ms, T0 + 90_000, round_ms)
    for now_ms in rounds:
        cluster.round(now_ms, now_ms - 1_000, "a")
        if cluster.statuses[-1] == ("b", "gone"):
            break
    expected = next(at for at in rounds if at - 1_000 - T0 > CONFIG.expire_after_ms)
    assert now_ms == expected


def test_a_pause_of_the_job_is_no_silence_of_brokers() -> None:
    """After 81 s a round reads three seconds of the backlog, in which only one broker reported."""
    cluster = Cluster(CONFIG, a=0, b=0, c=0)
    cluster.round(T0, T0, "a", "b", "c")
    for second in range(80):
        cluster.round(T0 + 81_000 + 1_000 * second, T0 + 1_000 * second, "abc"[second % 3])
    assert [each for each in cluster.statuses if each[1] == "gone"] == []
    assert len(cluster.in_force) == 3
    dead_ms = T0 + 161_000
    for second in range(0, 25, 5):
        cluster.round(dead_ms + 1_000 * second, dead_ms + 1_000 * second, "a", "b")
    assert cluster.statuses[-1] == ("c", "gone")


@pytest.mark.nightly
@BOTH
def test_a_round_after_a_pause_that_finds_no_reports_takes_nobody_for_dead(
    config: StepConfig,
) -> None:
    """A topic may not keep what was sent meanwhile, or deliver it late. ``c`` died in the pause."""
    cluster = Cluster(config, a=0, b=0, c=0)
    for now_ms in range(T0, T0 + 160_000, 5_000):
        cluster.round(now_ms, now_ms, "a", "b", "c")
    back_ms = now_ms + 81_000
    published = {*cluster.round(back_ms, back_ms)}
    if config.transition is Transition.FAST:
        assert published == {"a", "b", "c"}, "their leases go on"
    for second in range(1, 200):
        names = {1: "a", 4: "b"}.get(second % 5, "")
        now_ms = back_ms + 1_000 * second
        cluster.round(now_ms, now_ms, *names)
        if cluster.statuses[-1] == ("c", "gone"):
            break
    assert [each for each in cluster.statuses if each[1] == "gone"] == [("c", "gone")]
    silent_s = config.lease.forgotten_after_ms / 1000
    assert silent_s - 11 <= second <= silent_s


def test_a_broker_that_died_expires_even_if_every_round_is_very_slow() -> None:
    cluster = Cluster(CONFIG, a=0, b=0)
    for number, now_ms in enumerate(range(T0, T0 + 10 * 40_000, 40_000)):
        cluster.round(now_ms, now_ms - 100, *("ab" if not number else "a"))
        if cluster.statuses[-1] == ("b", "gone"):
            break
    assert number == 4


def test_under_strict_a_share_is_given_away_only_when_what_was_published_has_ended() -> None:
    """Also what was published while the job worked off a backlog: it is in force from then on."""
    config = CONFIGS["strict"]
    cluster = Cluster(config, a=0, b=0)
    cluster.round(T0, T0, "a", "b")
    published_at_ms, now_ms = T0, T0
    for second in range(1, 60):  # a minute behind; b is dead
        now_ms = T0 + 60_000 + 1_000 * second
        if "b" in cluster.round(now_ms, T0 + 1_000 * second, "a"):
            published_at_ms = now_ms
    while ("g", "b") in cluster.in_force:  # it has caught up
        now_ms += 5_000
        if "b" in cluster.round(now_ms, now_ms, "a"):
            published_at_ms = now_ms
    assert now_ms > published_at_ms + config.lease_ms
    # The minute that the job was away may not count.
    assert now_ms - T0 <= config.lease.forgotten_after_ms + 60_000 + 5_000


@pytest.mark.nightly
@BOTH
@pytest.mark.parametrize("pause_ms", [30_000, 81_000, 3_600_000])
def test_the_first_round_after_a_pause_publishes_all_limits(
    config: StepConfig, pause_ms: int
) -> None:
    """And then they have their turns again."""
    groups = [f"g{number}" for number in range(60)]
    shard = with_quotas(*((group, 100) for group in groups), config=config)

    def published(now_ms: int) -> set[tuple[str, str]]:
        told = {"applied_seqs": shard.seq - 1, "applied_epoch": 1, "throttled": 0.0}
        made = [report(broker, now_ms, dict.fromkeys(groups, 40.0), **told) for broker in "ab"]
        rows = shard.run(reports(*made), now_ms=now_ms).limits.to_pylist()
        return {(row["group"], row["broker"]) for row in rows if row["published"]}

    for now_ms in range(T0, T0 + 60_000, 5_000):
        published(now_ms)
    assert published(now_ms + pause_ms) == shard.in_force.keys()
    assert len(shard.in_force) == 120
    counts = [len(published(now_ms + pause_ms + 5_000 * number)) for number in range(1, 6)]
    assert sum(counts) == 120
    assert max(counts) < 60


@pytest.mark.nightly
@BOTH
@pytest.mark.parametrize("round_ms", [1_000, 5_000, 8_000, 20_000, 55_000])
def test_no_lease_ends_while_rounds_are_slow(config: StepConfig, round_ms: int) -> None:
    cluster = Cluster(config, a=0, b=0)
    ages_ms = []
    for now_ms in range(T0, T0 + 600_000, round_ms):
        cluster.round(now_ms, now_ms - 500, "a", "b")
        ages_ms += [now_ms + round_ms - at for at in cluster.published_at_ms.values()]
    assert len(cluster.published_at_ms) == 2
    assert max(ages_ms) < config.lease_ms
    assert max(ages_ms) <= 2 * max(round_ms, 30_000)


@pytest.mark.parametrize("transition", Transition)
def test_rounds_of_any_length_move_limits_alike(transition: Transition) -> None:
    """Rounds are 3 to 8 s apart and reports 2 s: nobody falls silent."""
    random = np.random.default_rng(7)
    config = replace(CONFIGS["strict"], transition=transition, stale_after_ms=4_000.0)
    config = replace(config, expire_after_ms=6_000.0)
    cluster = Cluster(config, a=0, b=0)
    now_ms, made_ms = T0, T0
    for number in range(60):
        uses = {"a": 20.0 if number < 30 else 80.0, "b": 50.0}
        made = []
        while made_ms < now_ms:  # each interval; what was made during the round waits for the next
            for name, use in uses.items():
                limit = cluster.in_force.get(("g", name), 0.0)
                told = {"applied_seqs": cluster.seq - 1, "applied_epoch": 1}
                used = min(use, limit)
                made.append(report(name, made_ms, {"g": used}, throttled=use - used, **told))
            made_ms += 2_000
        outcome = cluster.run(reports(*made), now_ms=now_ms)
        assert outcome.counts.reports == len(made)
        cluster.statuses += [(row["broker"], row["status"]) for row in outcome.brokers.to_pylist()]
        now_ms += int(random.integers(3_000, 8_001))
    assert cluster.statuses == [("a", "live"), ("b", "live")]
    assert cluster.in_force["g", "a"] == pytest.approx(50.0, rel=0.1)
