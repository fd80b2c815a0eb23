"""The brokers that report to a shard."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quotaplane.model import BoolArray, IntArray


@dataclass(frozen=True)
class Brokers:
    """The b brokers in order of appearance; arrays have shape (b,)."""

    names: tuple[str, ...]
    started_at_ms: IntArray
    """When the broker started, from its newest report; a later report counts only if its pair
    (start, sequence) is greater."""
    sequence: IntArray
    """Sequence number of the newest report."""
    seen_at_ms: IntArray
    """When the newest report was published, by the clock that stamps reports; -1: none has counted
    yet."""
    read_at_ms: IntArray
    """The time of the round that read the newest report, from which silence counts; -1: none."""
    stale: BoolArray
    """No report for ``brokers.stale_after_intervals``."""
    uses_ids: BoolArray
    """The broker names groups by id."""

    def __len__(self) -> int:
        return len(self.names)

    def without(self, gone: BoolArray) -> tuple[Brokers, IntArray]:
        """The brokers that stay, and the new index of each (b,)."""
        kept = ~gone
        brokers = Brokers(
            names=tuple(np.array(self.names, dtype=object)[kept]),
            started_at_ms=self.started_at_ms[kept],
            sequence=self.sequence[kept],
            seen_at_ms=self.seen_at_ms[kept],
            read_at_ms=self.read_at_ms[kept],
            stale=self.stale[kept],
            uses_ids=self.uses_ids[kept],
        )
        return brokers, np.cumsum(kept) - 1
