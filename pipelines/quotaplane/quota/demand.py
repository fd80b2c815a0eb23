"""Demand estimation: the rate that each broker would use if nothing limited it.

Pure numpy. Rates are per second, arrays of any one shape unless said otherwise.

``observe`` derives the demand from one report window: exactly, if the broker reports refusals; else
the usage, or infinity if the usage is at the limit. ``learn`` updates an estimate from window to
window: it averages noise out, follows a real change at once, discounts brokers that claim refusals
and then leave what they were given unused, and suspects brokers that report none by the evidence
that a limit leaves. The next step is ``headroom.with_headroom``.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from quotaplane.groups.standing import AT_LIMIT
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.quota.claims import discount_claims
from quotaplane.quota.demand_changes import (
    MOST_WINDOWS,
    DemandChanges,
    Level,
    deviations,
    error_of_mean,
    find_changes,
    level_of,
    near_limit,
    new_level,
    short_windows,
    uncensored,
    without_false_alarm,
)
from quotaplane.quota.noise import (
    MOST_SIGMAS,
    OF_SETTLED,
    censored_variance,
    second_difference,
    to_half,
    updated_variance,
)
from quotaplane.quota.track import Doubt, Track, Window, joined

_BLOCK: Final = 8192
"""Columns per block: for 4 dimensions twice as fast as all at once (measured), as a block's
intermediate arrays stay in the CPU's cache."""

_MORE: Final = 4.0
"""Multiple of its usage that a suspected broker is asked for."""
_SOME_MORE: Final = 1.3
"""The same of one that touches its limit again and again."""
_AGAIN_MORE: Final = 2.0
"""The same of one that then touches the next limit, too."""
_SEEN_ONCE: Final = 1.0
"""Sum of deviations downwards that marks a broker which was at its limit and then used less in a
short window."""
_MOST_MISSED: Final = 0.5
"""The part of its usage that a short window may miss, once."""
_UNCHANGED: Final = 0.05
"""A stock broker reports usage as unchanged that is within this part of what it reported last."""


