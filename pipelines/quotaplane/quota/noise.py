"""The noise of usage: how much it varies from window to window while the demand stays the same.

Pure numpy. The noise of a rate is its standard deviation divided by the square root of its mean.
For counts of independent requests (Poisson) this number is the same whatever the mean is: 1 /
sqrt(w) over a window of w seconds. Its square, multiplied by the window, is the index of
dispersion.
"""

from __future__ import annotations

from math import erfc, exp, pi, sqrt
from typing import Final

import numpy as np

from quotaplane.model import FloatArray, IntArray

MOST_SIGMAS: Final = 3.0
"""Most headroom, in standard deviations: noise hardly goes beyond."""
_GAIN: Final = 0.15
"""Part by which the variance follows a sample."""
_SHRUNK: Final = 0.1
"""Part of the way to the group's noise that a broker's goes in each window."""
_LEAST_OF_COUNTED: Final = 1.0 / 16.0
"""Part of counting noise that is assumed in any case: without noise any deviation is a change."""
_MOST_EVENT: Final = 8.0 * 1024.0 * 1024.0
"""Most bytes of a message: more than brokers allow by default."""
_MOST_OF_VARIANCE: Final = 16.0
"""Most that a sample counts, as a multiple of the variance: an outlier of four deviations."""
OF_SETTLED: Final = 0.93
"""The part of the variance of normal noise that windows show without those in which a change of the
level is in sight (``demand_changes.Sums.growing``): they are the ones with large deviations."""
_SECOND_DIFFERENCE: Final = 6.0
"""The variance of y0 - 2 y1 + y2 of independent values, in variances of one: 1 + 4 + 1."""

_HAZARD_AT: Final = np.linspace(-5.0, 8.0, 521)
_HAZARD: Final = np.array(
    [exp(-z * z / 2.0) / sqrt(pi / 2.0) / erfc(z / sqrt(2.0)) for z in _HAZARD_AT.tolist()]
)


def counting_noise(event_size: FloatArray, window_ms: FloatArray) -> FloatArray:
    """The noise of a rate whose events arrive independently, (d, m); 0 where it is not known.

    Args:
        event_size: (d, m) units that one event carries: 1 message, or the mean bytes of a message;
            NaN = not known.
        window_ms: (m,) over which the rate was measured.

    >>> counting_noise(np.array([[1.0], [100.0], [np.nan]]), np.array([4000.0])).tolist()
    [[0.5], [5.0], [0.0]]
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        noise = np.sqrt(np.minimum(event_size, _MOST_EVENT) * 1000.0 / window_ms)
    return np.where(np.isfinite(noise), noise, 0.0)


def with_prior(own: FloatArray, of_group: FloatArray, counted: FloatArray) -> FloatArray:
    """The noise of brokers, drawn a tenth of the way to that of their groups.

    What three windows show of the noise of one broker is little; the other brokers of a group
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


def updated_variance(variance: FloatArray, sample: FloatArray) -> FloatArray:
    """The variance after one sample of it; where it was not known (0) it is the sample.

    >>> updated_variance(np.array([1.0, 1.0, 0.0]), np.array([2.0, 1000.0, 3.0])).tolist()
    [1.15, 3.25, 3.0]
    """
    known = variance > 0.0
    sample = np.where(known, np.minimum(sample, _MOST_OF_VARIANCE * variance), sample)
    return np.where(known, variance + _GAIN * (sample - variance), sample)


def second_difference(newest: FloatArray, last: FloatArray, earlier: FloatArray) -> FloatArray:
    """An unbiased sample of the variance, from the usage of three windows.

    Neither a level nor a steady ramp counts as noise.

    >>> second_difference(np.array([30.0, 10.0]), np.array([20.0, 13.0]), np.array([10.0, 10.0]))
    array([0., 6.])
    """
    difference = newest - 2.0 * last + earlier
    return difference * difference / _SECOND_DIFFERENCE


def hazard(z: FloatArray) -> FloatArray:
    """The mean of a standard normal value that is above z (inverse Mills ratio).

    >>> hazard(np.array([-9.0, 0.0, 3.0, 20.0])).round(3).tolist()
    [0.0, 0.798, 3.283, 20.05]
    """
    inside = np.interp(z, _HAZARD_AT, _HAZARD, left=0.0)
    with np.errstate(divide="ignore"):
        return np.where(z > _HAZARD_AT[-1], z + 1.0 / z, inside)


def censored_variance(deviation: FloatArray, spread: FloatArray) -> FloatArray:
    """The mean square of normal deviations that are at least this one, of standard deviation
    ``spread``.

    >>> censored_variance(np.array([0.0, 20.0]), np.array([10.0, 10.0])).round(1).tolist()
    [100.0, 574.6]
    """
    z = np.divide(deviation, spread, out=np.zeros_like(spread), where=spread > 0.0)
    variance: FloatArray = np.square(spread) * np.maximum(1.0 + z * hazard(z), 0.0)
    return variance


def to_half(values: FloatArray) -> FloatArray:
    """Round to float16, the precision in which the state keeps noise and deviations."""
    most = float(np.finfo(np.float16).max)
    half: FloatArray = np.clip(values, -most, most).astype(np.float16).astype(np.float64)
    return half
