"""What brokers would use if nothing limited them: learned from usage, limits and refusals.

Pure numpy. Rates are per second, arrays of any one shape unless said otherwise.

What one window shows is ``observe``'s: exactly what was wanted where a broker tells what it had
to refuse, else what was used or, at its limit, only that it is more. ``learn`` follows that from
window to window: it takes the noise of counting out, follows a real change at once, and stops
believing brokers whose claims turn out to be none. ``with_headroom`` makes of it what a law is
asked for.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from quotaplane.laws.segments import Segments
from quotaplane.model import BoolArray, FloatArray, IntArray

DEFAULT_HEADROOM: Final = 0.05
DEFAULT_SATURATED_FROM: Final = 0.95
DEFAULT_PROBE_SHARE: Final = 0.05

HEADROOM_BUDGET: Final = 0.01
"""What brokers that tell what they refused get on top of their demand, all together, as a part of
the quota: while somebody is saturated this is all that headroom costs in utilisation."""

_GAIN: Final = 0.25
_RUN_GAIN: Final = 0.75
_JUMP_SIGMAS: Final = 3.0
_RUN_SIGMAS: Final = 2.5
"""Two deviations in a row to the same side that add up to so much are a change, not noise."""
_BLOCK: Final = 16384
"""Measured for 4 dimensions: twice as fast as all at once."""

_NOISE_PART: Final = 0.3
_NOISE_GAIN: Final = 0.1
_NOISE_GAIN_JUMPED: Final = 0.3
_SMALLER_OF_TWO: Final = 0.47
"""The mean of the smaller one of two normal deviations, in standard deviations."""

_REFUTED: Final = 32
_REFUTING_PART: Final = 0.5
"""Who leaves so much of its room unused is refuted; who leaves less, in part. As much beyond its
limit is worth a refutation that was not."""
_MOST_FORGIVEN: Final = 48
"""In a window, however far it was beyond the limit: to exceed it must not buy trust."""
_MOST_DISTRUST: Final = 127
_NEWS: Final = 0.05
_BELIEVED: Final = np.array([np.nan, np.nan, 1.5, 1.25])
"""By distrust / 32: how many times its use a broker is believed to want; at first, anything."""
_ROOM_SIGMAS: Final = 2.0
_COUNTED_SIGMAS: Final = 3.0


@dataclass(frozen=True)
class Track:
    """What is known of some demands, from one window to the next; all of one shape."""

    demand: FloatArray
    """What is wanted, without noise; inf = more than anybody knows."""
    noise: FloatArray
    """Standard deviation by the square root of the demand. Of Poisson counts this is the same
    whatever the demand is: 1/sqrt(w) over a window of w seconds."""
    last_deviation: FloatArray
    """Of the last window from the demand, in the unit of ``noise``."""
    distrust: IntArray
    """0 to 255: twice the refuted claims of late in 32nds (at most 127), plus 1 if the demand rests
    on a claim."""

    @staticmethod
    def blank(shape: tuple[int, ...]) -> Track:
        """Nothing known: no demand, no noise, no distrust."""
        nothing = np.zeros(shape)
        return Track(nothing, nothing, nothing, np.zeros(shape, np.int64))

    def at(self, chosen: slice) -> Track:
        """Those that ``chosen`` picks along the last axis."""
        return Track(
            demand=self.demand[..., chosen],
            noise=self.noise[..., chosen],
            last_deviation=self.last_deviation[..., chosen],
            distrust=self.distrust[..., chosen],
        )


def observe(
    usage: FloatArray,
    limit: FloatArray,
    throttled: FloatArray | None = None,
    *,
    saturated_from: float = DEFAULT_SATURATED_FROM,
) -> FloatArray:
    """What one window shows of the demand.

    - The broker reported what it refused or delayed: exactly that plus what it used.
    - It did not, and used less than ``saturated_from`` of its limit: what it used.
    - It did not, and used that much: saturated, infinite, so that a fair law gives it its fair
      share at once instead of creeping up from whatever it was stuck at; one window later it
      either uses that share or is seen satisfied below it. A limit of 0 always is saturated
      (nothing can be told from it); a broker that was never limited never is.

    Args:
        usage: measured, never NaN (the caller has filled in what stock Pulsar leaves out).
        limit: in force while it was measured; inf = never limited.
        throttled: refused or delayed; NaN = unknown; None = unknown everywhere.
        saturated_from: part of the limit.

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
    known = ~np.isnan(throttled)
    return np.where(known, usage + throttled, np.where(saturated, np.inf, usage))


