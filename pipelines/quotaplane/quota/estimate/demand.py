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
from typing import Final

import numpy as np

from quotaplane.arrays import to_half
from quotaplane.groups.standing import AT_LIMIT
from quotaplane.model import FloatArray
from quotaplane.quota.estimate.claims import discount_claims
from quotaplane.quota.estimate.demand_estimates import Estimates
from quotaplane.quota.estimate.level_changes import asked_for, find_changes, new_level
from quotaplane.quota.estimate.reading import read
from quotaplane.quota.estimate.variance import learned_noise
from quotaplane.quota.estimate.window import MOST_WINDOWS, Window

_SEEN_ONCE: Final = 1.0
"""Sum of deviations downwards that marks a broker which was at its limit and then used less in a
short window."""


def observe(
    usage: FloatArray,
    limit: FloatArray,
    throttled: FloatArray | None = None,
) -> FloatArray:
    """The demand that one window shows.

    - The broker reports what it refused or delayed: its usage plus that.
    - It does not, and used less than ``AT_LIMIT`` of its limit: its usage.
    - It does not, and used that much: infinite (saturated). A fair law then gives it its fair share
      at once, where a guess would creep up from the old limit. One window later it either uses that
      share or is seen to be satisfied below it. At a limit of 0, where usage shows nothing, it is
      always saturated; without a limit never.

    Args:
        usage: measured, never NaN (the caller has filled in what stock Pulsar leaves out).
        limit: in force while it was measured; inf = never limited.
        throttled: refused or delayed; NaN = unknown; None = unknown everywhere.

    Returns:
        The demand, same shape; inf = saturated.

    >>> observe(np.array([10.0, 20.0, 0.0]), np.array([20.0, 20.0, np.inf]))
    array([10., inf,  0.])
    >>> observe(np.array([20.0, 20.0]), np.array([20.0, 20.0]), np.array([0.0, 30.0]))
    array([20., 50.])
    """
    saturated = np.isfinite(limit) & (usage >= AT_LIMIT * limit)
    if throttled is None:
        return np.where(saturated, np.inf, usage)
    reported = ~np.isnan(throttled)
    return np.where(reported, usage + throttled, np.where(saturated, np.inf, usage))


def learn(estimates: Estimates, window: Window) -> Estimates:
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
        estimates: the estimates so far; see ``Estimates.blank``. Where ``noise`` is 0 (not known),
            every deviation is a change.
        window: what was measured.

    >>> estimates, before, unlimited = Estimates.blank((1,)), np.zeros(1), np.array([np.inf])
    >>> estimates = estimates.with_noise(np.ones(1))
    >>> for usage in np.array([[100.0], [300.0], [320.0], [290.0], [305.0]]):
    ...     estimates = learn(estimates, Window(before, usage, unlimited, np.array([np.nan])))
    ...     before = usage
    ...     print(round(float(estimates.demand[0]), 1))
    100.0
    300.0
    310.0
    303.3
    303.8
    """
    distrust, seen = discount_claims(estimates, window)
    reading = read(estimates, window, seen)
    level, near = reading.level, reading.near
    changes, sums = find_changes(estimates, window, reading)
    base, windows = new_level(window, reading, changes, sums)
    demand, doubt = asked_for(base, estimates, window, reading, changes)
    # Of a level of few windows more noise is as likely as a change. At a limit the largest
    # deviations are hidden: without the others noise would seem too small.
    in_sight = sums.growing(estimates) & (estimates.windows >= MOST_WINDOWS) & ~near
    settled = ~(changes.any() | in_sight)
    noise = learned_noise(estimates, window, reading, settled)
    last = np.where(reading.taken_back, level.base, reading.last)
    root = np.sqrt(base)
    per_root = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0.0)
    after = Estimates(
        demand=demand,
        noise=noise,
        last_deviation=to_half((reading.shown - base) * per_root),
        earlier_deviation=to_half((last - base) * per_root),
        **sums.without(changes)._asdict(),
        windows=windows,
        doubt=doubt,
        old_demand=np.where(doubt > 0, level.base, 0.0),
        old_windows=np.where(doubt > 0, level.windows, 0),
        distrust=distrust,
    )
    if reading.missed.any():
        fall = np.where(reading.missed, _SEEN_ONCE, estimates.fall)
        after = after.where(~reading.missed, replace(estimates, fall=fall))
    if window.outdated is None:
        return after
    # The limit that was to show how much a suspected broker wants was not in force yet.
    waits = estimates.suspected & near & window.outdated
    return estimates.where(waits, after) if waits.any() else after
