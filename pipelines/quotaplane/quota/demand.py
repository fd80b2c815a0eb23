"""Demand estimation: the rate that each broker would use if nothing limited it.

Pure numpy. Rates are per second, arrays of any one shape unless said otherwise.

``observe`` derives the demand from one report window: exactly, if the broker reports refusals; else
the usage, or infinity if the usage is at the limit. ``learn`` updates an estimate from window to
window: it averages noise out, follows a real change at once, discounts brokers that claim refusals
and then leave what they were given unused, and suspects brokers that report none by the evidence
that a limit leaves. The next step is ``headroom.with_headroom``.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.quota.claims import discount_claims
from quotaplane.quota.noise import hazard, second_difference, to_half, updated_variance
from quotaplane.quota.track import Doubt, Track, Window, joined

DEFAULT_SATURATED_FROM: Final = 0.95

_BLOCK: Final = 16384
"""Columns per block: for 4 dimensions twice as fast as all at once (measured), as a block's
intermediate arrays stay in the CPU's cache."""

MEMORY: Final = 6
"""Most windows that a level is the mean of. Longer ones were no better, and slower."""
_JUMP: Final = 4.0
"""A deviation of more standard deviations than this is a change, until the next window says that it
was noise."""
_SLACK: Final = 0.5
"""Standard deviations by which a deviation counts less in a sum (CUSUM)."""
_ALARM: Final = 4.5
"""A sum of deviations to one side above this is a change."""
_MOST_DEVIATION: Final = 8.0
"""Most standard deviations that one window adds to a sum."""
_MOST_RUN: Final = 15
_CUSUM_STEPS: Final = 16.0
"""A sum is kept in 16ths: up to 15.9 in a byte."""

_NEAR_LIMIT: Final = 0.25
"""The top part of its headroom in which a broker counts as at its limit."""
_SUSPECT: Final = 3.5
"""From so many standard deviations on, a touch of the limit is no noise."""
_CERTAIN: Final = 5.5
"""From here on it is not even a small change: the broker gets its fair share at once."""
_MORE: Final = 4.0
"""Multiple of its usage that a suspected broker is asked for."""
_SOME_MORE: Final = 1.3
"""The same of one that touches its limit again and again."""
_AGAIN_MORE: Final = 2.0
"""The same of one that then touches the next limit, too."""


def observe(
    usage: FloatArray,
    limit: FloatArray,
    throttled: FloatArray | None = None,
    *,
    saturated_from: float = DEFAULT_SATURATED_FROM,
) -> FloatArray:
    """The demand that one window shows.

    - The broker reports what it refused or delayed: its usage plus that.
    - It does not, and used less than ``saturated_from`` of its limit: its usage.
    - It does not, and used that much: infinite (saturated). A fair law then gives it its fair share
      at once, where a guess would creep up from the old limit. One window later it either uses that
      share or is seen to be satisfied below it. At a limit of 0, where usage shows nothing, it is
      always saturated; without a limit never.

    Args:
        usage: measured, never NaN (the caller has filled in what stock Pulsar leaves out).
        limit: in force while it was measured; inf = never limited.
        throttled: refused or delayed; NaN = unknown; None = unknown everywhere.
        saturated_from: fraction of the limit.

    Returns:
        The demand, same shape; inf = saturated.

    >>> observe(np.array([10.0, 20.0, 0.0]), np.array([20.0, 20.0, np.inf]))
    array([10., inf,  0.])
    >>> observe(np.array([20.0, 20.0]), np.array([20.0, 20.0]), np.array([0.0, 30.0]))
    array([20., 50.])
    """
    saturated = np.isfinite(limit) & (usage >= saturated_from * limit)
    if throttled is None:
        return np.where(saturated, np.inf, usage)
    reported = ~np.isnan(throttled)
    return np.where(reported, usage + throttled, np.where(saturated, np.inf, usage))


