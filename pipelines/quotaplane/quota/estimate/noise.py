"""The noise of usage: how much it varies from window to window while the demand stays the same.

Pure numpy. The noise of a rate is its standard deviation divided by the square root of its mean.
For counts of independent requests (Poisson) this number is the same whatever the mean is: 1 /
sqrt(w) over a window of w seconds. Its square, multiplied by the window, is the index of
dispersion. How it is learned: ``variance``.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.arrays import to_half
from quotaplane.model import FloatArray, IntArray
from quotaplane.quota.estimate.window import Measurements

MOST_SIGMAS: Final = 3.0
"""Most headroom, in standard deviations: noise hardly goes beyond."""
_SHRUNK: Final = 0.1
"""Part of the way to the group's noise that a broker's goes in each window."""
_LEAST_OF_COUNTED: Final = 1.0 / 16.0
"""Part of counting noise that is assumed in any case: without noise any deviation is a change."""
_BLIND_PRIOR: Final = np.sqrt(2.0)
"""A broker that reports no refusals is taken for noisier than counting, until it is known: a false
suspicion costs more there than a late one."""
_MOST_EVENT: Final = 8.0 * 1024.0 * 1024.0
"""Most bytes of a message: more than brokers allow by default."""
_UNKNOWN_EVENT: Final = 4096.0
"""Bytes of an event where no messages are reported, as Kafka does not count them for its quotas: a
quarter of a batch of its producer (``batch.size``). Without noise each window would be a new
demand; with more, a broker that wakes would be found later."""


def counting_noise(event_size: FloatArray, window_ms: FloatArray) -> FloatArray:
    """The noise of a rate whose events arrive independently, (d, m); 0 without a window.

    Args:
        event_size: (d, m) units that one event carries: 1 message, or the mean bytes of a message;
            NaN = not known: 4 kB.
        window_ms: (m,) over which the rate was measured.

    >>> counting_noise(np.array([[1.0], [100.0], [np.nan]]), np.array([4000.0])).tolist()
    [[0.5], [5.0], [32.0]]
    """
    event_size = np.where(np.isnan(event_size), _UNKNOWN_EVENT, np.minimum(event_size, _MOST_EVENT))
    with np.errstate(invalid="ignore", divide="ignore"):
        noise = np.sqrt(event_size * 1000.0 / window_ms)
    return np.where(np.isfinite(noise), noise, 0.0)


def prior_noise(own: FloatArray, of_group: FloatArray, measured: Measurements) -> FloatArray:
    """The noise of m leases with which a window is compared, (d, m); see ``with_prior``."""
    counted = counting_noise(measured.event_size, measured.window_ms)
    counted = np.where(np.isnan(measured.throttled), _BLIND_PRIOR * counted, counted)
    return to_half(with_prior(own, of_group, counted))


def with_prior(own: FloatArray, of_group: FloatArray, counted: FloatArray) -> FloatArray:
    """The noise of brokers, drawn a tenth of the way to that of their groups.

    Three windows show little of the noise of one broker; the other brokers of a group
    probably have about the same. Where it is not known yet (0) it is that of the group or, as long
    as nothing is known of that either, what counting makes. It is at least a 16th of that.

    Args:
        own: of the brokers; 0 = not known.
        of_group: see ``noise_of_groups``.
        counted: see ``counting_noise``.

    >>> own, of_group = np.array([1.0, 3.0, 0.0, 0.0]), np.array([2.0, 2.0, 2.0, 0.0])
    >>> with_prior(own, of_group, np.full(4, 0.5)).tolist()
    [1.1, 2.9, 2.0, 0.5]
    """
    target = np.where(of_group > 0.0, of_group, np.where(own > 0.0, own, counted))
    drawn: FloatArray = own + np.where(own > 0.0, _SHRUNK, 1.0) * (target - own)
    return np.maximum(drawn, _LEAST_OF_COUNTED * counted)


def noise_of_groups(noise: FloatArray, group: IntArray, groups: int) -> FloatArray:
    """(d, g) what the noise (d, n) of a group's brokers is alike; 0 where none is known.

    It is the harmonic mean, so that one broker which reports wildly does not make that of the
    others large.

    >>> noise_of_groups(np.array([[1.0, 1.0, 1000.0, 0.0]]), np.array([0, 0, 0, 1]), 2).round(2)
    array([[1.5, 0. ]])
    """
    known = noise > 0.0
    inverse = np.divide(1.0, noise, out=np.zeros_like(noise), where=known)
    mean = np.zeros((len(noise), groups))
    for place in range(len(noise)):
        total = np.bincount(group, inverse[place], groups)
        count = np.bincount(group, known[place], groups)
        np.divide(count, total, out=mean[place], where=total > 0.0)
    return mean
