"""The rate as KIP-599 proposed to amend it: a burst is written down to the earlier windows.

Of a request's units each earlier window, the oldest first, takes what it lacks of the quota for
one window, Q * W; the rest goes to the window of now. The rate R is the sum of S windows over
S * W. So a burst leaves it window by window, not all at once when its own window is dropped: with
Q = 5 and S = 100 windows of a second, 560 units become 99 times 5 and 65, and 12 s later R is Q.
Above the quota the client is throttled for ``(R - Q) / Q * S * W``, and ``(Q - R) * S * W`` is what
is left. Windows begin with the clock's.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from quotaplane.model import FloatArray
from quotaplane.throttle.slots import Slots, SlotTerms, added, begin, held_at, move, summed, terms
from quotaplane.throttle.waves import WaveOutcome, WaveOutcomes

_ROUNDING: Final = 1e-12

__all__ = ["balance", "begin", "plain", "terms", "wave"]


def balance(state: Slots, terms: SlotTerms, at_ms: FloatArray) -> FloatArray:
    """What the quota leaves until the rate exceeds it, in units, (e,)."""
    return _left(held_at(state, terms, at_ms), terms)


def _left(held: FloatArray, terms: SlotTerms) -> FloatArray:
    left: FloatArray = terms.whole - added(held)
    # A burst in equal parts adds up to the whole but for the last bits, and exceeds nothing.
    left[np.abs(left) < _ROUNDING * terms.whole] = 0.0
    return left


def _left_alone(held: list[float], whole: float) -> float:
    left = whole - summed(held)
    return 0.0 if abs(left) < _ROUNDING * whole else left


def wave(state: Slots, terms: SlotTerms, at_ms: FloatArray, units: FloatArray) -> WaveOutcome:
    """One request of each entity.

    >>> from quotaplane.throttle.types import Quotas
    >>> quotas = Quotas.of([5.0], samples=100)
    >>> state = begin(quotas)
    >>> wave(state, terms(quotas), np.array([1e6]), np.array([560.0])).over_ms.tolist()
    [12000.0]
    >>> state.held.ravel()[[0, 1, 99]].tolist()
    [65.0, 5.0, 5.0]
    """
    held = held_at(state, terms, at_ms)
    refused = terms.hard & (_left(held, terms) < 0)
    if refused.any():
        units = np.where(refused, 0.0, units)
    row = np.arange(len(held))[:, None]
    share = terms.rate_per_s * (terms.window_ms / 1000.0)
    room = np.where(row < terms.samples, np.maximum(share - held, 0.0), 0.0)[:0:-1]
    taken = np.cumsum(room, axis=0)
    before = np.concatenate([np.zeros((1, len(units))), taken])
    with np.errstate(invalid="ignore"):
        state.held[:0:-1] = held[:0:-1] + np.clip(units - before[:-1], 0.0, room)
    state.held[0] = held[0] + np.maximum(units - before[-1], 0.0)
    left = _left(state.held, terms)
    with np.errstate(divide="ignore", invalid="ignore"):
        over_ms = left / terms.rate_per_s * -1000.0
    return WaveOutcome(refused, over_ms, left)


def plain(
    state: list[Any], terms: tuple[Any, ...], at_ms: list[float], units: list[float]
) -> WaveOutcomes:
    """Requests of one entity, one after the other."""
    last_ms, held = state
    quota, samples, window_ms, hard, whole = terms
    share = quota * (window_ms / 1000.0)
    answers = WaveOutcomes([], [], [])
    for now, asked in zip(at_ms, units, strict=True):
        move(held, now // window_ms - last_ms // window_ms, samples)
        last_ms = now
        refused = hard and _left_alone(held, whole) < 0
        if not refused:
            taken = 0.0
            for row in range(int(samples) - 1, 0, -1):
                room = max(share - held[row], 0.0)
                held[row] += min(max(asked - taken, 0.0), room)
                taken += room
            held[0] += max(asked - taken, 0.0)
        left = _left_alone(held, whole)
        exceeded = left < 0
        answers.refused.append(refused)
        answers.over_ms.append(left / quota * -1000.0 if exceeded and quota else np.inf * exceeded)
        answers.balance.append(left)
    state[:] = last_ms, held
    return answers
