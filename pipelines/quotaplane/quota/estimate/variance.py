"""How noise is learned: samples of the variance of usage, window by window."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.arrays import to_half
from quotaplane.model import BoolArray, FloatArray
from quotaplane.quota.estimate.demand_estimates import Estimates
from quotaplane.quota.estimate.noise import MOST_SIGMAS
from quotaplane.quota.estimate.reading import Level, Reading, error_of_mean, hazard
from quotaplane.quota.estimate.window import Window

_UNCHANGED: Final = 0.05
"""A stock broker reports usage as unchanged that is within this part of what it reported last."""
_GAIN: Final = 0.15
"""Part by which the variance follows a sample."""
_MOST_OF_VARIANCE: Final = 16.0
"""Most that a sample counts, as a multiple of the variance: an outlier of four deviations."""
_OF_SETTLED: Final = 0.93
"""The part of the variance of normal noise that windows show without those in which a change of the
level is in sight (``level_changes.Sums.growing``): they are the ones with large deviations."""
_SECOND_DIFFERENCE: Final = 6.0
"""The variance of y0 - 2 y1 + y2 of independent values, in variances of one: 1 + 4 + 1."""


def learned_noise(
    estimates: Estimates, window: Window, reading: Reading, settled: BoolArray
) -> FloatArray:
    """The noise after a window.

    ``estimates``: the estimates before it. ``settled``: no change of the level is in sight. A
    change that takes some windows to be found would otherwise count as noise, and take longer.
    """
    sample, sampled = _sample(estimates, window, reading, settled)
    base, variance = reading.level.base, estimates.noise * estimates.noise
    # Claims are no noise: the noise of what was really used is not larger than that. And it is not
    # larger than twice the level: what is rare comes in single requests.
    used = np.minimum(np.maximum(window.usage, window.used_before), 2.0 * base)
    sampled = sampled & (base > 0.0)
    sample = np.minimum(sample, used * used)
    relative = np.divide(sample, base, out=np.zeros_like(sample), where=sampled)
    return to_half(np.sqrt(np.where(sampled, updated_variance(variance, relative), variance)))


def _sample(
    estimates: Estimates, window: Window, reading: Reading, settled: BoolArray
) -> tuple[FloatArray, BoolArray]:
    """A sample of the variance, and where there is one."""
    level, near, back = reading.level, reading.near, reading.taken_back
    regular = (estimates.windows >= 2) & ~estimates.suspected & settled
    sample = second_difference(reading.shown, reading.last, reading.earlier) / _OF_SETTLED
    if window.unchanged is not None:
        # The counters of an observed window went backwards: it says nothing.
        regular &= ~(window.unchanged & window.short)
        sample += np.where(window.unchanged, _of_unchanged(window, level), 0.0)
    sampled = regular & ~near | back
    tight = regular & reading.blind
    tight &= window.limit < level.base + MOST_SIGMAS * level.spread
    if tight.any():
        at_limit = _sample_at_limit(reading.seen, near, level) / _OF_SETTLED
        sample = np.where(tight, at_limit, sample)
        sampled |= tight
    return np.where(back, np.square(reading.base - level.base), sample), sampled


def _of_unchanged(window: Window, level: Level) -> FloatArray:
    """The part of a variance sample that comes from windows reported as unchanged.

    The usage is anywhere near the last one that was reported. If noise is smaller than that, it
    is as large as it was.
    """
    known = np.square(level.spread) / error_of_mean(level.windows)
    return np.minimum(np.square(_UNCHANGED * window.usage) / 3.0, known)


def _sample_at_limit(seen: FloatArray, near: BoolArray, level: Level) -> FloatArray:
    """A sample of the variance where the limit hides the larger deviations, or may do so.

    Second differences of what is not hidden would be too small; deviations from the level are
    right together with what the hidden ones are on average.
    """
    sample = np.square(seen - level.base)
    sample[near] = censored_variance(seen[near] - level.base[near], level.spread[near])
    return sample / error_of_mean(level.windows)


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


def censored_variance(deviation: FloatArray, spread: FloatArray) -> FloatArray:
    """The mean square of normal deviations that are at least this one, of standard deviation
    ``spread``.

    >>> censored_variance(np.array([0.0, 20.0]), np.array([10.0, 10.0])).round(1).tolist()
    [100.0, 574.6]
    """
    z = np.divide(deviation, spread, out=np.zeros_like(spread), where=spread > 0.0)
    variance: FloatArray = np.square(spread) * np.maximum(1.0 + z * hazard(z), 0.0)
    return variance
