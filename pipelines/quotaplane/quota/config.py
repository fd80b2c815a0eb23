"""The inputs of a step besides the state: the events that arrived, and the settings."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from quotaplane.laws import Law
from quotaplane.model import Transition
from quotaplane.quota.lease_times import LeaseTimes


@dataclass(frozen=True)
class Events:
    """The events that arrived for a shard since its last round; columns: ``wire.shard_inputs``."""

    headers: pa.Table | None = None
    """A row per report."""
    entries: pa.Table | None = None
    """A row per group in a report."""
    groups: pa.Table | None = None
    """Changes of the table resource_groups."""


@dataclass(frozen=True)
class StepConfig:
    """The settings of a step; docs/history.md and conf/ describe those that operators set."""

    law: Law
    """Divides a quota among brokers."""
    stale_after_ms: float = 10_000.0
    """From a broker's last report until it counts as stale."""
    expire_after_ms: float = 15_000.0
    """From a broker's last report until others get its share, under ``fast``."""
    headroom: float = 0.05
    """Fraction of its demand that a broker is given on top of it."""
    saturated_from: float = 0.95
    """Fraction of its limit; a broker that uses as much counts as saturated: it may want more."""
    probe_share: float = 0.05
    """Fraction of an even share of the quota that an idle broker may use at once."""
    significant_change: float = 0.05
    """Fraction of a limit; smaller changes are not published (hysteresis)."""
    refresh_rounds: int = 10
    """Each limit is published again at least once in this many rounds."""
    lease_ms: float = 120_000.0
    """How long a limit is in force unless it is renewed."""
    transition: Transition = Transition.FAST
    """Whether limits may exceed the quota for a moment while they change (``fast``) or never."""
    max_step: float | None = None
    """Fraction of the quota by which a limit may move in a round; None: any distance."""
    safe_share: float = 1.0
    """Fraction of an even share that a broker may use after its lease ended."""
    max_clock_skew_ms: float = 30_000.0
    """How far the start time in a report may lie in the future."""
    learns: bool = True
    """Whether a shard that starts without state hands back earlier limits for one lease."""
    earlier_until_ms: float = 0.0
    """When the last limit of an earlier control plane ends, in ms since 1970."""

    @property
    def lease(self) -> LeaseTimes:
        """The rules by which limits end."""
        strict = self.transition is Transition.STRICT
        return LeaseTimes(self.lease_ms, self.stale_after_ms, self.expire_after_ms, strict)
