"""Conditions that must hold on three Pulsar brokers, judged by their clients and REST API."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from quotaplane.errors import ClusterError
from tests.outside import checks
from tests.outside.checks import KNOWN_CODES, Violation, history, unknown_ends
from tests.outside.journal import Run

NEW_TOPIC_MS = 1_000
"""A new topic has a rate within this, in 99 of 100 cases."""
_SLOT_MS = 100
_MOST, _LEAST = 1.15, 0.8
"""Parts of the quota, once all is quiet: rates are measured, and a write refills buckets."""


@dataclass(kw_only=True)
class PulsarEvidence(Run):
    """The evidence of a run."""

    quota: float
    """That the cluster acknowledged last."""
    table: float | None
    """The same in the table ``resource_groups`` at the end."""
    acked: dict[str, dict[int, int]]
    """By topic: acknowledged messages by slot of 100 ms since 1970."""
    unlimited_ms: dict[str, int | None]
    """By topic: for how long its messages had no rate; None: until the end."""
    unlimited_looks: dict[str, list[int]]
    """By topic: when it had no rate any more, after it had had one."""


def used(evidence: PulsarEvidence, from_ms: int, to_ms: int) -> float:
    """Messages per second of all topics together."""
    slots = range(from_ms // _SLOT_MS, to_ms // _SLOT_MS)
    count = sum(of.get(slot, 0) for of in evidence.acked.values() for slot in slots)
    return count * 1000 / (to_ms - from_ms)


def kept_from(evidence: PulsarEvidence) -> int | None:
    """ms after the last fault from which on the group used its quota, no more; None: not."""

    def part(from_ms: int, to_ms: int) -> float:
        return used(evidence, from_ms, to_ms) / evidence.quota

    return checks.kept_from(evidence, part, _LEAST, _MOST)


def new_topics_p99_ms(evidence: PulsarEvidence) -> float:
    """How long new topics had no rate: the 99th percentile; inf if one never got one."""
    times = [np.inf if ms is None else ms for ms in evidence.unlimited_ms.values()]
    return float(np.quantile(times, 0.99, method="higher")) if times else 0.0


def recovered(evidence: PulsarEvidence) -> Iterator[Violation]:
    """Two leases after the last fault the topics use the group's quota, and no more."""
    after_ms = kept_from(evidence)
    if after_ms is None or after_ms > 2 * evidence.lease_ms:
        end_ms = evidence.end_ms
        last = [round(used(evidence, at, at + 5000)) for at in range(end_ms - 30_000, end_ms, 5000)]
        text = f"used of {evidence.quota}, in windows of 5 s: {last}; kept from {after_ms} ms on"
        yield Violation("recovered", end_ms, text)


def new_topics(evidence: PulsarEvidence) -> Iterator[Violation]:
    """A new topic has a rate within a second."""
    p99_ms = new_topics_p99_ms(evidence)
    if p99_ms > NEW_TOPIC_MS:
        text = f"{p99_ms} ms without a rate (p99): {evidence.unlimited_ms}"
        yield Violation("new topics", evidence.end_ms, text)


def stays_limited(evidence: PulsarEvidence) -> Iterator[Violation]:
    """A topic that had a rate always has one."""
    for topic, looks in evidence.unlimited_looks.items():
        if looks:
            text = f"{topic} had no rate in {len(looks)} looks"
            yield Violation("stays limited", looks[0], text)


def nothing_lost(evidence: PulsarEvidence) -> Iterator[Violation]:
    """The quota that the cluster acknowledged last is in the table."""
    if evidence.table != evidence.quota:
        text = f"the table has {evidence.table}, acknowledged was {evidence.quota}"
        yield Violation("nothing lost", evidence.end_ms, text)


def ends_and_history(evidence: PulsarEvidence) -> Iterator[Violation]:
    """Known exit codes; an intact history."""
    yield from unknown_ends(evidence.exits, KNOWN_CODES | {ClusterError.exit_code})
    yield from history(evidence)


PULSAR_CHECKS = (recovered, new_topics, stays_limited, nothing_lost, ends_and_history)
