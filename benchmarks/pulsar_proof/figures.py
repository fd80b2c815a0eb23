"""How good a contender was in a scenario, as plain numbers; no clock, no files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from benchmarks.pulsar_proof.record import SLOTS_PER_S, Record
from quotaplane.model import FloatArray
from quotaplane.sim.figures import CLOSE, fair_shares

WINDOW_S: Final = 5.0
"""Rates are judged on means over one report interval; shorter ones show single bursts."""
SETTLED_S: Final = 25.0
"""Utilisation and shares are those of the last so many seconds."""


@dataclass(frozen=True)
class Figures:
    """One row of the table."""

    utilisation: float
    """Used of what could be, sum(min(quota, demand)), in the last seconds watched; 1 is all."""
    worst_share: float
    """What the worst-off broker used of its fair share then; 1 is all of it."""
    seconds_to_fair: float | None
    """After the event, until each broker's mean over the next 5 s was within 10 % of its fair
    share, and stayed so while it was watched; None: never."""
    over_1_s: float
    """By which part of the quota usage exceeded it at most, as a mean over 1 s, after the event."""
    over_5_s: float


def figures(record: Record) -> Figures:
    """Judge a record from its event (0 s) on."""
    usage = np.asarray(record.usage, dtype=np.float64).T
    quota = np.asarray(record.quota, dtype=np.float64)
    shares_due = fair(record)
    last = record.times >= record.times[-1] - SETTLED_S
    used, could, due = usage[last], shares_due[last].sum(), shares_due[last].sum(axis=0)
    shares = used.sum(axis=0)[due > 0] / due[due > 0]
    after = record.times >= 0
    return Figures(
        utilisation=float(used.sum() / could) if could else 1.0,
        worst_share=float(shares.min()) if len(shares) else 1.0,
        seconds_to_fair=_seconds_to_fair(usage[after], shares_due[after]),
        over_1_s=_over(usage[after], quota[after], 1.0),
        over_5_s=_over(usage[after], quota[after], WINDOW_S),
    )


def fair(record: Record) -> FloatArray:
    """Each broker's max-min fair share of the quota, by what it wanted; shape (slots, brokers)."""
    return fair_shares(np.asarray(record.demand).T, np.asarray(record.quota))


def means(values: FloatArray, window_s: float) -> FloatArray:
    """Means over windows of (slots, ...) that begin at each slot and are full.

    >>> means(np.array([1.0, 3.0, 5.0]), 2 / SLOTS_PER_S).tolist()
    [2.0, 4.0]
    """
    slots = round(window_s * SLOTS_PER_S)
    sums = np.cumsum(np.concatenate([np.zeros_like(values[:1]), values]), axis=0)
    return np.asarray((sums[slots:] - sums[:-slots]) / slots)


def _seconds_to_fair(usage: FloatArray, fair: FloatArray) -> float | None:
    found, wanted = means(usage, WINDOW_S), means(fair, WINDOW_S)
    # A broker that should have nothing has, with the windows' edges, next to nothing.
    near = np.abs(found - wanted) <= np.maximum(CLOSE * wanted, 1.0)
    apart = np.flatnonzero(~near.all(axis=1))
    if not len(apart):
        return 0.0
    settled = int(apart[-1]) + 1
    return settled / SLOTS_PER_S if settled < len(near) else None


def _over(usage: FloatArray, quota: FloatArray, window_s: float) -> float:
    used, allowed = means(usage.sum(axis=1), window_s), means(quota, window_s)
    return float(np.max(used / allowed, initial=1.0)) - 1.0
