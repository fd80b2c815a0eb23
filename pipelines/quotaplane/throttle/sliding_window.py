"""ZooKeeper's throttle quota: what the slots of a sliding window add up to.

The window of S * W is split into S slots (a second into ten of 100 ms, in ZooKeeper's document)
that begin with the clock's; in each of them, and the S - 1 before it, no more than Q * S * W units
are to be used. Hard: a request that would exceed this is refused, and may come back when so many
slots have left the window that it fits; one of more units than the whole never fits. Soft: it is
admitted and counted, and the client is delayed until what is in the window is within the quota.
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
    held_at,
    move,
    slot_of,
    summed,
    terms,
)
from quotaplane.throttle.waves import WaveOutcome, WaveOutcomes

__all__ = ["balance", "begin", "plain", "terms", "wave"]


def balance(state: Slots, terms: SlotTerms, at_ms: FloatArray) -> FloatArray:
    """What may still be used in the window of now, in units, (e,)."""
    left: FloatArray = terms.whole - added(held_at(state, terms, at_ms))
    return left


def wave(state: Slots, terms: SlotTerms, at_ms: FloatArray, units: FloatArray) -> WaveOutcome:
    """One request of each entity."""
    held = held_at(state, terms, at_ms)
    up_to = np.cumsum(held, axis=0)
    refused = terms.hard & (up_to[-1] + units > terms.whole)
    admitted = np.where(refused, 0.0, units)
    asked = np.where(terms.hard, units, 0.0)  # has to fit beside what is kept
    if held is not state.held:
        state.held[:] = held
    state.held[0] += admitted
    np.cumsum(state.held, axis=0, out=up_to)
    kept = (up_to + np.where(refused, asked, 0.0) <= terms.whole).sum(axis=0)
    leaves = slot_of(at_ms, terms.window_ms) - kept + terms.samples
    over_ms = np.where(kept < len(held), leaves * terms.window_ms - at_ms, 0.0)
    over_ms[refused & (units > terms.whole)] = np.inf
    return WaveOutcome(refused, over_ms, terms.whole - up_to[-1])


def plain(
    state: list[Any], terms: tuple[Any, ...], at_ms: list[float], units: list[float]
) -> WaveOutcomes:
    """Requests of one entity, one after the other."""
    last_ms, held = state
    _, samples, window_ms, hard, whole = terms
    answers = WaveOutcomes([], [], [])
    for now, asked in zip(at_ms, units, strict=True):
        move(held, now // window_ms - last_ms // window_ms, samples)
        last_ms = now
        refused = hard and summed(held) + asked > whole
        if not refused:
            held[0] += asked
        beside = asked if refused else 0.0
        up_to = list(accumulate(held))
        kept = sum(1 for sofar in up_to if sofar + beside <= whole)
        over_ms = 0.0
        if refused and asked > whole:
            over_ms = np.inf
        elif kept < len(held):
            over_ms = (now // window_ms - kept + samples) * window_ms - now
        answers.refused.append(refused)
        answers.over_ms.append(over_ms)
        answers.balance.append(whole - up_to[-1])
    state[:] = last_ms, held
    return answers
