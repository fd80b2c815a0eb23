"""Changes of a demand: how one window compares with the level that earlier ones showed.

The level is the mean of the last windows. ``demand.learn`` has the rules.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.quota.estimate.demand_estimates import Doubt, Estimates
from quotaplane.quota.estimate.reading import JUMP, Reading, hazard
from quotaplane.quota.estimate.window import MOST_WINDOWS, Window

_SLACK: Final = 0.5
"""Standard deviations by which a deviation counts less in a sum (CUSUM)."""
_ALARM: Final = 4.5
"""A sum of deviations to one side above this is a change."""
_LARGE_SUM: Final = 2.0
"""A sum of deviations above this may become a change. With 3 changes are found a window later."""
_ALARM_AT_LIMIT: Final = 3.0
"""The same of touches of a limit, as they may hide more; not in short windows, of which there are
many, so that false alarms would come often."""
_FALL_OF_BATCH: Final = 3.0
"""Most standard deviations that a window which may have missed a batch is below the level, unless a
fall has begun."""
_MOST_DEVIATION: Final = 8.0
"""Most standard deviations that one window adds to a sum."""
_MOST_RUN: Final = 15
"""Most windows of a sum that are counted: half a byte."""
SUM_STEPS: Final = 16
"""A sum is kept in 16ths: up to 15.9 in a byte."""

_HIDDEN: Final = float(hazard(np.zeros(1))[0])
"""Standard deviations by which the values above a limit at the level exceed it, on average."""
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


class DemandChanges(NamedTuple):
    """How a window changes the level, (n,) each; at most one holds of a row."""

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

    def hidden(self) -> BoolArray:
        """The limit hides how much the broker wants."""
        return self.saturated | self.more | self.some_more

    def any(self) -> BoolArray:
        """The level is no longer what it was."""
        found: BoolArray = self.hidden() | self.jumped | self.rising | self.falling
        return found


class Sums(NamedTuple):
    """The deviations that add up; see ``demand_estimates.Estimates``."""

    rise: FloatArray
    rise_windows: IntArray
    fall: FloatArray
    fall_windows: IntArray

    def without(self, changes: DemandChanges) -> Sums:
        """The sums, which begin anew where they were a change."""
        over = changes.rising | changes.falling | changes.some_more
        return Sums(*(np.where(over, 0, each) for each in self)) if over.any() else self

    def growing(self, before: Estimates) -> BoolArray:
        """The window adds to a sum that is large: a change may be in sight."""
        rise = (self.rise > _LARGE_SUM) & (self.rise > before.rise)
        growing: BoolArray = rise | ((self.fall > _LARGE_SUM) & (self.fall > before.fall))
        return growing


def _deviations(difference: FloatArray, spread: FloatArray, near: BoolArray) -> FloatArray:
    """In standard deviations, at most ``_MOST_DEVIATION``; where these are 0, all or nothing.

    ``near``: the window is at the limit. At a limit that is the level itself, a deviation is 0.8 on
    average (``reading``), also where noise is so small that it is 0: usage that a limit holds
    constant looks like that.

    >>> difference, spread = np.array([0.0, 0.0, 8.0, 5.0]), np.array([0.0, 0.0, 0.0, 2.0])
    >>> _deviations(difference, spread, near=np.array([False, True, True, True])).round(1)
    array([0. , 0.8, 8. , 2.5])
    """
    z = np.sign(difference) * _MOST_DEVIATION
    z[near & (difference == 0.0)] = _HIDDEN
    np.divide(difference, spread, out=z, where=spread > 0.0)
    return np.clip(z, -_MOST_DEVIATION, _MOST_DEVIATION)


def find_changes(
    estimates: Estimates, window: Window, reading: Reading
) -> tuple[DemandChanges, Sums]:
    """Compare a window with the level: the changes, and the sums with the window's deviation."""
    level, near, suspected = reading.level, reading.near, estimates.suspected
    z = _deviations(reading.shown - level.base, level.spread, near)
    again = estimates.doubt >= Doubt.MORE
    # It began to want more in the last window, maybe only at the end of that.
    woken = (estimates.doubt == Doubt.JUMPED) & (estimates.demand > estimates.old_demand)
    saturated = near & (again | woken | (z > _CERTAIN) | (estimates.windows == 0))
    evident = suspected | (z > _SUSPECT)
    if window.small_limit is not None:
        # Noise of so few requests is large, so it would take long to see more behind it.
        evident |= window.limit <= window.small_limit
    more = near & ~saturated & evident
    if window.in_batches is not None:
        once = window.in_batches & (estimates.fall < _FALL_OF_BATCH - _SLACK)
        z = np.where(once, np.maximum(z, -_FALL_OF_BATCH), z)
    jumped = ~near & ((np.abs(z) > JUMP) | _nearer_to_limit(estimates, window, suspected))
    reset = suspected | saturated | more | jumped
    rise, rise_windows = _summed(estimates.rise, estimates.rise_windows, z, reset)
    fall, fall_windows = _summed(estimates.fall, estimates.fall_windows, -z, reset)
    over = rise > np.where(near & ~window.short, _ALARM_AT_LIMIT, _ALARM)
    falling = fall > _ALARM
    changes = DemandChanges(saturated, more, over & near, jumped, over & ~near, falling)
    return changes, Sums(rise, rise_windows, fall, fall_windows)


