"""A report window: the measurements of reports, and what the estimator makes of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from quotaplane.arrays import taken, to_single
from quotaplane.model import DIMENSIONS, BoolArray, FloatArray, IntArray

MOST_WINDOWS: Final = 6
"""Windows that a level is the mean of, unless they are short. More were no better, and slower."""

_OBSERVED_LEVEL_MS: Final = 20_000.0
"""Observed windows of so much time together make a level."""
_MOST_OBSERVED: Final = 20
"""The same in windows, at most."""

_LEAST_RATE: Final = 1e-6
"""Usage below this, per second, is no usage: one message in eleven days."""
_FAR_ABOVE: Final = 1.25
"""Multiple of a limit that bursts do not reach."""


@dataclass(frozen=True)
class Measurements:
    """The measurements of m report entries; rates are per second."""

    usage: FloatArray
    """(d, m); NaN = unchanged since the report before."""
    throttled: FloatArray
    """(d, m) refused or delayed; NaN = not reported."""
    event_size: FloatArray
    """(d, m) see ``noise.counting_noise``."""
    window_ms: FloatArray
    """(m,) the time over which usage was measured."""
    observed: BoolArray
    """(m,) the report is the enforcer's."""
    limit: FloatArray
    """(d, m) the lowest limit that may have been in force in the window; inf = none."""
    newest_limit: FloatArray
    """(d, m) issued last."""
    may_have_changed: BoolArray
    """(m,) ``newest_limit`` may have come into force within the window: nothing says when."""

    def take(self, chosen: BoolArray | slice) -> Measurements:
        """The measurements of the ``chosen`` (m,) entries."""
        return taken(self, chosen)


@dataclass(frozen=True)
class Window:
    """The measurements of one report window, per second; arrays of one shape."""

    used_before: FloatArray
    """Usage in the window before."""
    usage: FloatArray
    """Usage in this window, never NaN."""
    limit: FloatArray
    """The limit in force; inf = none."""
    throttled: FloatArray
    """Refused or delayed; NaN = not reported."""
    outdated: BoolArray | None = None
    """A higher limit than ``limit`` was issued since; None: nowhere."""
    small_limit: FloatArray | None = None
    """Limits up to this are small beside an even share of the quota; None: none is."""
    unchanged: BoolArray | None = None
    """The usage was not measured: it is about that of the window before; None: nowhere."""
    most_windows: IntArray | None = None
    """Most windows that a level is the mean of, alike in all dimensions; more than usual: they are
    short. None: ``MOST_WINDOWS``."""
    in_batches: BoolArray | None = None
    """The window is so short that it may have missed a whole batch; None: nowhere."""

    @property
    def short(self) -> BoolArray:
        """Windows so short that a level is the mean of more of them than usual."""
        if self.most_windows is None:
            return np.zeros(1, bool)
        short: BoolArray = self.most_windows > MOST_WINDOWS
        return short


def window_of(
    measured: Measurements,
    used_before: FloatArray,
    small_limit: FloatArray,
    dimensions: tuple[int, ...],
) -> Window:
    """The window of m measurements, one for each of m leases.

    Args:
        measured: the measurements.
        used_before: (d, m) usage in the window before.
        small_limit: (d, m) see ``Window``.
        dimensions: the d dimensions, as indexes in ``model.DIMENSIONS``.
    """
    unchanged, usage = np.isnan(measured.usage), measured.usage
    usage = to_single(np.where(unchanged, used_before, usage) if unchanged.any() else usage)
    usage = np.where(usage < _LEAST_RATE, 0.0, usage)
    limit = _as_usage_shows(measured, usage)
    most_windows = in_batches = None
    if measured.observed.any():
        most_windows = _most_windows(measured)
        # Brokers dispatch a second's worth at once under a rate. Only the enforcer's windows are so
        # short that they may miss one.
        dispatch = [DIMENSIONS[dimension].startswith("dispatch") for dimension in dimensions]
        in_batches = np.array(dispatch)[:, None] & measured.observed
    return Window(
        used_before=used_before,
        usage=usage,
        limit=limit,
        throttled=measured.throttled,
        outdated=limit < measured.newest_limit,
        small_limit=small_limit,
        unchanged=unchanged,
        most_windows=most_windows,
        in_batches=in_batches,
    )


def _as_usage_shows(measured: Measurements, usage: FloatArray) -> FloatArray:
    """(d, m) the limit in the window, where usage says more about it than the times do.

    Usage far above the lower one of two limits shows that the newer one was in force. But if it was
    for a part of the window only, a broker that is held back shows something between the two: then
    the usage itself counts as the limit, which says that the demand is at least as high. A broker
    that reports which limit it applied needs no such guess.
    """
    limit, newest = measured.limit, measured.newest_limit
    far_above = usage > _FAR_ABOVE * limit
    if not far_above.any():
        return limit
    in_part = far_above & measured.may_have_changed & np.isnan(measured.throttled)
    in_part &= (usage < newest) & np.isfinite(newest)
    return np.where(in_part, usage, np.where(far_above, np.maximum(limit, newest), limit))


def _most_windows(measured: Measurements) -> IntArray:
    """(m,) most windows that a level is the mean of.

    The enforcer's windows are short, so noise is large beside what they count: a level that
    followed it would move everybody's limits, and each write of a rate lets a burst through.
    """
    window_ms = np.maximum(measured.window_ms, 1.0)
    windows = np.clip(_OBSERVED_LEVEL_MS / window_ms, MOST_WINDOWS, _MOST_OBSERVED)
    return np.where(measured.observed, windows, MOST_WINDOWS).astype(np.int64)
