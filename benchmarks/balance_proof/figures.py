"""The figures of a scene, from its record."""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from benchmarks.balance_proof.record import SceneRecord
from quotaplane.model import FloatArray

GOALS: Final = (1.25, 1.15)
"""Imbalances (max/mean) that shall be reached."""
STAYS_S: Final = 10
"""A goal is reached when it is kept for so long."""
_END_S: Final = 20
_MB: Final = 1e6


class Figures(NamedTuple):
    """The figures of one contender in one scene, as the page shows them."""

    begin: float
    """max/mean in the first second."""
    end: float
    """Mean of max/mean in the last 20 s."""
    seconds_to: tuple[int | None, ...]
    """For each goal; None = not within the scene."""
    moves: int
    moved_mb_per_s: float
    """Traffic of the bundles that moved, each counted every time."""
    repeated: int
    """Moves of a bundle that had moved in the scene already."""
    splits: int
    longest_ms: float
    """The longest publish of all."""
    slow_seconds: int
    """Seconds in which a publish was acknowledged that took more than a second."""
    lost: int
    """Messages that were dropped by a full queue, or failed."""


def figures(record: SceneRecord, bundles_before: int) -> Figures:
    """The figures of a record; ``bundles_before``: bundles when the scene began."""
    imbalance = record.max_mean()
    bundles = [change.bundle for change in record.changes]
    return Figures(
        begin=float(imbalance[0]),
        end=float(imbalance[-_END_S:].mean()),
        seconds_to=tuple(reached(imbalance, goal) for goal in GOALS),
        moves=len(bundles),
        moved_mb_per_s=sum(change.bytes_per_s for change in record.changes) / _MB,
        repeated=len(bundles) - len(set(bundles)),
        splits=record.bundles - bundles_before,
        longest_ms=max(record.longest_ms, default=0.0),
        slow_seconds=int((np.asarray(record.longest_ms) > 1000.0).sum()),
        lost=sum(record.lost),
    )


def reached(imbalance: FloatArray, goal: float, stays_s: int = STAYS_S) -> int | None:
    """The first second from which the imbalance is at most the goal for ``stays_s`` seconds.

    >>> reached(np.array([2.0, 1.1, 1.3, 1.1, 1.1]), 1.15, stays_s=2), reached(np.ones(3), 0.5)
    (3, None)
    """
    within = np.convolve(imbalance <= goal, np.ones(stays_s), "valid") >= stays_s - 0.5
    found = np.flatnonzero(within)
    return int(found[0]) if len(found) else None
