"""The figures of a run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.balance_arena.execution import Moved
from benchmarks.balance_arena.play import Run
from benchmarks.balance_arena.scenario import Scenario
from quotaplane.model import FloatArray

LEVELS: Final = (1.15, 1.10, 1.05)
GRACE_S: Final = 1800.0
SOON_S: Final = 600.0
"""A receiver that sheds so soon should not have got the bundle."""
_END_MIN: Final = 10
_FULL: Final = 0.85


@dataclass(frozen=True)
class Figures:
    """Figures of one run. Times are in minutes, which are rounds."""

    imbalance: FloatArray
    """Shape (M,): the highest use of a broker by the mean that it is compared with."""
    final: float
    """Mean imbalance of the last ten minutes."""
    rounds: tuple[float, ...]
    """Until the imbalance is first at most each of ``LEVELS``, and no bundle is where policies
    forbid it; inf = never."""
    moves: int
    moved: float
    """Bytes per second of the moved bundles, as part of the cluster's; parts of split bundles that
    lookups placed elsewhere count, too."""
    repeats: int
    """Moves of a bundle that was moved within the grace period before."""
    again: int
    """Moves of a bundle that was moved before, however long ago."""
    receivers_shed: int
    """Moves to a broker that itself shed within ten minutes, though nothing happened between, and
    no policy demanded it."""
    elsewhere: int
    """Moves that ended on another broker than the strategy wanted."""
    offline_bundle_s: float
    """Seconds that bundles were off line because of moves."""
    delayed_bytes: float
    """Traffic that was delayed meanwhile, in and out, in seconds of the cluster's rate."""
    over_minutes: int
    """Minutes above 1.15."""
    full_minutes: int
    """Broker-minutes above 85 % of the capacity."""
    splits: int
    forbidden: int
    """Bundle-minutes on brokers that isolation policies forbid."""
    together: int
    """Minutes of namespaces that are with others of their group, beyond what is unavoidable."""

    @property
    def actions(self) -> int:
        """Moves and splits."""
        return self.moves + self.splits


def imbalance(use: FloatArray, mean: FloatArray) -> FloatArray:
    """The highest use by its mean, of each minute; shape (M,).

    >>> use, mean = np.array([[0.5, 0.25], [0.6, np.nan]]), np.array([[0.4, 0.4], [0.6, np.nan]])
    >>> imbalance(use, mean).tolist()
    [1.25, 1.0]
    """
    found: FloatArray = np.nanmax(use / mean, axis=1)
    return found


def figures(run: Run, scenario: Scenario) -> Figures:
    """The figures of a run."""
    over = imbalance(run.use, run.mean)
    judged, wrong = over[scenario.judged_from :], run.forbidden[scenario.judged_from :]
    moved = [*run.moved, *run.parted]
    minute = [min(int(move.ordered_s // 60), len(over) - 1) for move in moved]
    ordered = [outage for outage in run.outages if outage.ordered]
    return Figures(
        imbalance=over,
        final=float(over[-_END_MIN:].mean()),
        rounds=tuple(_first((judged <= level) & (wrong == 0)) for level in LEVELS),
        moves=len(run.moved),
        moved=sum(
            move.bytes_per_s / float(run.cluster_bytes[at])
            for move, at in zip(moved, minute, strict=True)
        ),
        repeats=_repeats(run.moved, GRACE_S),
        again=_repeats(run.moved, math.inf),
        receivers_shed=_receivers_shed(
            run.moved, [*(event.minute for event in scenario.events), *scenario.changes]
        ),
        elsewhere=sum(move.target != move.wished for move in run.moved),
        offline_bundle_s=sum(outage.seconds for outage in ordered),
        delayed_bytes=sum(outage.seconds * outage.bytes_per_s for outage in ordered)
        / float(run.cluster_bytes.mean()),
        over_minutes=int((judged > LEVELS[0]).sum()),
        full_minutes=int((run.use[scenario.judged_from :] > _FULL).sum()),
        splits=run.splits,
        forbidden=int(run.forbidden.sum()),
        together=run.together,
    )


def _first(reached: np.ndarray) -> float:
    return float(np.argmax(reached)) if reached.any() else math.inf


def _repeats(moves: list[Moved], within_s: float) -> int:
    """Moves of a bundle that was moved shortly before.

    >>> at = [Moved(t, 5, 0, 1, 1, 1e6) for t in (0.0, 1799.0, 4000.0)]
    >>> _repeats(at, GRACE_S), _repeats(at, math.inf)
    (1, 2)
    """
    last: dict[int, float] = {}
    count = 0
    for move in sorted(moves, key=lambda move: move.ordered_s):
        before = last.get(move.bundle)
        count += before is not None and move.ordered_s - before < within_s
        last[move.bundle] = move.ordered_s
    return count


def _receivers_shed(moves: list[Moved], happened_min: Sequence[int]) -> int:
    """Moves whose target shed soon after, and nothing had happened to the cluster meanwhile.

    >>> moves = [Moved(0, 5, 0, 1, 1, 1e6), Moved(90, 6, 1, 2, 2, 1e6)]
    >>> _receivers_shed(moves, []), _receivers_shed(moves, [1])
    (1, 0)
    """
    sheds: dict[int, list[float]] = {}
    for move in moves:
        if not move.forced:
            sheds.setdefault(move.source, []).append(move.ordered_s)
    return sum(
        any(
            0 < at - move.ordered_s <= SOON_S
            and not any(move.ordered_s < 60 * minute <= at for minute in happened_min)
            for at in sheds.get(move.target, ())
        )
        for move in moves
    )
