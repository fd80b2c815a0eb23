"""ZooKeeper's throttle quota: the sum of the slots of a sliding window.

The window of S * W is split into S slots (in ZooKeeper's document, a second into ten of 100 ms),
aligned with the clock; the current slot and the S - 1 before it may have at most Q * S * W units.
Hard: a request that would exceed this is refused, and may be retried once enough slots have left
the window; a request for more than the whole never fits. Soft: it is admitted and counted, and the
client is delayed until the window's sum is within the quota.
"""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import numpy as np

from quotaplane.model import FloatArray
from quotaplane.throttle.slots import (
    Slots,
    SlotTerms,
    added,
    begin,
    move,
    slot_of,
    summed,
    terms,
    used_at,
)
from quotaplane.throttle.waves import WaveOutcome, WaveOutcomes

__all__ = ["balance", "begin", "sequence", "terms", "wave"]


def balance(state: Slots, terms: SlotTerms, at_ms: FloatArray) -> FloatArray:
    """Units (e,) that may still be used in the current window."""
    left: FloatArray = terms.whole - added(used_at(state, terms, at_ms))
    return left


def wave(state: Slots, terms: SlotTerms, at_ms: FloatArray, units: FloatArray) -> WaveOutcome:
    """Answer one request of each entity."""
    used = used_at(state, terms, at_ms)
    up_to = np.cumsum(used, axis=0)
    refused = terms.hard & (up_to[-1] + units > terms.whole)
    admitted = np.where(refused, 0.0, units)
    asked = np.where(terms.hard, units, 0.0)  # must fit together with the remaining slots
    if used is not state.used:
        state.used[:] = used
    state.used[0] += admitted
    np.cumsum(state.used, axis=0, out=up_to)
    slots_kept = (up_to + np.where(refused, asked, 0.0) <= terms.whole).sum(axis=0)
    leaves = slot_of(at_ms, terms.window_ms) - slots_kept + terms.samples
    over_ms = np.where(slots_kept < len(used), leaves * terms.window_ms - at_ms, 0.0)
    over_ms[refused & (units > terms.whole)] = np.inf
    return WaveOutcome(refused, over_ms, terms.whole - up_to[-1])


def sequence(
    state: list[Any], terms: tuple[Any, ...], at_ms: list[float], units: list[float]
) -> WaveOutcomes:
    """Answer requests of one entity, one after the other."""
    last_ms, used = state
    _, samples, window_ms, hard, whole = terms
    answers = WaveOutcomes([], [], [])
    for now, asked in zip(at_ms, units, strict=True):
        move(used, now // window_ms - last_ms // window_ms, samples)
        last_ms = now
        refused = hard and summed(used) + asked > whole
        if not refused:
            used[0] += asked
        to_fit = asked if refused else 0.0
        up_to = list(accumulate(used))
        slots_kept = sum(1 for subtotal in up_to if subtotal + to_fit <= whole)
        over_ms = 0.0
        if refused and asked > whole:
            over_ms = np.inf
        elif slots_kept < len(used):
            over_ms = (now // window_ms - slots_kept + samples) * window_ms - now
        answers.refused.append(refused)
        answers.over_ms.append(over_ms)
        answers.balance.append(whole - up_to[-1])
    state[:] = last_ms, used
    return answers