def learn(
    track: Track,
    used_before: FloatArray,
    usage: FloatArray,
    limit: FloatArray,
    throttled: FloatArray,
    *,
    saturated_from: float = DEFAULT_SATURATED_FROM,
) -> Track:
    """Take one window's observation in.

    *Noise.* Deviations that change sides from window to window are noise, and the demand follows
    them by a quarter; one of more than 3 standard deviations, or two to the same side that add up
    to 2.5, are a change, and it follows at once. While no noise was seen it follows everything.

    *Claims.* A broker that says it refused something is believed, whatever the amount: a fair law
    gives it no more than its fair share for it. When it is then given room and does not use it,
    the claim is refuted; in part, if it uses more than half. When it uses it, an earlier refutation
    is forgiven; up to one and a half when it uses more than its limit, because a throttle law that
    looks further back than a window holds it back for that afterwards. After two that were not
    forgiven it is believed to want at most half more than it uses, after three a quarter; each
    window without one takes a 32nd back. So a lie is worth a fair share for a few windows, and a
    quarter of the liar's own use afterwards.

    Args:
        track: so far; see ``Track.blank``.
        used_before: in the window before.
        usage: in the window, never NaN.
        limit: in force; inf = none.
        throttled: NaN = unknown.
        saturated_from: see ``observe``.

    >>> known, before, unlimited = Track.blank((1,)), np.zeros(1), np.array([np.inf])
    >>> for usage in np.array([[100.0], [300.0], [320.0], [290.0], [305.0]]):
    ...     known = learn(known, before, usage, unlimited, np.array([np.nan]))
    ...     before = usage
    ...     print(round(float(known.demand[0]), 1))
    100.0
    300.0
    320.0
    290.0
    293.8
    """
    parts = []
    for begin in range(0, usage.shape[-1], _BLOCK):
        cut = slice(begin, begin + _BLOCK)
        known = track.at(cut)
        seen = (one[..., cut] for one in (used_before, usage, limit, throttled))
        parts.append(_learn_block(known, *seen, saturated_from=saturated_from))
    if len(parts) < 2:
        return parts[0] if parts else track
    return Track(
        demand=np.concatenate([part.demand for part in parts], axis=-1),
        noise=np.concatenate([part.noise for part in parts], axis=-1),
        last_deviation=np.concatenate([part.last_deviation for part in parts], axis=-1),
        distrust=np.concatenate([part.distrust for part in parts], axis=-1),
    )


def _learn_block(
    track: Track,
    used_before: FloatArray,
    usage: FloatArray,
    limit: FloatArray,
    throttled: FloatArray,
    *,
    saturated_from: float,
) -> Track:
    """``learn`` of so few that what it works on stays in the CPU's cache."""
    guessed = np.isinf(track.demand)
    before = np.where(guessed, used_before, track.demand)
    root = np.sqrt(before)
    sigma, last = track.noise * root, track.last_deviation * root

    seen = observe(usage, limit, throttled, saturated_from=saturated_from)
    # Near its limit, but at what it is known to want: it was given just that, and is satisfied.
    as_ever = np.isinf(seen) & ~guessed & (limit >= before) & (before > 0.0)
    seen = np.where(as_ever & (usage <= before + _ROOM_SIGMAS * sigma), usage, seen)
    distrust, seen = _distrusted(
        track, before, sigma, used_before, usage, limit, throttled, seen, saturated_from
    )

    saturated = np.isinf(seen)
    shown = np.where(saturated, usage, seen)
    by = np.where(before > 0.0, shown - before, 0.0)
    size = np.abs(by)
    jumped = (size > _JUMP_SIGMAS * sigma) | (before == 0.0)
    sample = np.minimum(size, np.abs(last)) / _SMALLER_OF_TWO
    # A crowd that comes and goes is not noise either: so much is taken for some at most.
    most = np.where(jumped, np.minimum(before, shown) * _NOISE_PART, np.inf)
    sample = np.minimum(sample, np.maximum(most, _JUMP_SIGMAS * sigma))
    # Nor are claims: what was really used can't have been noisier than it is large.
    sample = np.minimum(sample, np.maximum(usage, used_before))
    rate = np.where(jumped, _NOISE_GAIN_JUMPED, _NOISE_GAIN)
    tells = (by * last < 0.0) | (size <= sigma)
    sigma = np.where(tells, sigma + rate * (sample - sigma), sigma)

    runs = (by * last > 0.0) & (np.abs(by + last) > _RUN_SIGMAS * sigma)
    followed = before + np.where(runs, _RUN_GAIN, _GAIN) * by
    demand = np.where(saturated, np.inf, np.where(jumped, seen, followed))
    noise = np.divide(sigma, root, out=track.noise.copy(), where=root > 0.0)
    root = np.sqrt(np.where(saturated, usage, demand))
    deviation = np.divide(by, root, out=np.zeros_like(by), where=root > 0.0)
    return Track(demand, to_half(noise), to_half(deviation), distrust)