def learn(track: Track, window: Window, *, saturated_from: float = DEFAULT_SATURATED_FROM) -> Track:
    """Update demand estimates with the observation of one window.

    *Noise.* The level is the mean of at most six windows. A deviation of more than four standard
    deviations is a jump: the demand follows at once. If the next window is nearer to the level from
    before, it was noise, and is taken back. Deviations to one side add up (CUSUM, Page 1954); above
    4.5 the demand changed, too. The variance is learned from second differences (``noise``).

    *Claims* of brokers that report refusals are discounted if they are refuted (``claims``).

    *Limits* hide the demand of brokers that report none. A window near the limit says that the
    demand was at least the usage; it counts with the mean of such demands (Tobin 1958), so a limit
    that noise touches now and then biases nothing. If noise would hardly touch it, the broker is
    suspected to want more: beyond 5.5 standard deviations it counts as saturated, which a law
    answers with the fair share; from 3 on it is asked for four times as much, and if touches add up
    for 1.3 times. If it is at its limit again it is saturated; else it is known what it wants, and
    if that is the old level the suspicion never was.

    Args:
        track: the estimates so far; see ``Track.blank``. Where ``noise`` is 0 (not known), every
            deviation is a change.
        window: what was measured.
        saturated_from: see ``observe``.

    >>> track, before, unlimited = Track.blank((1,)), np.zeros(1), np.array([np.inf])
    >>> track = track.with_noise(np.ones(1))
    >>> for usage in np.array([[100.0], [300.0], [320.0], [290.0], [305.0]]):
    ...     track = learn(track, Window(before, usage, unlimited, np.array([np.nan])))
    ...     before = usage
    ...     print(round(float(track.demand[0]), 1))
    100.0
    300.0
    310.0
    303.3
    303.8
    """
    blocks = []
    for begin in range(0, window.usage.shape[-1], _BLOCK):
        chosen = slice(begin, begin + _BLOCK)
        blocks.append(_learn_block(track.take(chosen), window.take(chosen), saturated_from))
    if len(blocks) < 2:
        return blocks[0] if blocks else track
    return joined(blocks)


class _Level(NamedTuple):
    """The level that a window is compared with; arrays of one shape."""

    base: FloatArray
    """Finite, per second."""
    windows: IntArray
    """It is the mean of so many."""
    spread: FloatArray
    """Standard deviation of a window's deviation from it, per second."""


class _Changes(NamedTuple):
    """What a window says of the level, (n,) each; at most one holds of a row."""

    saturated: BoolArray
    """The broker is at its limit, and noise is certainly not why."""
    more: BoolArray
    """It is at its limit, and noise is hardly why."""
    some_more: BoolArray
    """It is at its limit again and again."""
    jumped: BoolArray
    """It shows a demand that is not the level."""
    rising: BoolArray
    """Deviations upwards add up."""
    falling: BoolArray
    """Deviations downwards add up."""


class _Sums(NamedTuple):
    """The deviations that add up."""

    rise: FloatArray
    rise_windows: IntArray
    fall: FloatArray
    fall_windows: IntArray


def _level(base: FloatArray, windows: IntArray, variance: FloatArray) -> _Level:
    return _Level(base, windows, np.sqrt(variance * base * (1.0 + 1.0 / np.maximum(windows, 1))))


