"""How a window is read, given what was known before it: the level, and what the limit may hide."""

from __future__ import annotations

from math import erfc, exp, pi, sqrt
from typing import Final, NamedTuple

import numpy as np

from quotaplane.groups.standing import AT_LIMIT
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.quota.estimate.demand_estimates import Doubt, Estimates
from quotaplane.quota.estimate.noise import MOST_SIGMAS
from quotaplane.quota.estimate.window import Window

JUMP: Final = 4.0
"""A deviation of more standard deviations than this is a change, until the next window says that it
was noise."""
_NEAR_LIMIT: Final = 0.25
"""The top part of its headroom in which a broker counts as at its limit."""
_READ_ERROR: Final = 0.05
"""The part of its usage that a short window may miss: on a busy machine it begins and ends some
hundredths of a second later than it says."""

_MOST_MISSED: Final = 0.5
"""The part of its usage that a short window may miss, once."""

_HAZARD_AT: Final = np.linspace(-5.0, 8.0, 521)
_HAZARD_STEPS: Final = 40.0
"""Points of ``_HAZARD_AT`` in 1."""
_HAZARD: Final = np.array(
    [exp(-z * z / 2.0) / sqrt(pi / 2.0) / erfc(z / sqrt(2.0)) for z in _HAZARD_AT.tolist()]
)
_HAZARD_SLOPE: Final = np.append(np.diff(_HAZARD) / np.diff(_HAZARD_AT), 0.0)
_NEXT_AT: Final = np.append(_HAZARD_AT[1:], np.inf)


class Level(NamedTuple):
    """The level that a window is compared with; arrays of one shape."""

    base: FloatArray
    """Finite, per second."""
    windows: IntArray
    """It is the mean of so many."""
    spread: FloatArray
    """Standard deviation of a window's deviation from it, per second."""


class Reading(NamedTuple):
    """A window beside the level; arrays of one shape."""

    base: FloatArray
    """See ``Estimates.level``."""
    last: FloatArray
    """The demand that the window before showed, per second."""
    earlier: FloatArray
    """The same of the window before that."""
    blind: BoolArray
    """The broker reports no refusals."""
    near: BoolArray
    """It may have been held back by its limit."""
    seen: FloatArray
    """Usage and refusals, per second, as far as they are believed."""
    level: Level
    """The level that ``seen`` is compared with."""
    taken_back: BoolArray
    """The jump of the last window was noise."""
    shown: FloatArray
    """The demand that the window shows: ``seen``, or the mean of what the limit may hide."""
    missed: BoolArray
    """The window probably missed a part of the usage: it counts for nothing."""


def read(estimates: Estimates, window: Window, seen: FloatArray) -> Reading:
    """Read a window; ``seen``: see ``Reading``."""
    variance, base = estimates.noise * estimates.noise, estimates.level
    blind = np.isnan(window.throttled)
    near = _near_limit(window, base, estimates, blind & np.isfinite(window.limit))
    level, taken_back = _without_false_alarm(
        estimates, _level_of(base, estimates.windows, variance), variance, seen, near
    )
    root = np.sqrt(base)
    return Reading(
        base=base,
        last=base + estimates.last_deviation * root,
        earlier=base + estimates.earlier_deviation * root,
        blind=blind,
        near=near,
        seen=seen,
        level=level,
        taken_back=taken_back,
        shown=_uncensored(seen, near & (estimates.doubt < Doubt.MORE), level),
        missed=_first_below_limit(estimates, window, level, blind & ~near),
    )


def _level_of(base: FloatArray, windows: IntArray, variance: FloatArray) -> Level:
    return Level(base, windows, np.sqrt(variance * base * error_of_mean(windows)))


def error_of_mean(windows: IntArray) -> FloatArray:
    """The variance of a window's deviation from the mean of others, in variances of a window."""
    error: FloatArray = 1.0 + 1.0 / np.maximum(windows, 1)
    return error


def _near_limit(
    window: Window,
    base: FloatArray,
    estimates: Estimates,
    may_be_near: BoolArray,
) -> BoolArray:
    """Those of ``may_be_near``, limited brokers without refusals, that their limit may hold back.

    The others would say so.
    """
    if not may_be_near.any():
        return may_be_near
    limit = window.limit
    from_ = (AT_LIMIT - np.where(window.short, _READ_ERROR, 0.0)) * limit
    with np.errstate(invalid="ignore"):
        top = limit - _NEAR_LIMIT * (limit - base)
    from_ = np.where((limit > base) & ~estimates.suspected, np.maximum(from_, top), from_)
    near: BoolArray = may_be_near & (window.usage >= from_)
    return near


def _without_false_alarm(
    estimates: Estimates, level: Level, variance: FloatArray, seen: FloatArray, near: BoolArray
) -> tuple[Level, BoolArray]:
    """The level to compare with, and where the jump of the last window is taken back."""
    jumped = (estimates.doubt == Doubt.JUMPED) & ~near
    if not jumped.any():
        return level, jumped
    old = _level_of(estimates.old_demand, estimates.old_windows, variance)
    distance = np.abs(seen - old.base)
    back = jumped & (distance < np.abs(seen - level.base)) & (distance <= JUMP * old.spread)
    return Level(*(np.where(back, *both) for both in zip(old, level, strict=True))), back


def _first_below_limit(
    estimates: Estimates, window: Window, level: Level, candidates: BoolArray
) -> BoolArray:
    """Brokers that are held back for certain, and whose short window shows less for the first time.

    ``candidates`` report no refusals, and are not near their limit.
    On a busy machine the counters are some tenths of a second old, so a window shows too little and
    the next one too much. Where next to nothing was used, the topic is gone.
    """
    short = window.short
    if not short.any():
        return candidates & short
    held_back = window.limit < level.base - MOST_SIGMAS * level.spread
    held_back |= estimates.doubt == Doubt.SATURATED
    explained = window.usage >= _MOST_MISSED * window.limit
    if window.in_batches is not None:
        explained |= window.in_batches
    once: BoolArray = short & candidates & held_back & explained & (estimates.fall == 0.0)
    return once


def _uncensored(seen: FloatArray, near: BoolArray, level: Level) -> FloatArray:
    """The demand ``seen``; at a limit the mean of the demands above it, as the noise makes them."""
    at = near & (level.spread > 0.0)
    if not at.any():
        return seen
    shown = seen.copy()
    base, spread = level.base[at], level.spread[at]
    shown[at] = base + spread * hazard((seen[at] - base) / spread)
    return np.maximum(shown, seen)


def hazard(z: FloatArray) -> FloatArray:
    """The mean of a standard normal value that is above z (inverse Mills ratio).

    >>> hazard(np.array([-9.0, 0.0, 3.0, 20.0])).round(3).tolist()
    [0.0, 0.798, 3.283, 20.05]
    """
    first, last = _HAZARD_AT[0], _HAZARD_AT[-1]
    mean: FloatArray = np.clip(z, first, last)
    # The points are evenly spaced, so none is searched for: a sixth of the time of ``np.interp``,
    # for the same bits. NaN has no place, and stays NaN.
    at = ((np.fmax(mean, first) - first) * _HAZARD_STEPS).astype(np.int64)
    at -= _HAZARD_AT.take(at) > mean  # where the place was rounded up or down
    at += _NEXT_AT.take(at) <= mean
    mean -= _HAZARD_AT.take(at)
    mean *= _HAZARD_SLOPE.take(at)
    mean += _HAZARD.take(at)
    mean[z < first] = 0.0
    beyond = z > last
    mean[beyond] = z[beyond] + 1.0 / z[beyond]
    return mean
