"""What goes into a step beside the state: the events that arrived, and the settings."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from quotaplane.laws import Law
from quotaplane.model import Transition


@dataclass(frozen=True)
class Events:
    """What arrived for a shard since its last round; the columns are those of ``wire.events``."""

    headers: pa.Table | None = None
    entries: pa.Table | None = None
    groups: pa.Table | None = None


@dataclass(frozen=True)
class StepConfig:
    """The settings that the step needs, in its own units (milliseconds, plain numbers)."""

    law: Law
    stale_after_ms: float = 10_000.0
    expire_after_ms: float = 15_000.0
    headroom: float = 0.05
    saturated_from: float = 0.95
    probe_share: float = 0.05
    significant_change: float = 0.05
    refresh_rounds: int = 10
    lease_ms: float = 120_000.0
    transition: Transition = Transition.FAST
    max_step: float | None = None
    safe_share: float = 1.0
    max_clock_skew_ms: float = 30_000.0
    learns: bool = True
    earlier_until_ms: float = 0.0
    """When the last limits that an earlier control plane told are over."""

    @property
    def forget_after_ms(self) -> float:
        """How long after its last report a broker may still be using its limits.

        Strict takes no chances: the last limit was told at most ``stale_after_ms`` after the
        report, and as much again is for clocks that disagree.
        """
        if self.transition is Transition.FAST:
            return self.expire_after_ms
        return max(self.expire_after_ms, self.lease_ms + 2 * self.stale_after_ms)