def observe(
    usage: FloatArray,
    limit: FloatArray,
    throttled: FloatArray | None = None,
    *,
    saturated_from: float = AT_LIMIT,
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


def learn(track: Track, window: Window, *, saturated_from: float = AT_LIMIT) -> Track:
    """Update demand estimates with the observation of one window.

    *Noise.* The level is the mean of at most six windows, of short ones of more. A deviation of
    more than four standard deviations is a jump: the demand follows at once, unless one window
    may have missed a batch. If the next window is nearer to the level from before, it was
    noise, and is taken back. Deviations to one side add up
    (CUSUM, Page 1954); above 4.5 the demand changed, too. The variance is learned from second
    differences (``noise``).

    *Claims* of brokers that report refusals are discounted if they are refuted (``claims``).

    *Limits* hide the demand of brokers that report none. A window near the limit says that the
    demand was at least the usage; it counts with the mean of such demands (Tobin 1958), so a limit
    that noise touches now and then biases nothing. If noise would hardly touch it, the broker is
    suspected to want more. Beyond 5.5 standard deviations it counts as saturated, which a law
    answers with the fair share. From 3.5 on, and at a small limit, four times as much is asked for
    it; if touches add up, 1.3 times. If it is at its limit again it is saturated; else its
    demand is known, and if that is the old level, the suspicion is forgotten. What is nearer to the
    limit than to the old level is a new one.

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


class _Reading(NamedTuple):
    """How a window is read, given what was known before it; arrays of one shape."""

    base: FloatArray
    """The level before, per second: the old one of a broker that was asked for more."""
    suspected: BoolArray
    """The broker was asked for more than the level."""
    near: BoolArray
    """It may have been held back by its limit."""
    seen: FloatArray
    """What it used and was refused, per second, less what is not believed."""
    level: Level
    """What ``seen`` is compared with."""
    taken_back: BoolArray
    """The jump of the last window was noise."""
    shown: FloatArray
    """The demand that the window shows: ``seen``, or the mean of what the limit may hide."""


def _learn_block(track: Track, window: Window, saturated_from: float) -> Track:
    """``learn`` for one block of columns."""
    variance = track.noise * track.noise
    distrust, reading = _read(track, window, variance, saturated_from)
    level, near, suspected, shown = reading.level, reading.near, reading.suspected, reading.shown
    z = deviations(shown - level.base, level.spread, near)
    changes, sums = find_changes(track, window, z, near, suspected)
    base_after, windows = new_level(level, shown, changes, sums, window.most_windows)
    demand, doubt = _asked_for(base_after, level, window, suspected, changes)
    last, earlier = _last_two(track, reading.base)
    # Of a level of few windows more noise is as likely as a change. At a limit the largest
    # deviations are hidden: without the others noise would seem too small.
    in_sight = sums.growing(track) & (track.windows >= MOST_WINDOWS) & ~near
    settled = ~(changes.any() | in_sight)
    sample, sampled = _variance_sample(track, window, reading, settled, last, earlier)
    last = np.where(reading.taken_back, level.base, last)
    root = np.sqrt(base_after)
    per_root = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0.0)
    after = Track(
        demand=demand,
        noise=to_half(np.sqrt(_new_variance(variance, sample, level.base, window, sampled))),
        last_deviation=to_half((shown - base_after) * per_root),
        earlier_deviation=to_half((last - base_after) * per_root),
        **sums.without(changes)._asdict(),
        windows=windows,
        doubt=doubt,
        old_demand=np.where(doubt > 0, level.base, 0.0),
        old_windows=np.where(doubt > 0, level.windows, 0),
        distrust=distrust,
    )
    once = _first_below_limit(track, window, level, near)
    if once.any():
        after = after.where(~once, replace(track, fall=np.where(once, _SEEN_ONCE, track.fall)))
    if window.outdated is None:
        return after
    # The limit that was to show how much a suspected broker wants was not in force yet.
    waits = suspected & near & window.outdated
    return track.where(waits, after) if waits.any() else after


def _read(
    track: Track, window: Window, variance: FloatArray, saturated_from: float
) -> tuple[IntArray, _Reading]:
    """The distrust after the window, and how it is read."""
    suspected = track.doubt >= Doubt.SOME_MORE
    base = np.where(suspected, track.old_demand, track.demand)
    near = near_limit(window, base, suspected, saturated_from)
    seen = np.where(np.isnan(window.throttled), 0.0, window.throttled) + window.usage
    distrust, seen = discount_claims(
        track.distrust, window, base, track.noise, seen, saturated_from
    )
    level, taken_back = without_false_alarm(
        track, level_of(base, track.windows, variance), variance, seen, near
    )
    shown = uncensored(seen, near & (track.doubt < Doubt.MORE), level)
    return distrust, _Reading(base, suspected, near, seen, level, taken_back, shown)


def _last_two(track: Track, base: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The demands that the last two windows showed, the newer one first."""
    root = np.sqrt(base)
    return base + track.last_deviation * root, base + track.earlier_deviation * root


def _variance_sample(
    track: Track,
    window: Window,
    reading: _Reading,
    settled: BoolArray,
    last: FloatArray,
    earlier: FloatArray,
) -> tuple[FloatArray, BoolArray]:
    """A sample of the variance, and where there is one.

    ``settled``: no change of the level is in sight. A change that takes some windows to be found
    would otherwise count as noise, and take longer.
    """
    level, near, back = reading.level, reading.near, reading.taken_back
    regular = (track.windows >= 2) & ~reading.suspected & settled
    sample = second_difference(reading.shown, last, earlier) / OF_SETTLED
    if window.unchanged is not None:
        # The counters of an observed window went backwards: it says nothing.
        regular &= ~(window.unchanged & short_windows(window))
        sample += np.where(window.unchanged, _of_unchanged(window, level), 0.0)
    sampled = regular & ~near | back
    tight = regular & np.isnan(window.throttled)
    tight &= window.limit < level.base + MOST_SIGMAS * level.spread
    if tight.any():
        at_limit = _sample_at_limit(reading.seen, near, level) / OF_SETTLED
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


def _first_below_limit(track: Track, window: Window, level: Level, near: BoolArray) -> BoolArray:
    """Brokers that are held back for certain, and whose short window shows less for the first time.

    On a busy machine the counters are some tenths of a second old, so a window shows too little and
    the next one too much. Where next to nothing was used, the topic is gone.
    """
    short = short_windows(window)
    if not short.any():
        return near & short
    held_back = window.limit < level.base - MOST_SIGMAS * level.spread
    held_back |= track.doubt == Doubt.SATURATED
    explained = window.usage >= _MOST_MISSED * window.limit
    if window.in_batches is not None:
        explained |= window.in_batches
    blind = np.isnan(window.throttled)
    once: BoolArray = short & blind & held_back & explained & ~near & (track.fall == 0.0)
    return once


def _sample_at_limit(seen: FloatArray, near: BoolArray, level: Level) -> FloatArray:
    """A sample of the variance where the limit hides the larger deviations, or may do so.

    Second differences of what is not hidden would be too small; deviations from the level are
    right together with what the hidden ones are on average.
    """
    sample = np.square(seen - level.base)
    sample[near] = censored_variance(seen[near] - level.base[near], level.spread[near])
    return sample / error_of_mean(level.windows)


def _asked_for(
    base: FloatArray, level: Level, window: Window, suspected: BoolArray, changes: DemandChanges
) -> tuple[FloatArray, IntArray]:
    """The demand, and what is not certain about it; ``base`` and ``level``: after and before."""
    jumped = changes.jumped & ~suspected & (level.windows > 0)
    doubt = np.where(jumped, int(Doubt.JUMPED), int(Doubt.NONE))
    if not changes.hidden().any():
        return base, doubt
    most = np.maximum(level.base, window.usage)
    several = np.where(suspected, _AGAIN_MORE, _MORE)
    demand = np.where(changes.more, several * most, base)
    demand = np.where(changes.some_more, _SOME_MORE * most, demand)
    demand = np.where(changes.saturated, np.inf, demand)
    doubt = np.where(changes.more, int(Doubt.MORE), doubt)
    doubt = np.where(changes.some_more, int(Doubt.SOME_MORE), doubt)
    return demand, np.where(changes.saturated, int(Doubt.SATURATED), doubt)


def _new_variance(
    variance: FloatArray, sample: FloatArray, base: FloatArray, window: Window, sampled: BoolArray
) -> FloatArray:
    """The variance divided by the level ``base``, after a ``sample`` where there is one."""
    # Claims are no noise: the noise of what was really used is not larger than that. And it is not
    # larger than twice the level: what is rare comes in single requests.
    used = np.minimum(np.maximum(window.usage, window.used_before), 2.0 * base)
    sampled = sampled & (base > 0.0)
    sample = np.minimum(sample, used * used)
    relative = np.divide(sample, base, out=np.zeros_like(sample), where=sampled)
    return np.where(sampled, updated_variance(variance, relative), variance)
