"""The brokers that a shard hears of."""

from __future__ import annotations

from dataclasses import dataclass

from quotaplane.model import BoolArray, IntArray


@dataclass(frozen=True)
class Brokers:
    """The brokers that a shard hears of, in order of appearance.

    ``started_at_ms`` and ``sequence`` are those of the newest report used: a later one must
    exceed the pair. ``seen_at_ms`` is when that report was published.
    """

    names: tuple[str, ...]
    started_at_ms: IntArray
    sequence: IntArray
    seen_at_ms: IntArray
    stale: BoolArray
    uses_ids: BoolArray

    def __len__(self) -> int:
        return len(self.names)