def _distrusted(
    track: Track,
    before: FloatArray,
    sigma: FloatArray,
    used_before: FloatArray,
    usage: FloatArray,
    limit: FloatArray,
    throttled: FloatArray,
    seen: FloatArray,
    saturated_from: float,
) -> tuple[IntArray, FloatArray]:
    """How far claims are believed from now on, and what is believed of what was seen."""
    claims = throttled > 0.0  # NaN compares false
    if not claims.any() and not track.distrust.any():
        return track.distrust, seen
    room = saturated_from * np.minimum(before, limit)
    room -= np.minimum(_ROOM_SIGMAS * sigma, _NOISE_PART * room)
    claimed = track.distrust % 2 == 1
    kept = claimed & (usage >= room) & (usage > (1.0 + _NEWS) * used_before)
    unused = claimed & (usage < room)
    by, of = np.where(unused, room - usage, usage - limit), np.where(unused, room, limit)
    with np.errstate(over="ignore"):
        part = np.divide(by, of, out=np.zeros_like(by), where=claimed & (by > 0.0) & (of > 0.0))
        weight = np.minimum(np.rint(part / _REFUTING_PART * _REFUTED), _MOST_FORGIVEN)
    forgiven = np.maximum(weight, np.where(kept, _REFUTED, 1))
    change = np.where(unused, np.minimum(weight, _REFUTED), -forgiven).astype(np.int64)
    distrust = np.clip(track.distrust // 2 + change, 0, _MOST_DISTRUST)
    believed = usage * _BELIEVED[distrust // _REFUTED]
    believed = np.where(distrust < 2 * _REFUTED, np.inf, believed)
    return 2 * distrust + claims, np.where(claims, np.minimum(seen, believed), seen)


def to_half(values: FloatArray) -> FloatArray:
    """To float16 precision, in which state keeps what need not be exact."""
    most = float(np.finfo(np.float16).max)
    half: FloatArray = np.clip(values, -most, most).astype(np.float16).astype(np.float64)
    return half


def with_headroom(
    demand: FloatArray,
    sigma: FloatArray,
    tells: BoolArray,
    rows: Segments,
    quota: FloatArray,
    weight: FloatArray,
    *,
    headroom: float = DEFAULT_HEADROOM,
    probe_share: float = DEFAULT_PROBE_SHARE,
) -> FloatArray:
    """What to ask a law for: demands with what they need to breathe, and to wake up.

    - Who does not tell what it refuses has ``headroom`` on top of its demand, or three standard
      deviations of its noise if that is more: at its limit it would look saturated and its limit
      would flap. An idle one has at least ``probe_share`` of its even share, by weight: with a
      limit of 0 it could never show that it wants something. The moment it wakes it has used that
      up, is seen saturated, and has its fair share in the next round.
    - Who tells needs neither: its demand is seen whatever its limit is. It has two standard
      deviations of its noise, or the share to wake up with if that is more, as far as all these in
      a group take no more than ``HEADROOM_BUDGET`` of the quota.

    Args:
        demand: (n,) of one dimension.
        sigma: (n,) the standard deviation of what is used from window to window.
        tells: (n,) whether the broker reports what it refused.
        rows: the g groups.
        quota: (g,); inf = unlimited, then there is nothing to wake up against. In a tree the even
            share of the group's brokers: a quota above is there for all groups together.
        weight: (n,) above 0.
        headroom: part of the demand, 0.05 = 5 %.
        probe_share: part of the even share.

    >>> nothing, rows, quota = np.zeros(2), Segments(np.array([0, 2])), np.array([100.0])
    >>> with_headroom(np.array([90.0, 0.0]), nothing, nothing > 0, rows, quota, np.ones(2))
    array([94.5,  2.5])
    >>> with_headroom(np.array([90.0, 0.0]), nothing, nothing == 0, rows, quota, np.ones(2))
    array([90.,  1.])
    """
    weights = rows.total(weight)
    limited = np.isfinite(quota) & (weights > 0)
    unit = np.divide(probe_share * quota, weights, out=np.zeros(rows.groups), where=limited)
    least: FloatArray = weight * rows.spread(unit)
    blind: FloatArray = np.maximum(demand * (1.0 + headroom), demand + _COUNTED_SIGMAS * sigma)
    blind = np.maximum(blind, least)
    if not tells.any():
        return blind
    extra = np.where(
        tells & np.isfinite(demand), np.maximum(_ROOM_SIGMAS * sigma, least - demand), 0.0
    )
    extra = np.maximum(extra, 0.0)
    needed, fits = rows.total(extra), np.ones(rows.groups)
    np.divide(HEADROOM_BUDGET * quota, needed, out=fits, where=np.isfinite(quota) & (needed > 0))
    asked: FloatArray = np.where(tells, demand + extra * rows.spread(np.minimum(fits, 1.0)), blind)
    return asked
