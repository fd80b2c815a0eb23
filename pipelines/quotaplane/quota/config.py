"""The inputs of a step besides the state: the events that arrived, and the settings."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from quotaplane.laws import Law
from quotaplane.model import IntArray, Transition
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
    departures: pa.Table | None = None
    """A row per broker that left the cluster's list; columns: ``wire.shard_inputs``."""
    start: int = -1
    """``Round.seq`` of the first round of the job's newest start; -1: not known."""
    aside: tuple[pa.Table, pa.Table] | None = None
    """Headers and entries of reports that limits are not decided with; they are recorded only."""


OWN_SINCE: Final = "own_since_epoch"
"""Key of a checkpoint's note: see ``EarlierLimits.own_since``."""


class EarlierLimits(NamedTuple):
    """When limits of earlier control planes end, and up to when reports were recorded, as it was
    known when the checkpoint was created; and which epochs are no other's.

    >>> earlier = EarlierLimits(until_ms=5000, left_ms=3000)
    >>> earlier.end_ms(2500), earlier.end_ms(1000)
    (5000, 4000)
    """

    until_ms: float = 0.0
    """When the last one ends, in ms since 1970."""
    left_ms: float = math.inf
    """How far that was away: none lasts longer from now on, also if the clock was set back."""
    recorded_ms: float = -math.inf
    """Reports published up to then were recorded by the earlier control planes."""

    own_since: int | None = None
    """The first epoch that is this control plane's own: a checkpoint with another number of shards
    continues the one that it was made of in a later epoch. None: there is only one."""

    def own(self, epochs: IntArray, epoch: int) -> IntArray:
        """The epochs, with ``epoch``, the newest of its own, in place of its own.

        >>> NO_EARLIER_LIMITS._replace(own_since=5).own(np.array([-1, 4, 5, 6, 9]), 7).tolist()
        [-1, 4, 7, 7, 9]
        """
        if self.own_since is None:
            return epochs
        return np.where((epochs >= self.own_since) & (epochs <= epoch), epoch, epochs)

    def end_ms(self, now_ms: int) -> float:
        """When the last one ends, by a clock that shows ``now_ms``."""
        return min(self.until_ms, now_ms + self.left_ms)

    def noted(self) -> dict[str, float | None]:
        """For a checkpoint's note and for the recording, as JSON values."""
        left_ms, recorded_ms = (
            None if math.isinf(ms) else ms for ms in (self.left_ms, self.recorded_ms)
        )
        return {
            "earlier_until_ms": self.until_ms,
            "earlier_left_ms": left_ms,
            "earlier_recorded_ms": recorded_ms,
            OWN_SINCE: self.own_since,
        }

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> EarlierLimits:
        """The limits of which ``noted`` returned the values."""
        left_ms, recorded_ms = note["earlier_left_ms"], note["earlier_recorded_ms"]
        return cls(
            note["earlier_until_ms"],
            math.inf if left_ms is None else left_ms,
            -math.inf if recorded_ms is None else recorded_ms,
            note.get(OWN_SINCE),  # earlier versions did not note it
        )


NO_EARLIER_LIMITS: Final = EarlierLimits()


@dataclass(frozen=True)
class StepConfig:
    """Settings of a step; docs/reference/history.md and conf/ describe those administrators set."""

    law: Law
    """Divides a quota among brokers."""
    stale_after_ms: float = 10_000.0
    """From a broker's last report until it counts as stale."""
    expire_after_ms: float = 15_000.0
    """From a broker's last report until others get its share, under ``fast``."""
    price: float = 0.05
    """Fraction of its fair share that a broker which is held back gives for that, at most."""
    refresh_rounds: int = 10
    """Each limit is published again at least once in this many rounds."""
    lease_ms: float = 120_000.0
    """How long a limit is in force unless it is renewed."""
    transition: Transition = Transition.FAST
    """Whether limits in force may exceed the quota while they change (``fast``) or never."""
    max_step: float | None = None
    """Fraction of the quota by which a limit may move in a round; None: any distance."""
    over: float = 0.0
    """Fraction of a quota by which limits may exceed it while use does not; ``fast`` only."""
    round_ms: float = 5_000.0
    """From one report of a broker to the next, or from round to round if that is longer."""
    safe_share: float = 1.0
    """Fraction of an even share that a broker may use after its lease ended."""
    max_clock_skew_ms: float = 30_000.0
    """How far the start time in a report may lie in the future."""
    learns: bool = True
    """Whether a shard that starts without state hands back earlier limits for one lease."""
    earlier: EarlierLimits = NO_EARLIER_LIMITS
    """When limits of earlier control planes end."""

    @property
    def lease(self) -> LeaseTimes:
        """The rules by which limits end."""
        strict = self.transition is Transition.STRICT
        return LeaseTimes(self.lease_ms, self.stale_after_ms, self.expire_after_ms, strict)

    @property
    def round_s(self) -> float:
        """``round_ms`` in seconds."""
        return self.round_ms / 1000.0

    def learning_until_ms(self, now_ms: int) -> int:
        """When learning mode ends in a shard that starts now without state."""
        return self.lease.learning_until_ms(now_ms, self.earlier.end_ms(now_ms))