def _learn_block(track: Track, window: Window, saturated_from: float) -> Track:
    """``learn`` for one block of columns."""
    variance = track.noise * track.noise
    suspected = track.doubt >= Doubt.SOME_MORE
    base = np.where(suspected, track.old_demand, track.demand)
    near = _near_limit(window, base, suspected, saturated_from)
    seen = np.where(np.isnan(window.throttled), 0.0, window.throttled) + window.usage
    distrust, seen = discount_claims(
        track.distrust, window, base, np.sqrt(variance * base), seen, saturated_from
    )
    level, taken_back = _without_false_alarm(track, base, variance, seen, near)
    shown = _uncensored(seen, near & (track.doubt < Doubt.MORE), level)
    z = _deviations(shown - level.base, level.spread)

    changes, sums = _changes(track, z, near, suspected)
    new_level, windows = _new_level(level, shown, changes, sums)
    sampled = (track.windows >= 2) & ~(near | suspected | changes.jumped)
    last = _earlier_value(base, track.last_deviation)
    earlier = _earlier_value(base, track.earlier_deviation)
    sample = second_difference(shown, last, earlier)
    sample = np.where(taken_back, np.square(base - level.base), sample)
    tight = np.isnan(window.throttled) & (window.limit < level.base + 3.0 * level.spread) & ~suspected
    tight &= (level.windows >= 2) & ~changes.jumped & ~changes.more & ~changes.saturated & ~changes.some_more
    if tight.any():
        zu = np.divide(seen - level.base, level.spread, out=np.zeros_like(base), where=level.spread > 0)
        of_mean = 1.0 + 1.0 / np.maximum(level.windows, 1)
        cens = np.square(level.spread) * (1.0 + zu * hazard(zu)) / of_mean
        sample = np.where(tight, np.where(near, cens, np.square(seen - level.base) / of_mean), sample)
        sampled = sampled | tight
    variance = _new_variance(variance, sample, level.base, window, sampled | taken_back)
    last = np.where(taken_back, level.base, last)
    demand, doubt = _asked_for(new_level, level, window, suspected, changes)
    after = Track(
        demand=demand,
        noise=to_half(np.sqrt(variance)),
        last_deviation=_deviation(shown, new_level),
        earlier_deviation=_deviation(last, new_level),
        **sums._asdict(),
        windows=windows,
        doubt=doubt,
        old_demand=np.where(doubt > 0, level.base, 0.0),
        old_windows=np.where(doubt > 0, level.windows, 0),
        distrust=distrust,
    )
    if window.outdated is None:
        return after
    # The limit that was to show how much a suspected broker wants was not in force yet.
    waits = suspected & near & window.outdated
    return track.where(waits, after) if waits.any() else after


def _near_limit(
    window: Window, base: FloatArray, suspected: BoolArray, saturated_from: float
) -> BoolArray:
    """Brokers that report no refusals and may have been held back by their limit."""
    limit = window.limit
    blind = np.isnan(window.throttled) & np.isfinite(limit)
    if not blind.any():
        return blind
    from_ = saturated_from * limit
    with np.errstate(invalid="ignore"):
        top = limit - _NEAR_LIMIT * (limit - base)
    from_ = np.where((limit > base) & ~suspected, np.maximum(from_, top), from_)
    near: BoolArray = blind & (window.usage >= from_)
    return near


def _without_false_alarm(
    track: Track, base: FloatArray, variance: FloatArray, seen: FloatArray, near: BoolArray
) -> tuple[_Level, BoolArray]:
    """The level to compare with, and where the jump of the last window is taken back."""
    level = _level(base, track.windows, variance)
    jumped = (track.doubt == Doubt.JUMPED) & ~near
    if not jumped.any():
        return level, jumped
    old = _level(track.old_demand, track.old_windows, variance)
    distance = np.abs(seen - old.base)
    back = jumped & (distance < np.abs(seen - base)) & (distance <= _JUMP * old.spread)
    return _Level(*(np.where(back, *both) for both in zip(old, level, strict=True))), back


def _uncensored(seen: FloatArray, near: BoolArray, level: _Level) -> FloatArray:
    """What was seen; at a limit the mean of the demands above it, as the noise makes them."""
    at = near & (level.spread > 0.0)
    if not at.any():
        return seen
    shown = seen.copy()
    base, spread = level.base[at], level.spread[at]
    shown[at] = base + spread * hazard((seen[at] - base) / spread)
    return np.maximum(shown, seen)


def _deviations(difference: FloatArray, spread: FloatArray) -> FloatArray:
    """In standard deviations, at most ``_MOST_DEVIATION``; where these are 0, all or nothing."""
    z = np.sign(difference) * _MOST_DEVIATION
    np.divide(difference, spread, out=z, where=spread > 0.0)
    return np.clip(z, -_MOST_DEVIATION, _MOST_DEVIATION)


