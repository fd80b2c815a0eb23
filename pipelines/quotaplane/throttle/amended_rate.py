"""The rate as an alternative in KIP-599 defines it: a burst is distributed over earlier windows.

Each earlier window, the oldest first, takes as many of a request's units as it lacks of the quota
for one window, Q * W; the rest goes to the current window. The rate R is the sum of S windows over
S * W. So a burst leaves R window by window, not all at once when its own window is dropped: with
Q = 5 and S = 100 windows of one second, 560 units become 99 times 5 and 65, and 12 s later R is Q.
Above the quota the client is throttled for ``(R - Q) / Q * S * W``, and ``(Q - R) * S * W`` is
left. Windows are aligned with the clock.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from quotaplane.model import FloatArray
from quotaplane.throttle.slots import Slots, SlotTerms, added, begin, move, summed, terms, used_at
from quotaplane.throttle.waves import WaveOutcome, WaveOutcomes

_ROUNDING: Final = 1e-12

__all__ = ["balance", "begin", "sequence", "terms", "wave"]


def balance(state: Slots, terms: SlotTerms, at_ms: FloatArray) -> FloatArray:
    """Units (e,) that are left until the rate exceeds the quota."""
    return _left(used_at(state, terms, at_ms), terms)


def _left(used: FloatArray, terms: SlotTerms) -> FloatArray:
    left: FloatArray = terms.whole - added(used)
    # A burst in equal parts adds up to the whole except for the last bits; it exceeds nothing.
    left[np.abs(left) < _ROUNDING * terms.whole] = 0.0
    return left


def _left_alone(used: list[float], whole: float) -> float:
    left = whole - summed(used)
    return 0.0 if abs(left) < _ROUNDING * whole else left


def wave(state: Slots, terms: SlotTerms, at_ms: FloatArray, units: FloatArray) -> WaveOutcome:
    """Answer one request of each entity.

    >>> from quotaplane.throttle.types import Quotas
    >>> quotas = Quotas.of([5.0], samples=100)
    >>> state = begin(quotas)
    >>> wave(state, terms(quotas), np.array([1e6]), np.array([560.0])).over_ms.tolist()
    [12000.0]
    >>> state.used.ravel()[[0, 1, 99]].tolist()
    [65.0, 5.0, 5.0]
    """
    used = used_at(state, terms, at_ms)
    refused = terms.hard & (_left(used, terms) < 0)
    if refused.any():
        units = np.where(refused, 0.0, units)
    row = np.arange(len(used))[:, None]
    share = terms.rate_per_s * (terms.window_ms / 1000.0)
    room = np.where(row < terms.samples, np.maximum(share - used, 0.0), 0.0)[:0:-1]
    taken = np.cumsum(room, axis=0)
    before = np.concatenate([np.zeros((1, len(units))), taken])
    with np.errstate(invalid="ignore"):
        state.used[:0:-1] = used[:0:-1] + np.clip(units - before[:-1], 0.0, room)
    state.used[0] = used[0] + np.maximum(units - before[-1], 0.0)
    left = _left(state.used, terms)
    with np.errstate(divide="ignore", invalid="ignore"):
        over_ms = left / terms.rate_per_s * -1000.0
    return WaveOutcome(refused, over_ms, left)


def sequence(
    state: list[Any], terms: tuple[Any, ...], at_ms: list[float], units: list[float]
) -> WaveOutcomes:
    """Answer requests of one entity, one after the other."""
    last_ms, used = state
    quota, samples, window_ms, hard, whole = terms
    share = quota * (window_ms / 1000.0)
    answers = WaveOutcomes([], [], [])
    for now, asked in zip(at_ms, units, strict=True):
        move(used, now // window_ms - last_ms // window_ms, samples)
        last_ms = now
        refused = hard and _left_alone(used, whole) < 0
        if not refused:
            taken = 0.0
            for row in range(int(samples) - 1, 0, -1):
                room = max(share - used[row], 0.0)
                used[row] += min(max(asked - taken, 0.0), room)
                taken += room
            used[0] += max(asked - taken, 0.0)
        left = _left_alone(used, whole)
        exceeded = left < 0
        answers.refused.append(refused)
        answers.over_ms.append(left / quota * -1000.0 if exceeded and quota else np.inf * exceeded)
        answers.balance.append(left)
    state[:] = last_ms, used
    return answers
