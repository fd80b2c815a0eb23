"""The rate over sampled windows, as Kafka's ``Rate`` and ``SampledStat`` compute it.

A new sample begins with the first request that comes a window W or more after the current sample
began. Up to S + 1 samples are kept; those without a request for S * W are emptied. The rate R is
the units of all samples, divided by the time since the oldest began; if that is less than S - 1
whole windows, the missing windows are added. Above the quota Q the client is throttled for ``(R -
Q) / Q`` of that time (``QuotaUtils.throttleTime``), and ``(Q - R)`` times it is left.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quotaplane.model import BoolArray, FloatArray
from quotaplane.throttle.slots import added, summed
from quotaplane.throttle.types import Quotas
from quotaplane.throttle.waves import WaveOutcome, WaveOutcomes


class Samples(NamedTuple):
    """The samples of e entities, s + 1 each."""

    last_ms: FloatArray
    """(e,) time of the last request."""
    current: FloatArray
    """(e,) index of the current sample."""
    used: FloatArray
    """(s + 1, e) units in each sample."""
    begun_ms: FloatArray
    """(s + 1, e) when the sample began; inf: it does not exist."""
    used_ms: FloatArray
    """(s + 1, e) time of its last request."""


class WindowTerms(NamedTuple):
    """The terms of e entities, (e,) each."""

    rate_per_s: FloatArray
    samples: FloatArray
    window_ms: FloatArray
    hard: BoolArray


def begin(quotas: Quotas) -> Samples:
    """No samples."""
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
    """The terms from quotas."""
    return WindowTerms(
        quotas.rate_per_s,
        quotas.samples.astype(np.float64),
        quotas.window_ms.astype(np.float64),
        quotas.hard,
    )


def balance(state: Samples, terms: WindowTerms, at_ms: FloatArray) -> FloatArray:
    """Units (e,) that are left until the rate exceeds the quota."""
    copy = Samples(*(field.copy() for field in state))
    rate, measured_ms = _rate(copy, terms, at_ms)
    return _left(terms.rate_per_s, rate, measured_ms)


def wave(state: Samples, terms: WindowTerms, at_ms: FloatArray, units: FloatArray) -> WaveOutcome:
    """Answer one request of each entity."""
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
    """Add requests to samples; a request that does not count changes nothing."""
    entity = np.arange(len(at_ms))
    current = state.current.astype(np.int64)
    begun_ms = state.begun_ms[current, entity]
    full = counts & (at_ms - begun_ms >= terms.window_ms)
    current[full] = (current[full] + 1) % (terms.samples[full].astype(np.int64) + 1)
    state.current[:] = current
    fresh = full | (counts & np.isinf(begun_ms))
    state.used[current[fresh], entity[fresh]] = 0.0
    state.begun_ms[current[fresh], entity[fresh]] = at_ms[fresh]
    state.used[current, entity] += np.where(counts, units, 0.0)
    state.used_ms[current[counts], entity[counts]] = at_ms[counts]


def _rate(
    state: Samples, terms: WindowTerms, at_ms: FloatArray, of: BoolArray | None = None
) -> tuple[FloatArray, FloatArray]:
    """The rate (e,) per second, and the time (e,) it was measured over; empties old samples.

    So measuring changes the state: an emptied sample begins now. ``of`` (e,) limits this to some
    entities; None: all.
    """
    old = at_ms - state.used_ms >= terms.samples * terms.window_ms
    if of is not None:
        old &= of
    if old.any():
        np.copyto(state.used, 0.0, where=old)
        np.copyto(state.begun_ms, at_ms, where=old)
        np.copyto(state.used_ms, at_ms, where=old)
    total = added(state.used)
    measured_ms = at_ms - np.minimum(state.begun_ms.min(axis=0), at_ms)
    lacking = np.maximum(terms.samples - 1.0 - np.floor(measured_ms / terms.window_ms), 0.0)
    measured_ms += lacking * terms.window_ms
    np.maximum(measured_ms, 1.0, out=measured_ms)
    return total / (measured_ms / 1000.0), measured_ms


def _left(quota: FloatArray, rate: FloatArray, measured_ms: FloatArray) -> FloatArray:
    left: FloatArray = (quota - rate) * (measured_ms / 1000.0)
    return left


def sequence(
    state: list[Any], terms: tuple[Any, ...], at_ms: list[float], units: list[float]
) -> WaveOutcomes:
    """Answer requests of one entity, one after the other."""
    quota, samples, window_ms, hard = terms
    last_ms, number, used, begun_ms, used_ms = state
    current = int(number)

    def measure(now: float) -> tuple[float, float]:
        for index, last_use_ms in enumerate(used_ms):
            if now - last_use_ms >= samples * window_ms:
                used[index], begun_ms[index], used_ms[index] = 0.0, now, now
        measured_ms = now - min(now, *begun_ms)
        lacking = samples - 1.0 - measured_ms // window_ms
        if lacking > 0:
            measured_ms += lacking * window_ms
        measured_ms = max(measured_ms, 1.0)
        return summed(used) / (measured_ms / 1000.0), measured_ms

    answers = WaveOutcomes([], [], [])
    for now, asked in zip(at_ms, units, strict=True):
        last_ms = now
        refused = hard and measure(now)[0] > quota
        if not refused:
            if now - begun_ms[current] >= window_ms:
                current = int((current + 1) % (samples + 1))
                begun_ms[current] = np.inf
            if begun_ms[current] == np.inf:
                used[current], begun_ms[current] = 0.0, now
            used[current] += asked
            used_ms[current] = now
        rate, measured_ms = measure(now)
        exceeded = rate > quota
        over_ms = (rate - quota) / quota * measured_ms if exceeded and quota else np.inf * exceeded
        answers.refused.append(refused)
        answers.over_ms.append(over_ms if exceeded else 0.0)
        answers.balance.append((quota - rate) * (measured_ms / 1000.0))
    state[:] = last_ms, float(current), used, begun_ms, used_ms
    return answers
