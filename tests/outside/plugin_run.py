"""A run with three Kafka brokers that have the plugin: faults by a seed, then quiet."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.kafka_proof.measured import rows_of
from benchmarks.quota_proof.load import counts_of, rates
from tests.outside.commands import DOCTOR, complaints, quotas_in_table
from tests.outside.plugin_checks import (
    PLUGIN_CHECKS,
    longest_mute_ms,
    longest_pause_ms,
    most_of_bound,
    most_of_quota,
    of_allowed,
    recovered_ms,
)
from tests.outside.plugin_evidence import SLOT_MS, PluginEvidence, waits_of
from tests.outside.plugin_lanes import LEASE_S, QUOTAS, lanes
from tests.outside.plugin_world import (
    DIMENSION,
    FALLBACK,
    PAYLOAD_BYTES,
    SEATS,
    PluginWorld,
)
from tests.outside.processes import now_ms
from tests.outside.schedule import schedule

EVIDENCE, CHECKS = PluginEvidence, PLUGIN_CHECKS
QUIET_S: Final = 2 * LEASE_S + 10.0
_SETTLED_S: Final = 10.0
"""Until the first limits hold."""


def run(seed: int, minutes: float, folder: Path, say: Callable[[str], None]) -> PluginEvidence:
    """Run for so many minutes, of which the last 50 s are quiet.

    Raises:
        RuntimeError: a part did not start, or the clients ended.
    """
    with PluginWorld(folder) as world:
        say("three brokers serve; waiting for the first limits")
        world.wait_until(world.published, "no limits")
        world.wait(_SETTLED_S)
        begun_ms = now_ms()
        world.play(schedule(seed, lanes(), minutes * 60.0 - QUIET_S), say)
        world.settle()
        world.want_at_rest()
        faults_end_ms = world.until_ready(say)
        world.wait(QUIET_S)
        end_ms = now_ms()
        say("asking the history")
        evidence = _evidence(world, begun_ms, faults_end_ms, end_ms)
        world.job.stop()
        evidence.exits = world.exits()
        evidence.table = quotas_in_table(world.conf, DIMENSION)
        evidence.history = complaints(world.conf, DOCTOR)
    return evidence


def _evidence(world: PluginWorld, begun_ms: int, faults_end_ms: int, end_ms: int) -> PluginEvidence:
    slots = (end_ms - begun_ms) // SLOT_MS
    files = [counts_of(world.clients, number) for number in range(len(SEATS))]
    per_slot = PAYLOAD_BYTES * SLOT_MS / 1000
    bytes_ = [per_slot * rates(file, begun_ms / 1000, slots) for file in files]
    waits = rows_of(world.clients / "waits.csv", 3)
    waits = waits[np.logical_and(waits[:, 0] >= begun_ms / 1000, waits[:, 0] <= end_ms / 1000)]
    return PluginEvidence(
        lease_ms=round(1000 * LEASE_S),
        faults_end_ms=faults_end_ms,
        begun_ms=begun_ms,
        end_ms=end_ms,
        quotas=dict(QUOTAS),
        puts=list(world.puts),
        published=world.published(),
        fallback=FALLBACK,
        wanted={seat: each[:, 0] for seat, each in zip(SEATS, bytes_, strict=True)},
        used={seat: each[:, 1] for seat, each in zip(SEATS, bytes_, strict=True)},
        waits=[*waits_of(((t, int(place), s) for t, place, s in waits.tolist()), SEATS)],
        disturbed=sorted(world.disturbed),
    )


def summary(evidence: PluginEvidence) -> str:
    """The figures of a run, in a line."""
    recovered = [recovered_ms(evidence, group) for group in evidence.groups]
    of_bound = max(most_of_bound(evidence, group)[0] for group in evidence.groups)
    of_quota = max(most_of_quota(evidence, group) for group in evidence.groups)
    seats = [(group, broker) for group in evidence.groups for broker in evidence.brokers]
    by_limits = max(float(of_allowed(evidence, *seat).max()) for seat in seats)
    late = ["never" if ms is None else f"{ms / 1000:.0f}" for ms in recovered]
    return (
        f"{len(evidence.published)} limits, {len(evidence.disturbed)} disturbances, "
        f"{sum(put.acknowledged for put in evidence.puts)} of {len(evidence.puts)} quotas "
        f"acknowledged, exits {sorted(each.code for each in evidence.exits)}; used at most "
        f"{of_quota:.0%} of a quota in 10 s, {of_bound:.0%} of the bound, {by_limits:.0%} of what "
        f"a broker's limits allow in 5 s; longest mute {longest_mute_ms(evidence) / 1000:.1f} s, "
        f"longest pause of the job {longest_pause_ms(evidence)[0] / 1000:.1f} s; "
        f"recovered after {', '.join(late)} s"
    )
