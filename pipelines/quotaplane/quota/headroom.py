"""Headroom: from an estimated demand to the demand that a division law is asked for. Pure numpy."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.laws.segments import Segments
from quotaplane.model import BoolArray, FloatArray

DEFAULT_HEADROOM: Final = 0.05
DEFAULT_PROBE_SHARE: Final = 0.05

HEADROOM_BUDGET: Final = 0.01
"""Fraction of the quota that all brokers of a group that report refusals get, together, on top of
their demand. While another broker is saturated, headroom costs no more utilisation than this."""

REPORTING_SIGMAS: Final = 2.0
"""Headroom in standard deviations of a broker that reports refusals."""
_BLIND_SIGMAS: Final = 3.0
"""Headroom in standard deviations of a broker that does not."""


def with_headroom(
    demand: FloatArray,
    sigma: FloatArray,
    reports_refused: BoolArray,
    segments: Segments,
    quota: FloatArray,
    weight: FloatArray,
    *,
    headroom: float = DEFAULT_HEADROOM,
    probe_share: float = DEFAULT_PROBE_SHARE,
) -> FloatArray:
    """The demand to ask a law for: the estimate plus headroom, and a little for idle brokers.

    - A broker that does not report refusals gets ``headroom`` on top of its demand, or three
      standard deviations of its noise if that is more: at its limit it would look saturated, and
      the limit would flap. While idle it gets at least ``probe_share`` of its even share, by
      weight: with a limit of 0 it could never show demand. When it wakes up it uses that share, is
      seen as saturated, and has its fair share in the next round.
    - A broker that reports refusals shows its demand whatever its limit is. It gets two standard
      deviations of its noise, or what an idle broker gets if that is more; but all such brokers of
      a group together get at most ``HEADROOM_BUDGET`` of the quota.

    Args:
        demand: (n,) of one dimension.
        sigma: (n,) the standard deviation of the usage from window to window.
        reports_refused: (n,) the broker reports what it refused.
        segments: the g groups.
        quota: (g,) inf = unlimited, then an idle broker needs nothing. In a tree the sum of the
            even shares of the group's brokers: a quota above is there for all groups together.
        weight: (n,) above 0.
        headroom: fraction of the demand, 0.05 = 5 %.
        probe_share: fraction of the even share.

    >>> zeros, segments, quota = np.zeros(2), Segments(np.array([0, 2])), np.array([100.0])
    >>> with_headroom(np.array([90.0, 0.0]), zeros, zeros > 0, segments, quota, np.ones(2))
    array([94.5,  2.5])
    >>> with_headroom(np.array([90.0, 0.0]), zeros, zeros == 0, segments, quota, np.ones(2))
    array([90.,  1.])
    """
    weights = segments.total(weight)
    limited = np.isfinite(quota) & (weights > 0)
    unit = np.divide(probe_share * quota, weights, out=np.zeros(segments.groups), where=limited)
    probe: FloatArray = weight * segments.spread(unit)
    blind: FloatArray = np.maximum(demand * (1.0 + headroom), demand + _BLIND_SIGMAS * sigma)
    blind = np.maximum(blind, probe)
    if not reports_refused.any():
        return blind
    extra = np.where(
        reports_refused & np.isfinite(demand),
        np.maximum(REPORTING_SIGMAS * sigma, probe - demand),
        0.0,
    )
    extra = np.maximum(extra, 0.0)
    needed, part = segments.total(extra), np.ones(segments.groups)
    np.divide(HEADROOM_BUDGET * quota, needed, out=part, where=np.isfinite(quota) & (needed > 0))
    reporting = demand + extra * segments.spread(np.minimum(part, 1.0))
    asked: FloatArray = np.where(reports_refused, reporting, blind)
    return asked
