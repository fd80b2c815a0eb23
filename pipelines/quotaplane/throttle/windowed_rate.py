"""The rate over sampled windows, as Kafka's ``Rate`` and ``SampledStat`` compute it.

A sample begins with the request that finds the one before it a window W old, so samples are as far
apart as requests are. Up to S + 1 of them are kept; those without a request for S * W are emptied.
The rate R is what all of them hold, divided by the time since the oldest began; what that time
lacks of S - 1 whole windows is added, as if they had been without requests. Above the quota Q the
client is throttled for ``(R - Q) / Q`` of that time (``QuotaUtils.throttleTime``), and what is left
of the quota is ``(Q - R)`` times it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quotaplane.model import BoolArray, FloatArray
from quotaplane.throttle.slots import added, summed
from quotaplane.throttle.types import Quotas
from quotaplane.throttle.waves import WaveOutcome, WaveOutcomes


class Samples(NamedTuple):
    """The samples of e entities; the arrays over samples have shape (s + 1, e).

    ``last_ms`` and ``current`` (e,): when the last request was, and which sample it is in.
    ``held``: units in each sample; ``begun_ms``, +inf for one that there is not; ``used_ms``: its
    last request.
    """

    last_ms: FloatArray
    current: FloatArray
    held: FloatArray
    begun_ms: FloatArray
    used_ms: FloatArray


class WindowTerms(NamedTuple):
    """Each (e,)."""

    rate_per_s: FloatArray
    samples: FloatArray
    window_ms: FloatArray
    hard: BoolArray


def begin(quotas: Quotas) -> Samples:
    """No sample yet."""
    entities = len(quotas.rate_per_s)
    shape = int(quotas.samples.max(initial=1)) + 1, entities
    return Samples(
        np.zeros(entities),
        np.zeros(entities),
        np.zeros(shape),
        np.full(shape, np.inf),
        np.full(shape, np.inf),
    )


def terms(quotas: Quotas) -> WindowTerms:
    """The quota, its windows and mode."""
    return WindowTerms(
        quotas.rate_per_s,
        quotas.samples.astype(np.float64),
        quotas.window_ms.astype(np.float64),
        quotas.hard,
    )


def balance(state: Samples, terms: WindowTerms, at_ms: FloatArray) -> FloatArray:
    """What the quota leaves until the rate exceeds it, in units, (e,)."""
    kept = Samples(*(field.copy() for field in state))
    rate, measured_ms = _rate(kept, terms, at_ms)
    return _left(terms.rate_per_s, rate, measured_ms)


def wave(state: Samples, terms: WindowTerms, at_ms: FloatArray, units: FloatArray) -> WaveOutcome:
    """One request of each entity."""
    refused: BoolArray = np.zeros(len(at_ms), np.bool_)
    if terms.hard.any():
        rate, _ = _rate(state, terms, at_ms, of=terms.hard)
        refused = terms.hard & (rate > terms.rate_per_s)
    _record(state, terms, at_ms, units, ~refused)
    rate, measured_ms = _rate(state, terms, at_ms)
    with np.errstate(divide="ignore", invalid="ignore"):
        over_ms = (rate - terms.rate_per_s) / terms.rate_per_s * measured_ms
    return WaveOutcome(refused, over_ms, _left(terms.rate_per_s, rate, measured_ms))


def _record(
    state: Samples, terms: WindowTerms, at_ms: FloatArray, units: FloatArray, counts: BoolArray
) -> None:
    """Put requests into samples; a request that does not count leaves all as it is."""
    entity = np.arange(len(at_ms))
    current = state.current.astype(np.int64)
    begun_ms = state.begun_ms[current, entity]
    full = counts & (at_ms - begun_ms >= terms.window_ms)
    current[full] = (current[full] + 1) % (terms.samples[full].astype(np.int64) + 1)
    state.current[:] = current
    fresh = full | (counts & np.isinf(begun_ms))
    state.held[current[fresh], entity[fresh]] = 0.0
    state.begun_ms[current[fresh], entity[fresh]] = at_ms[fresh]
    state.held[current, entity] += np.where(counts, units, 0.0)
    state.used_ms[current[counts], entity[counts]] = at_ms[counts]


def _rate(
    state: Samples, terms: WindowTerms, at_ms: FloatArray, of: BoolArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """The rate (e,) per second, and the time (e,) it was measured over; empties old samples.

    To measure is to change: a sample emptied begins anew, and is not full. ``of`` (e,) says whose
    rate is wanted, the others' samples stay as they are; None: everybody's.
    """
    old = at_ms - state.used_ms >= terms.samples * terms.window_ms
    if of is not None:
        old &= of
    if old.any():
        np.copyto(state.held, 0.0, where=old)
        np.copyto(state.begun_ms, at_ms, where=old)
        np.copyto(state.used_ms, at_ms, where=old)
    total = added(state.held)
    measured_ms = at_ms - np.minimum(state.begun_ms.min(axis=0), at_ms)
    lacking = np.maximum(terms.samples - 1.0 - np.floor(measured_ms / terms.window_ms), 0.0)
    measured_ms += lacking * terms.window_ms
    np.maximum(measured_ms, 1.0, out=measured_ms)
    return total / (measured_ms / 1000.0), measured_ms


def _left(quota: FloatArray, rate: FloatArray, measured_ms: FloatArray) -> FloatArray:
    left: FloatArray = (quota - rate) * (measured_ms / 1000.0)
    return left


def plain(
    state: list[Any], terms: tuple[Any, ...], at_ms: list[float], units: list[float]
) -> WaveOutcomes:
    """Requests of one entity, one after the other."""
    quota, samples, window_ms, hard = terms
    last_ms, number, held, begun_ms, used_ms = state
    current = int(number)

    def measure(now: float) -> tuple[float, float]:
        for index, used in enumerate(used_ms):
            if now - used >= samples * window_ms:
                held[index], begun_ms[index], used_ms[index] = 0.0, now, now
        measured_ms = now - min(now, *begun_ms)
        lacking = samples - 1.0 - measured_ms // window_ms
        if lacking > 0:
            measured_ms += lacking * window_ms
        measured_ms = max(measured_ms, 1.0)
        return summed(held) / (measured_ms / 1000.0), measured_ms

    answers = WaveOutcomes([], [], [])
    for now, asked in zip(at_ms, units, strict=True):
        last_ms = now
        refused = hard and measure(now)[0] > quota
        if not refused:
            if now - begun_ms[current] >= window_ms:
                current = int((current + 1) % (samples + 1))
                begun_ms[current] = np.inf
            if begun_ms[current] == np.inf:
                held[current], begun_ms[current] = 0.0, now
            held[current] += asked
            used_ms[current] = now
        rate, measured_ms = measure(now)
        exceeded = rate > quota
        over_ms = (rate - quota) / quota * measured_ms if exceeded and quota else np.inf * exceeded
        answers.refused.append(refused)
        answers.over_ms.append(over_ms if exceeded else 0.0)
        answers.balance.append((quota - rate) * (measured_ms / 1000.0))
    state[:] = last_ms, float(current), held, begun_ms, used_ms
    return answers