def _changes(
    track: Track, z: FloatArray, near: BoolArray, suspected: BoolArray
) -> tuple[_Changes, _Sums]:
    """What the window changes, and the sums after it."""
    again = track.doubt >= Doubt.MORE
    saturated = near & (again | (z > _CERTAIN) | (track.windows == 0))
    more = near & ~saturated & (suspected | (z > _SUSPECT))
    jumped = ~near & (np.abs(z) > _JUMP)
    reset = suspected | saturated | more | jumped
    rise, rise_windows = _summed(track.rise, track.rise_windows, z, reset)
    fall, fall_windows = _summed(track.fall, track.fall_windows, -z, reset)
    over, falling = rise > _ALARM, fall > _ALARM
    changes = _Changes(saturated, more, over & near, jumped, over & ~near, falling)
    return changes, _Sums(rise, rise_windows, fall, fall_windows)


def _summed(
    total: FloatArray, windows: IntArray, z: FloatArray, reset: BoolArray
) -> tuple[FloatArray, IntArray]:
    """A sum of deviations to one side, in ``_CUSUM_STEPS``, and of how many windows it is."""
    rounded = np.rint((total + z - _SLACK) * _CUSUM_STEPS) / _CUSUM_STEPS
    total = np.where(reset, 0.0, np.maximum(rounded, 0.0))
    return total, np.where(total > 0.0, np.minimum(windows + 1, _MOST_RUN), 0)


def _new_level(
    level: _Level, shown: FloatArray, changes: _Changes, sums: _Sums
) -> tuple[FloatArray, IntArray]:
    """The level after the window, whatever the limit hides, and of how many windows it is."""
    windows = np.minimum(level.windows + 1, MEMORY)
    new = level.base + (shown - level.base) / windows
    if changes.rising.any() or changes.falling.any():
        rise = level.base + level.spread * (sums.rise / np.maximum(sums.rise_windows, 1) + _SLACK)
        fall = level.base - level.spread * (sums.fall / np.maximum(sums.fall_windows, 1) + _SLACK)
        new = np.where(changes.rising, np.maximum(rise, shown), new)
        new = np.where(changes.falling, np.maximum(fall, 0.0), new)
        windows = np.where(changes.rising, np.minimum(sums.rise_windows, MEMORY), windows)
        windows = np.where(changes.falling, np.minimum(sums.fall_windows, MEMORY), windows)
    hidden = changes.saturated | changes.more | changes.some_more
    new = np.where(changes.jumped, shown, np.where(hidden, level.base, new))
    return new, np.where(changes.jumped, 1, np.where(hidden, level.windows, windows))


def _asked_for(
    new: FloatArray, level: _Level, window: Window, suspected: BoolArray, changes: _Changes
) -> tuple[FloatArray, IntArray]:
    """The demand, and what is not certain about it."""
    jumped = changes.jumped & ~suspected & (level.windows > 0)
    doubt = np.where(jumped, Doubt.JUMPED, Doubt.NONE)
    if not (changes.saturated.any() or changes.more.any() or changes.some_more.any()):
        return new, doubt
    most = np.maximum(level.base, window.usage)
    several = np.where(suspected, _AGAIN_MORE, _MORE)
    demand = np.where(changes.more, several * most, new)
    demand = np.where(changes.some_more, _SOME_MORE * most, demand)
    demand = np.where(changes.saturated, np.inf, demand)
    doubt = np.where(changes.more, Doubt.MORE, doubt)
    doubt = np.where(changes.some_more, Doubt.SOME_MORE, doubt)
    return demand, np.where(changes.saturated, Doubt.SATURATED, doubt)


def _new_variance(
    variance: FloatArray, sample: FloatArray, base: FloatArray, window: Window, sampled: BoolArray
) -> FloatArray:
    """The variance divided by the level, after a ``sample`` of it where there is one."""
    # Claims are no noise: the noise of what was really used is not larger than that.
    used = np.maximum(window.usage, window.used_before)
    sampled = sampled & (base > 0.0)
    sample = np.minimum(sample, used * used)
    relative = np.divide(sample, base, out=np.zeros_like(sample), where=sampled)
    return np.where(sampled, updated_variance(variance, relative), variance)


def _earlier_value(base: FloatArray, deviation: FloatArray) -> FloatArray:
    return base + deviation * np.sqrt(base)


def _deviation(value: FloatArray, level: FloatArray) -> FloatArray:
    """From the level, divided by its square root."""
    root = np.sqrt(level)
    return to_half(np.divide(value - level, root, out=np.zeros_like(root), where=root > 0.0))
