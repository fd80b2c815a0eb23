"""Demand estimation: the rate that each broker would use if nothing limited it.

Pure numpy. Rates are per second, arrays of any one shape unless said otherwise.

``observe`` derives the demand from one report window: exactly, if the broker reports refusals; else
the usage, or infinity if the usage is at the limit. ``learn`` updates an estimate from window to
window: it filters counting noise, follows a real change at once, and discounts brokers that claim
refusals and then leave what they were given unused. The next step is ``headroom.with_headroom``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.quota.headroom import REPORTING_SIGMAS

DEFAULT_SATURATED_FROM: Final = 0.95

_BLOCK: Final = 16384
"""Columns per block: for 4 dimensions twice as fast as all at once (measured), as a block's
intermediate arrays stay in the CPU's cache."""

_GAIN: Final = 0.25
"""Fraction of a deviation that the demand follows if it is noise."""
_RUN_GAIN: Final = 0.75
"""The same for the second of two deviations to one side."""
_JUMP_SIGMAS: Final = 3.0
"""A deviation of more standard deviations than this is a change, not noise."""
_RUN_SIGMAS: Final = 2.5
"""So are two deviations in a row to the same side that add up to more than this."""

_NOISE_GAIN: Final = 0.1
"""Fraction by which the standard deviation follows a sample of the noise."""
_NOISE_GAIN_JUMPED: Final = 0.3
"""The same in a window in which the demand changed."""
_NOISE_PART: Final = 0.3
"""Most of a demand that is taken for noise after a change."""
_SMALLER_OF_TWO: Final = 0.47
"""The mean of the smaller one of two normal deviations, in standard deviations."""

_REFUTATION: Final = 32
"""One refuted claim, in units of distrust."""
_REFUTING_PART: Final = 0.5
"""A claim is refuted if the broker leaves this fraction of what it was given unused, and in part if
it leaves less. Usage that exceeds the limit by this fraction forgives one refutation."""
_MOST_FORGIVEN: Final = 48
"""Most distrust that one window forgives: a broker must not buy trust by exceeding its limit."""
_MOST_DISTRUST: Final = 127
_CONFIRMING_RISE: Final = 0.05
"""A claim is confirmed if the usage rises by more than this fraction."""
_BELIEVED_MULTIPLE: Final = np.array([np.nan, np.nan, 1.5, 1.25])
"""Index: refuted claims. The believed demand is at most this multiple of the usage; with fewer than
two refuted claims, anything is believed."""


@dataclass(frozen=True)
class Track:
    """Demand estimates, carried from one window to the next; all arrays have one shape."""

    demand: FloatArray
    """Estimate, without noise; inf = saturated: its amount is not known."""
    noise: FloatArray
    """Standard deviation divided by the square root of the demand. For Poisson counts this does not
    depend on the demand: 1/sqrt(w) over a window of w seconds."""
    last_deviation: FloatArray
    """Deviation of the last window from the demand, in the unit of ``noise``."""
    distrust: IntArray
    """0 to 255: twice the recently refuted claims in 32nds (at most 127), plus 1 if the demand
    rests on a claim."""

    @staticmethod
    def blank(shape: tuple[int, ...]) -> Track:
        """Estimates before the first window: no demand, no noise, no distrust."""
        zeros = np.zeros(shape)
        return Track(zeros, zeros, zeros, np.zeros(shape, np.int64))

    def take(self, chosen: slice) -> Track:
        """The estimates that ``chosen`` selects along the last axis."""
        return Track(
            demand=self.demand[..., chosen],
            noise=self.noise[..., chosen],
            last_deviation=self.last_deviation[..., chosen],
            distrust=self.distrust[..., chosen],
        )


@dataclass(frozen=True)
class _Window:
    """The measurements of one window; see ``learn`` for the fields."""

    used_before: FloatArray
    usage: FloatArray
    limit: FloatArray
    throttled: FloatArray

    def take(self, chosen: slice) -> _Window:
        """The measurements that ``chosen`` selects along the last axis."""
        return _Window(
            used_before=self.used_before[..., chosen],
            usage=self.usage[..., chosen],
            limit=self.limit[..., chosen],
            throttled=self.throttled[..., chosen],
        )


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


def learn(
    track: Track,
    used_before: FloatArray,
    usage: FloatArray,
    limit: FloatArray,
    throttled: FloatArray,
    *,
    saturated_from: float = DEFAULT_SATURATED_FROM,
) -> Track:
    """Update demand estimates with the observation of one window.

    *Noise.* Deviations that change sides from window to window are noise; the demand follows them
    by a quarter. A deviation of more than 3 standard deviations, or two to the same side that add
    up to 2.5, are a change; the demand follows at once. Until noise was seen it follows everything.

    *Claims.* A broker that reports refusals claims more than it uses. It is believed, whatever the
    amount, because a fair law gives it no more than its fair share. If it is given room and leaves
    it unused, the claim is refuted; in part, if it uses more than half. If it uses the room, an
    earlier refutation is forgiven; up to one and a half if it uses more than its limit, because a
    throttle law that looks further back than a window holds it back for that afterwards. After two
    refutations it is believed to want at most half more than it uses, after three a quarter; each
    window without one forgives a 32nd. So false claims yield a fair share for a few windows, and a
    quarter of the broker's own usage afterwards.

    Args:
        track: the estimates so far; see ``Track.blank``.
        used_before: usage in the window before.
        usage: in this window, never NaN.
        limit: in force; inf = none.
        throttled: refused or delayed; NaN = unknown.
        saturated_from: see ``observe``.

    >>> track, before, unlimited = Track.blank((1,)), np.zeros(1), np.array([np.inf])
    >>> for usage in np.array([[100.0], [300.0], [320.0], [290.0], [305.0]]):
    ...     track = learn(track, before, usage, unlimited, np.array([np.nan]))
    ...     before = usage
    ...     print(round(float(track.demand[0]), 1))
    100.0
    300.0
    320.0
    290.0
    293.8
    """
    window = _Window(used_before, usage, limit, throttled)
    blocks = []
    for begin in range(0, usage.shape[-1], _BLOCK):
        chosen = slice(begin, begin + _BLOCK)
        blocks.append(_learn_block(track.take(chosen), window.take(chosen), saturated_from))
    if len(blocks) < 2:
        return blocks[0] if blocks else track
    return Track(
        demand=np.concatenate([block.demand for block in blocks], axis=-1),
        noise=np.concatenate([block.noise for block in blocks], axis=-1),
        last_deviation=np.concatenate([block.last_deviation for block in blocks], axis=-1),
        distrust=np.concatenate([block.distrust for block in blocks], axis=-1),
    )


