"""Claims: refusals that a broker reports, and how far it is believed.

A broker that reports refusals claims more than it uses. It is believed, whatever the amount,
because a fair law gives it no more than its fair share. If it is given room and leaves it unused,
the claim is refuted; in part, if it uses more than half. If it uses the room, an earlier refutation
is forgiven; up to one and a half if it uses more than its limit, because a throttle law that looks
further back than a window holds it back for that afterwards. After two refutations it is believed
to want at most half more than it uses, after three a quarter; each window without one forgives a
32nd. So false claims yield a fair share for a few windows, and a quarter of the broker's own usage
afterwards.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.groups.standing import AT_LIMIT
from quotaplane.model import FloatArray, IntArray
from quotaplane.quota.estimate.demand_estimates import Estimates
from quotaplane.quota.estimate.window import Window

_SIGMAS: Final = 2.0
"""Standard deviations of usage up to which a difference is chance."""
_NOISE_PART: Final = 0.3
"""Most of a usage that counts as chance."""

_REFUTATION: Final = 32
"""One refuted claim, in units of distrust."""
_REFUTING_PART: Final = 0.5
"""A claim is refuted if the broker leaves this fraction of what it was given unused, and in part if
it leaves less. Usage that exceeds the limit by this fraction forgives one refutation."""
_MOST_FORGIVEN: Final = 48
"""Most distrust that one window forgives: a broker must not buy trust by exceeding its limit."""
_MOST_DISTRUST: Final = 127
_CONFIRMING_RISE: Final = 0.05
"""A claim is confirmed if the usage rises by more than this fraction, and than by chance."""
_BELIEVED_MULTIPLE: Final = np.array([np.nan, np.nan, 1.5, 1.25])
"""Index: refuted claims. The believed demand is at most this multiple of the usage; with fewer than
two refuted claims, anything is believed."""


def discount_claims(estimates: Estimates, window: Window) -> tuple[IntArray, FloatArray]:
    """The distrust after a window, and what was used and refused in it, as far as it is believed.

    ``estimates``: the estimates before the window.
    """
    usage, limit, distrust = window.usage, window.limit, estimates.distrust
    seen = usage + np.where(np.isnan(window.throttled), 0.0, window.throttled)
    claims = window.throttled > 0.0  # NaN compares false
    if not claims.any() and not distrust.any():
        return distrust, seen
    # Usage from here on shows that the broker uses what it was given.
    expected = AT_LIMIT * np.minimum(estimates.level, limit)
    expected -= _by_chance(estimates.noise, expected)
    claimed = distrust % 2 == 1
    confirmed = claimed & (usage >= expected)
    risen = (1.0 + _CONFIRMING_RISE) * window.used_before
    confirmed &= usage > risen + _by_chance(estimates.noise, window.used_before)
    refuted = claimed & (usage < expected)
    # A shortfall as a fraction of what was expected, else an excess as a fraction of the limit.
    difference = np.where(refuted, expected - usage, usage - limit)
    whole = np.where(refuted, expected, limit)
    with np.errstate(over="ignore"):
        counts = claimed & (difference > 0.0) & (whole > 0.0)
        part = np.divide(difference, whole, out=np.zeros_like(difference), where=counts)
        weight = np.minimum(np.rint(part / _REFUTING_PART * _REFUTATION), _MOST_FORGIVEN)
    forgiven = np.maximum(weight, np.where(confirmed, _REFUTATION, 1))
    change = np.where(refuted, np.minimum(weight, _REFUTATION), -forgiven).astype(np.int64)
    distrust = np.clip(distrust // 2 + change, 0, _MOST_DISTRUST)
    believed = usage * _BELIEVED_MULTIPLE[distrust // _REFUTATION]
    believed = np.where(distrust < 2 * _REFUTATION, np.inf, believed)
    return 2 * distrust + claims, np.where(claims, np.minimum(seen, believed), seen)


def _by_chance(noise: FloatArray, usage: FloatArray) -> FloatArray:
    """How much a usage may differ by chance, per second."""
    most: FloatArray = np.minimum(_SIGMAS * noise * np.sqrt(usage), _NOISE_PART * usage)
    return most