def _nearer_to_limit(estimates: Estimates, window: Window, suspected: BoolArray) -> BoolArray:
    """Suspected brokers whose usage is nearer to their limit than to what they used before.

    Noise may be so large that the old level is not out of the question.
    """
    if not suspected.any():
        return suspected
    nearer: BoolArray = suspected & (
        window.limit - window.usage < window.usage - estimates.old_demand
    )
    return nearer


def _summed(
    total: FloatArray, windows: IntArray, z: FloatArray, reset: BoolArray
) -> tuple[FloatArray, IntArray]:
    """A sum of deviations to one side, in ``SUM_STEPS``, and of how many windows it is."""
    rounded = np.rint((total + z - _SLACK) * SUM_STEPS) / SUM_STEPS
    total = np.where(reset, 0.0, np.maximum(rounded, 0.0))
    return total, np.where(total > 0.0, np.minimum(windows + 1, _MOST_RUN), 0)


def new_level(
    window: Window, reading: Reading, changes: DemandChanges, sums: Sums
) -> tuple[FloatArray, IntArray]:
    """The level after the window, whatever the limit hides, and of how many windows it is."""
    level, shown = reading.level, reading.shown
    most = MOST_WINDOWS if window.most_windows is None else window.most_windows
    windows = np.minimum(level.windows + 1, most)
    new = level.base + (shown - level.base) / windows
    if changes.rising.any() or changes.falling.any():
        rise = level.base + level.spread * (sums.rise / np.maximum(sums.rise_windows, 1) + _SLACK)
        fall = level.base - level.spread * (sums.fall / np.maximum(sums.fall_windows, 1) + _SLACK)
        new = np.where(changes.rising, np.maximum(rise, shown), new)
        new = np.where(changes.falling, np.maximum(fall, 0.0), new)
        windows = np.where(changes.rising, np.minimum(sums.rise_windows, MOST_WINDOWS), windows)
        windows = np.where(changes.falling, np.minimum(sums.fall_windows, MOST_WINDOWS), windows)
    hidden = changes.hidden()
    new = np.where(changes.jumped, shown, np.where(hidden, level.base, new))
    return new, np.where(changes.jumped, 1, np.where(hidden, level.windows, windows))


def asked_for(
    base: FloatArray, estimates: Estimates, window: Window, reading: Reading, changes: DemandChanges
) -> tuple[FloatArray, IntArray]:
    """The demand, and its ``Doubt``; ``base``: the level after the window."""
    level, suspected = reading.level, estimates.suspected
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
