"""What goes into a step beside the state: the events that arrived, and the settings."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from quotaplane.laws import Law
from quotaplane.model import Transition
from quotaplane.quota.lease import Lease


@dataclass(frozen=True)
class Events:
    """What arrived for a shard since its last round; columns as in ``wire.shard_inputs``."""

    headers: pa.Table | None = None
    """A row for each report."""
    entries: pa.Table | None = None
    """A row for each group in a report."""
    groups: pa.Table | None = None
    """Changes of the table resource_groups."""


@dataclass(frozen=True)
class StepConfig:
    """The settings of a step; docs/history.md and conf/ describe those that operators set."""

    law: Law
    """Divides a quota."""
    stale_after_ms: float = 10_000.0
    """From a broker's last report until it counts as stale."""
    expire_after_ms: float = 15_000.0
    """From a broker's last report until it is given up, under ``fast``."""
    headroom: float = 0.05
    """Part of its demand that a broker gets on top."""
    saturated_from: float = 0.95
    """Part of its limit from which a broker's demand is taken to be more than its usage."""
    probe_share: float = 0.05
    """Part of the quota that an idle broker may use at once."""
    significant_change: float = 0.05
    """Part of a limit by which it must move before it is published."""
    refresh_rounds: int = 10
    """Rounds in which each limit is published again at least once."""
    lease_ms: float = 120_000.0
    """How long a limit holds unless it is renewed."""
    transition: Transition = Transition.FAST
    """How limits move from one division to the next."""
    max_step: float | None = None
    """Part of the quota by which a limit may move in a round; None: as far as it must."""
    safe_share: float = 1.0
    """Part of an even share that a broker may use once its lease ended."""
    max_clock_skew_ms: float = 30_000.0
    """How far the start time in a report may lie in the future."""
    learns: bool = True
    """Whether a shard without a state hands back earlier limits for one lease first."""
    earlier_until_ms: float = 0.0
    """When the last limits that an earlier control plane published end, in ms since 1970."""

    @property
    def lease(self) -> Lease:
        """When limits end."""
        strict = self.transition is Transition.STRICT
        return Lease(self.lease_ms, self.stale_after_ms, self.expire_after_ms, strict)
