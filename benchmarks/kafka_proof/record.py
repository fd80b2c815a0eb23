"""Measurements of one contender in one scenario, with what only clients of Kafka show."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks.quota_proof.record import Record


@dataclass(frozen=True)
class KafkaRecord(Record):
    """Rates in kB per second as brokers count bytes; of one tenant."""

    tenant: int = 0
    mute_s: float = 0.0
    """Longest time after the event in which a client had messages waiting at a broker, and none
    was acknowledged (or received)."""
    throttle_s: float = 0.0
    """Longest throttle time that a broker announced to a client after the event."""
    others_refused: float = 0.0
    """The part of its demand that a client without any quota did not get after the event."""
    others_mute_s: float = 0.0
    """``mute_s`` of that client."""


def together(records: Sequence[KafkaRecord]) -> KafkaRecord:
    """Sum of a scenario's tenants; what is longest is that of the worst-off one."""

    def total(series: Sequence[Sequence[Sequence[float]]]) -> tuple[tuple[float, ...], ...]:
        return tuple(tuple(each) for each in np.sum(series, axis=0).tolist())

    first = records[0]
    if len(records) == 1:
        return first
    return replace(
        first,
        quota=tuple(np.sum([each.quota for each in records], axis=0).tolist()),
        demand=total([each.demand for each in records]),
        usage=total([each.usage for each in records]),
        mute_s=max(each.mute_s for each in records),
        throttle_s=max(each.throttle_s for each in records),
    )
