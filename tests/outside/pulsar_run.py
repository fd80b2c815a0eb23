"""A run with three Pulsar brokers and two enforcers: faults by a seed, then quiet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from tests.outside.commands import DOCTOR, complaints, quotas_in_table
from tests.outside.processes import now_ms
from tests.outside.pulsar_checks import PULSAR_CHECKS, PulsarEvidence, kept_from, new_topics_p99_ms
from tests.outside.pulsar_lanes import lanes
from tests.outside.pulsar_world import GROUP, LEASE_S, PulsarWorld
from tests.outside.schedule import schedule

EVIDENCE, CHECKS = PulsarEvidence, PULSAR_CHECKS
QUIET_S: Final = 2 * LEASE_S + 10.0
_FIRST_TOPICS: Final = 3


def run(seed: int, minutes: float, folder: Path, say: Callable[[str], None]) -> PulsarEvidence:
    """Run for so many minutes, of which the last 90 s are quiet.

    Raises:
        RuntimeError: a part did not start.
    """
    with PulsarWorld(folder) as world:
        say("three brokers serve; waiting for the first rates")
        for _ in range(_FIRST_TOPICS):
            world.new_topic(200.0)
        world.wait_until(lambda: all(topic.limited_ms for topic in world.topics), "no rates")
        say("all topics have rates")
        world.play(schedule(seed, lanes(), minutes * 60.0 - QUIET_S), say)
        world.settle()
        for topic in world.topics:
            topic.rate = 200.0
        faults_end_ms = world.until_ready(say)
        world.wait(QUIET_S)
        later = world.topics[_FIRST_TOPICS:]
        evidence = PulsarEvidence(
            quota=world.quota,
            table=None,
            lease_ms=round(LEASE_S * 1000),
            faults_end_ms=faults_end_ms,
            end_ms=now_ms(),
            acked={topic.name: dict(topic.acked) for topic in world.topics},
            unlimited_ms={each.name: each.unlimited_ms for each in later if each.first_ms},
            unlimited_looks={topic.name: topic.unlimited_looks for topic in world.topics},
        )
        world.job.stop()
        evidence.exits = world.exits()
        conf = folder / "job" / "conf.yaml"
        evidence.table = quotas_in_table(conf, "publish_messages").get(GROUP)
        evidence.history = complaints(conf, DOCTOR)
    return evidence


def summary(evidence: PulsarEvidence) -> str:
    """The figures of a run, in a line."""
    kept_ms = kept_from(evidence)
    return (
        f"{len(evidence.unlimited_ms)} new topics, without a rate for at most "
        f"{new_topics_p99_ms(evidence):.0f} ms (p99); exits "
        f"{sorted(each.code for each in evidence.exits)}; recovered "
        + ("never" if kept_ms is None else f"{kept_ms / 1000:.0f} s after the last fault")
    )