def _learn_block(track: Track, window: _Window, saturated_from: float) -> Track:
    """``learn`` for one block of columns."""
    usage, limit = window.usage, window.limit
    was_saturated = np.isinf(track.demand)
    before = np.where(was_saturated, window.used_before, track.demand)
    root = np.sqrt(before)
    sigma, last = track.noise * root, track.last_deviation * root

    seen = observe(usage, limit, window.throttled, saturated_from=saturated_from)
    # Usage is at the limit, but also at the known demand: the broker is satisfied, not saturated.
    had_demand = np.isinf(seen) & ~was_saturated & (limit >= before) & (before > 0.0)
    seen = np.where(had_demand & (usage <= before + REPORTING_SIGMAS * sigma), usage, seen)
    distrust, seen = _discount_claims(track, window, before, sigma, seen, saturated_from)

    saturated = np.isinf(seen)
    shown = np.where(saturated, usage, seen)
    deviation = np.where(before > 0.0, shown - before, 0.0)
    sigma, jumped = _update_sigma(window, before, shown, deviation, last, sigma)

    is_run = (deviation * last > 0.0) & (np.abs(deviation + last) > _RUN_SIGMAS * sigma)
    followed = before + np.where(is_run, _RUN_GAIN, _GAIN) * deviation
    demand = np.where(saturated, np.inf, np.where(jumped, seen, followed))
    noise = np.divide(sigma, root, out=track.noise.copy(), where=root > 0.0)
    root = np.sqrt(np.where(saturated, usage, demand))
    last = np.divide(deviation, root, out=np.zeros_like(deviation), where=root > 0.0)
    return Track(demand, to_half(noise), to_half(last), distrust)


def _update_sigma(
    window: _Window,
    before: FloatArray,
    shown: FloatArray,
    deviation: FloatArray,
    last: FloatArray,
    sigma: FloatArray,
) -> tuple[FloatArray, BoolArray]:
    """The new standard deviation of the usage, and where the demand jumped.

    ``before`` and ``shown``: the demand until now and that of the window; ``deviation`` and
    ``last``: of this window and of the one before; ``sigma``: the standard deviation until now.
    """
    size = np.abs(deviation)
    jumped = (size > _JUMP_SIGMAS * sigma) | (before == 0.0)
    sample = np.minimum(size, np.abs(last)) / _SMALLER_OF_TWO
    # Load that comes and goes in jumps is not noise: after a jump the sample is bounded.
    most = np.where(jumped, np.minimum(before, shown) * _NOISE_PART, np.inf)
    sample = np.minimum(sample, np.maximum(most, _JUMP_SIGMAS * sigma))
    # Claims are not noise either: the noise of what was really used is not larger than that.
    sample = np.minimum(sample, np.maximum(window.usage, window.used_before))
    rate = np.where(jumped, _NOISE_GAIN_JUMPED, _NOISE_GAIN)
    is_sample = (deviation * last < 0.0) | (size <= sigma)
    return np.where(is_sample, sigma + rate * (sample - sigma), sigma), jumped


def _discount_claims(
    track: Track,
    window: _Window,
    before: FloatArray,
    sigma: FloatArray,
    seen: FloatArray,
    saturated_from: float,
) -> tuple[IntArray, FloatArray]:
    """The new distrust, and the observed demand ``seen`` as far as it is believed.

    ``before``: the demand until now; ``sigma``: its standard deviation.
    """
    usage, limit = window.usage, window.limit
    claims = window.throttled > 0.0  # NaN compares false
    if not claims.any() and not track.distrust.any():
        return track.distrust, seen
    # Usage from here on shows that the broker uses what it was given.
    expected = saturated_from * np.minimum(before, limit)
    expected -= np.minimum(REPORTING_SIGMAS * sigma, _NOISE_PART * expected)
    claimed = track.distrust % 2 == 1
    confirmed = claimed & (usage >= expected)
    confirmed &= usage > (1.0 + _CONFIRMING_RISE) * window.used_before
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
    distrust = np.clip(track.distrust // 2 + change, 0, _MOST_DISTRUST)
    believed = usage * _BELIEVED_MULTIPLE[distrust // _REFUTATION]
    believed = np.where(distrust < 2 * _REFUTATION, np.inf, believed)
    return 2 * distrust + claims, np.where(claims, np.minimum(seen, believed), seen)


def to_half(values: FloatArray) -> FloatArray:
    """Round to float16, the precision in which the state keeps noise and deviations."""
    most = float(np.finfo(np.float16).max)
    half: FloatArray = np.clip(values, -most, most).astype(np.float16).astype(np.float64)
    return half
