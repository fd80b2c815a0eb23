"""The brokers that a shard hears of."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from quotaplane.model import BoolArray, IntArray


@dataclass(frozen=True)
class Brokers:
    """The b brokers in order of appearance; arrays have shape (b,)."""

    names: tuple[str, ...]
    started_at_ms: IntArray
    """As the newest report used says; a later report must exceed it and ``sequence``, as a pair."""
    sequence: IntArray
    """Of the newest report used."""
    seen_at_ms: IntArray
    """When the newest report used was published; -1: none was used yet."""
    stale: BoolArray
    """Silent for ``brokers.stale_after_intervals``."""
    uses_ids: BoolArray
    """The broker names groups by their ids."""

    def __len__(self) -> int:
        return len(self.names)

    def without(self, gone: BoolArray) -> tuple[Brokers, IntArray]:
        """The brokers that stay, and for each of the old indexes the new one."""
        kept = ~gone
        brokers = Brokers(
            names=tuple(np.array(self.names, dtype=object)[kept]),
            started_at_ms=self.started_at_ms[kept],
            sequence=self.sequence[kept],
            seen_at_ms=self.seen_at_ms[kept],
            stale=self.stale[kept],
            uses_ids=self.uses_ids[kept],
        )
        return brokers, np.cumsum(kept) - 1
