"""KIP-599's token bucket, as Kafka's ``TokenBucket`` computes it.

Tokens arrive at the quota's rate Q, up to the burst B = Q * S * W: at a request there are
``min(B, tokens + Q * elapsed)``. The request takes one token per unit, also more than there are.
While tokens are negative the quota is exceeded, for ``-tokens / Q``.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from quotaplane.model import BoolArray, FloatArray
from quotaplane.throttle.types import Quotas
from quotaplane.throttle.waves import WaveOutcome, WaveOutcomes


class Buckets(NamedTuple):
    """The buckets of e entities."""

    last_ms: FloatArray
    """(e,) time of the last request."""
    tokens: FloatArray
    """(e,) tokens left by that request."""


class BucketTerms(NamedTuple):
    """The terms of e entities, (e,) each."""

    rate_per_s: FloatArray
    """0 without a quota."""
    burst: FloatArray
    """Units; inf without a quota."""
    hard: BoolArray


def begin(quotas: Quotas) -> Buckets:
    """Full buckets."""
    return Buckets(np.zeros(quotas.rate_per_s.shape), quotas.burst)


def terms(quotas: Quotas) -> BucketTerms:
    """The terms from quotas."""
    limited = np.isfinite(quotas.rate_per_s)
    return BucketTerms(np.where(limited, quotas.rate_per_s, 0.0), quotas.burst, quotas.hard)


def balance(state: Buckets, terms: BucketTerms, at_ms: FloatArray) -> FloatArray:
    """The tokens at a time, (e,).

    >>> quotas = Quotas.of([5.0], samples=20)
    >>> balance(Buckets(np.zeros(1), np.array([40.0])), terms(quotas), np.array([1000.0])).tolist()
    [45.0]
    """
    tokens = at_ms - state.last_ms
    tokens /= 1000.0
    tokens *= terms.rate_per_s
    tokens += state.tokens
    np.minimum(tokens, terms.burst, out=tokens)
    tokens[np.isinf(terms.burst)] = np.inf  # tokens of an earlier quota may be finite
    return tokens


def wave(state: Buckets, terms: BucketTerms, at_ms: FloatArray, units: FloatArray) -> WaveOutcome:
    """Answer one request of each entity."""
    tokens = balance(state, terms, at_ms)
    refused = terms.hard & (tokens < 0)
    tokens -= np.where(refused, 0.0, units) if refused.any() else units
    state.tokens[:] = tokens
    with np.errstate(divide="ignore", invalid="ignore"):
        over_ms = tokens / terms.rate_per_s
    over_ms *= -1000.0
    return WaveOutcome(refused, over_ms, tokens)


def sequence(
    state: list[Any], terms: tuple[Any, ...], at_ms: list[float], units: list[float]
) -> WaveOutcomes:
    """Answer requests of one entity, one after the other."""
    last_ms, tokens = state
    rate, burst, hard = terms
    if burst == np.inf:
        tokens = np.inf
    # Busy entities have a million requests here at once, so keep the loop small.
    balance: list[float] = []
    refused: list[bool] = [False] * len(at_ms)
    for now, asked in zip(at_ms, units, strict=True):
        tokens += rate * ((now - last_ms) / 1000.0)
        if tokens > burst:
            tokens = burst
        last_ms = now
        if hard and tokens < 0:
            refused[len(balance)] = True
        else:
            tokens -= asked
        balance.append(tokens)
    state[:] = last_ms, tokens
    if rate:
        over_ms = [-left / rate * 1000 if left < 0 else 0.0 for left in balance]
    else:
        over_ms = [np.inf if left < 0 else 0.0 for left in balance]
    return WaveOutcomes(refused, over_ms, balance)
