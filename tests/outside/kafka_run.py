"""A run with Kafka: faults by a seed, then quiet, then the evidence."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Final

from tests.outside import checks
from tests.outside.checks import learning, promised_ms, served_from, share_in_force
from tests.outside.commands import DOCTOR, complaints, quotas_in_table
from tests.outside.journal import Evidence
from tests.outside.kafka_lanes import GROUPS, lanes
from tests.outside.kafka_world import INTERVAL_S, LEASE_S, STALE_INTERVALS, KafkaWorld
from tests.outside.processes import now_ms, quotaplane
from tests.outside.schedule import schedule

EVIDENCE, CHECKS = Evidence, checks.CHECKS
QUIET_S: Final = 2 * LEASE_S + 15.0


def run(seed: int, minutes: float, folder: Path, say: Callable[[str], None]) -> Evidence:
    """Run for so many minutes, of which the last two leases and 15 s are quiet.

    Raises:
        RuntimeError: a part did not start, or an agent ended.
    """
    with KafkaWorld(folder) as world:
        say("Kafka serves; waiting for the first limits")
        _want(world, 1)
        world.wait_until(world.published, "no limits")
        begun_ms = now_ms()
        world.play(schedule(seed, lanes(), minutes * 60.0 - QUIET_S), say)
        world.heal()
        _want(world, 2)
        faults_end_ms = world.until_ready(say)
        world.wait(QUIET_S)
        end_ms = now_ms()
        evidence = Evidence(
            quotas=dict(GROUPS),
            lease_ms=round(LEASE_S * 1000),
            stale_ms=round(STALE_INTERVALS * INTERVAL_S * 1000),
            faults_end_ms=faults_end_ms,
            end_ms=end_ms,
        )
        for name, agent in world.agents.items():
            evidence.looks[name] = [look for look in agent.looks() if look.t_ms <= end_ms]
        world.job.stop()
        evidence.history += [
            f"{job.name} was replaced and still runs: {job.said()[-500:]}"
            for job in world.jobs.all[:-1]
            if job.runs
        ]
        evidence.exits = world.exits()
        evidence.puts = list(world.puts)
        evidence.published = world.published()
        say("asking the history")
        _ask_history(world, evidence, begun_ms)
    return evidence


def _want(world: KafkaWorld, quotas: int) -> None:
    """Every agent wants so many times each group's quota."""
    for agent in world.agents.values():
        for group, quota in GROUPS.items():
            agent.want(group, quotas * quota)


def _ask_history(world: KafkaWorld, evidence: Evidence, begun_ms: int) -> None:
    """The table of quotas, and what is wrong with the history."""
    evidence.table = quotas_in_table(world.conf, "publish_messages")
    since = datetime.fromtimestamp(begun_ms / 1000, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    asked = {**DOCTOR, "replay": ("replay", "--from", since, "--json")}
    evidence.history += complaints(world.conf, asked)
    words = ("audit", "conservation", "--json", "--conf", str(world.conf))
    code, printed, error = quotaplane(*words)
    if code not in (0, 1):
        evidence.history.append(f"audit conservation: exit code {code}: {error}")
    elif code == 1:
        rows = json.loads(printed)
        evidence.history += [
            f"audit conservation: {row}"
            for row in rows
            if row["unexplained"] and not _explained(evidence, row)
        ]


def _explained(evidence: Evidence, row: dict[str, str]) -> bool:
    """Whether an excess began while limits of a lowered quota, or an earlier epoch, still held."""
    first = datetime.fromisoformat(row["first_at"].replace("Z", "+00:00"))
    at_ms = first.timestamp() * 1000
    settle_ms = 2 * evidence.lease_ms + evidence.stale_ms
    lowered = any(
        put.group == row["resource_group"] and put.begun_ms <= at_ms <= put.ended_ms + settle_ms
        for put in evidence.puts
    )
    return lowered or any(begin <= at_ms < end for begin, end in learning(evidence))


def summary(evidence: Evidence) -> str:
    """The figures of a run, in a line."""
    recovered_ms = served_from(evidence)
    looks = sum(map(len, evidence.looks.values()))
    epochs = len({each.epoch for each in evidence.published})
    return (
        f"{len(evidence.published)} limits of {epochs} epochs, {looks} looks, "
        f"{sum(put.acknowledged for put in evidence.puts)} of {len(evidence.puts)} quotas "
        f"acknowledged, exits {sorted(each.code for each in evidence.exits)}; strict was "
        f"judged for {promised_ms(evidence) / 1000:.0f} s; limits were in force for "
        f"{share_in_force(evidence):.0%} of the time; recovered "
        + ("never" if recovered_ms is None else f"{recovered_ms / 1000:.1f} s after the last fault")
    )
