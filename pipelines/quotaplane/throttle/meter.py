"""KIP-599's metrics of every entity: rate, tokens, throttle time.

They are measured over the last ``WINDOWS`` windows of one second, Kafka's default for quota
metrics, aligned with the clock, for every law. They don't influence decisions.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import FloatArray, IntArray
from quotaplane.throttle.bank import Bank
from quotaplane.throttle.types import Answers, Requests
from quotaplane.throttle.waves import take

WINDOWS: Final = 11
WINDOW_MS: Final = 1000


class Meter(NamedTuple):
    """Sums per window for e entities; the row of a window is its number mod 11."""

    newest: IntArray
    """(e,) number of the newest window with a request."""
    units: FloatArray
    """(11, e) admitted units."""
    throttled: FloatArray
    """(11, e) throttled requests."""
    throttle_ms: FloatArray
    """(11, e) sum of the throttle times."""

    def take(self, entities: IntArray) -> Meter:
        """The meter of some entities."""
        return take(self, entities)


class Metrics(NamedTuple):
    """Metrics of e entities."""

    rate_per_s: FloatArray
    """(e,)"""
    tokens: FloatArray
    """(e,) units left (``Bank.balance``)."""
    throttle_ms: FloatArray
    """(e,) mean throttle time of throttled requests; NaN if there were none."""


def begin(entities: int) -> Meter:
    """A meter without measurements."""
    shape = WINDOWS, entities
    return Meter(np.zeros(entities, np.int64), np.zeros(shape), np.zeros(shape), np.zeros(shape))


def grown(meter: Meter, entities: int) -> Meter:
    """The meter with more entities, the new ones last."""
    more = begin(entities - len(meter.newest))
    return Meter(
        np.concatenate([meter.newest, more.newest]),
        *(np.hstack(pair) for pair in zip(meter[1:], more[1:], strict=True)),
    )


def record(meter: Meter, requests: Requests, answers: Answers) -> Meter:
    """The meter after requests and their answers; ``meter`` is not modified."""
    window = requests.at_ms // WINDOW_MS
    newest = meter.newest.copy()
    np.maximum.at(newest, requests.entity, window)
    after = Meter(newest, *_within(meter, newest))
    counts = np.flatnonzero(window > newest[requests.entity] - WINDOWS)
    at = window[counts] % WINDOWS, requests.entity[counts]
    throttle_ms = answers.throttle_ms[counts]
    # In the requests' order, so that the sums don't depend on how batches are split.
    np.add.at(after.units, at, np.where(answers.admitted, requests.units, 0.0)[counts])
    np.add.at(after.throttled, at, np.where(throttle_ms > 0, 1.0, 0.0))
    np.add.at(after.throttle_ms, at, throttle_ms)
    return after


def metrics(meter: Meter, bank: Bank, at_ms: int | IntArray) -> Metrics:
    """The metrics at one time, or at a time per entity (e,), not before its last request.

    >>> from quotaplane.throttle.bank import begin as begin_bank
    >>> from quotaplane.throttle.types import Quotas
    >>> bank = begin_bank(np.array([0]), Quotas.of([5.0], samples=100))
    >>> requests = Requests(np.array([0]), np.array([60_000]), np.array([560.0]))
    >>> bank, answers = bank.answer(requests)
    >>> [float(value[0]) for value in metrics(record(begin(1), requests, answers), bank, 62_000)]
    [56.0, -50.0, 12000.0]
    """
    now = np.full(len(bank), at_ms // WINDOW_MS)
    units, throttled, throttle_ms = _within(meter, now)
    measured_s = (WINDOWS - 1) * WINDOW_MS / 1000.0 + at_ms % WINDOW_MS / 1000.0
    times = throttled.sum(axis=0)
    with np.errstate(invalid="ignore"):
        mean_ms = throttle_ms.sum(axis=0) / times
    left = bank.balance(np.full(len(bank), at_ms, np.float64))
    return Metrics(units.sum(axis=0) / measured_s, left, mean_ms)


def _within(meter: Meter, newest: IntArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Copies of the windows' arrays, with 0 for windows too old in relation to ``newest`` (e,)."""
    row = np.arange(WINDOWS)[:, None]
    number = meter.newest - (meter.newest - row) % WINDOWS
    recent = number > newest - WINDOWS
    units, throttled, throttle_ms = (np.where(recent, field, 0.0) for field in meter[1:])
    return units, throttled, throttle_ms
