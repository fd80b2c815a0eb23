"""How good a contender was in a scenario, as plain numbers; no clock, no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.quota_proof.record import SLOTS_PER_S, Record
from quotaplane.model import FloatArray
from quotaplane.sim.figures import CLOSE, fair_shares

WINDOW_S: Final = 5.0
"""Rates are judged on means over one report interval; shorter ones show single bursts."""
SETTLED_S: Final = 25.0
"""Utilisation and shares are those of the last so many seconds."""
_NOTHING: Final = 0.01
"""Part of the quota that is next to nothing."""

_INNOCENT: Final = 0.99
"""A broker whose fair share is so much of what it wants is not over its share."""


@dataclass(frozen=True)
class Figures:
    """One row of the table."""

    utilisation: float
    """Used of what could be, sum(min(quota, demand)), in the last seconds watched; 1 is all."""
    worst_share: float
    """Part of its fair share that the worst-off broker used then; 1 is all of it."""
    throttled_innocents: float | None
    """The part of its demand that a broker did not get then though it wanted no more than its fair
    share; of the worst-off one. None: no broker wanted so little."""
    seconds_to_fair: float | None
    """After the event, or once the cluster noticed it, until each broker's mean over the next 5 s
    was within 10 % of its fair share, and stayed so while it was watched; None: never."""
    over_settled: float
    """By which part of the quota usage exceeded it at most then, as a mean over 5 s."""
    over_1_s: float
    """The same as a mean over 1 s, at any time after the event."""
    over_5_s: float
    """The same as a mean over 5 s."""


def figures(record: Record) -> Figures:
    """Judge a record from its event (0 s) on."""
    usage, demand = by_window(_used(record), WINDOW_S), by_window(record.demand, WINDOW_S)
    quota = means(np.asarray(record.quota, dtype=np.float64), WINDOW_S)
    due = fair(record)
    begins = record.times[: len(usage)]
    last = begins >= record.times[-1] - SETTLED_S
    used, wanted, could = (series[last].sum(axis=0) for series in (usage, demand, due))
    shares = used[could > 0] / could[could > 0]
    innocent = (wanted > 0) & (could >= _INNOCENT * wanted)
    refused = 1.0 - used[innocent] / wanted[innocent]
    return Figures(
        utilisation=float(used.sum() / could.sum()) if could.any() else 1.0,
        worst_share=float(shares.min()) if len(shares) else 1.0,
        throttled_innocents=float(max(refused.max(), 0.0)) if len(refused) else None,
        seconds_to_fair=_seconds_to_fair(record, usage, due, quota),
        over_settled=_over(usage[last], quota[last]),
        over_1_s=_over_within(record, 1.0),
        over_5_s=_over_within(record, WINDOW_S),
    )


def fair(record: Record, window_s: float = WINDOW_S) -> FloatArray:
    """Each broker's fair share of the quota, shape (windows, brokers).

    Max-min by what each broker wants on average. One that wants no more than its share is due what
    it wanted in the window, noise included. The windows of so many seconds begin at each slot, and
    are full.
    """
    wanted = by_window(record.demand, window_s)
    on_average = wanted
    if record.mean_demand is not None:
        on_average = by_window(record.mean_demand, window_s)
    shares = fair_shares(on_average, means(np.asarray(record.quota), window_s))
    return np.where(shares < _INNOCENT * on_average, shares, wanted)


def by_window(series: Sequence[Sequence[float]], window_s: float) -> FloatArray:
    """``means`` of a record's series of each broker, shape (windows, brokers)."""
    return means(np.asarray(series, dtype=np.float64).T, window_s)


def means(values: FloatArray, window_s: float) -> FloatArray:
    """Means over windows of (slots, ...) that begin at each slot and are full.

    >>> means(np.array([1.0, 3.0, 5.0]), 2 / SLOTS_PER_S).tolist()
    [2.0, 4.0]
    """
    slots = round(window_s * SLOTS_PER_S)
    sums = np.cumsum(np.concatenate([np.zeros_like(values[:1]), values]), axis=0)
    return np.asarray((sums[slots:] - sums[:-slots]) / slots)


def _used(record: Record) -> FloatArray:
    """(brokers, slots): usage, where what consumers receive is spread over a second.

    A broker dispatches a second's worth at once. A window of 5 s has five batches, or with jitter
    four or six.
    """
    usage = np.asarray(record.usage, dtype=np.float64)
    if not record.received:
        return usage
    before = np.zeros((len(usage), SLOTS_PER_S - 1))
    spread: FloatArray = means(np.hstack([before, usage]).T, 1.0).T
    return spread


def _seconds_to_fair(
    record: Record, usage: FloatArray, due: FloatArray, quota: FloatArray
) -> float | None:
    begun = record.times[: len(usage)] >= record.noticed_s
    # A broker that should have nothing has, with the windows' edges, next to nothing.
    allowed = np.maximum(CLOSE * due, _NOTHING * quota[:, None])
    near = (np.abs(usage - due) <= allowed)[begun]
    apart = np.flatnonzero(~near.all(axis=1))
    if not len(apart):
        return 0.0
    settled = int(apart[-1]) + 1
    return settled / SLOTS_PER_S if settled < len(near) else None


def _over_within(record: Record, window_s: float) -> float:
    after = record.times >= 0
    usage = means(np.asarray(_used(record)).T[after], window_s)
    return _over(usage, means(np.asarray(record.quota)[after], window_s))


def _over(usage: FloatArray, quota: FloatArray) -> float:
    return float(np.max(usage.sum(axis=1) / quota, initial=1.0)) - 1.0
