"""What brokers would use if nothing limited them: an estimate from usage, limit and refusals.

Pure numpy; every function takes arrays of any one shape, rates per second.

A saturated broker's demand is only known to be at least what it used. It is taken to be infinite,
so that a fair law gives it its fair share at once, instead of creeping up from whatever it was
stuck at; one round later it either uses that share or is seen satisfied below it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.model import FloatArray, IntArray

DEFAULT_HEADROOM: Final = 0.1
DEFAULT_SATURATED_FROM: Final = 0.95
DEFAULT_PROBE_SHARE: Final = 0.05


def estimate(
    usage: FloatArray,
    limit: FloatArray,
    throttled: FloatArray | None = None,
    *,
    headroom: float = DEFAULT_HEADROOM,
    saturated_from: float = DEFAULT_SATURATED_FROM,
) -> FloatArray:
    """Estimate demands.

    - The broker reported what it refused or delayed: demand is exactly that plus what it used,
      plus headroom; also when it sits at its limit with nothing refused.
    - It did not, and used less than ``saturated_from`` of its limit: what it used plus headroom.
    - It did not, and used that much: saturated, infinite. A limit of 0 always is (nothing can be
      told from it); a broker that was never limited never is.

    ``headroom`` lets a growing demand show before it is throttled. Below
    ``1 / saturated_from - 1`` (0.053 for 0.95) a broker that is given exactly its estimate would
    look saturated ever after and its limit would flap: ``steady`` tells.

    Args:
        usage: measured, never NaN (the caller has filled in what stock Pulsar leaves out).
        limit: in force while it was measured; inf = never limited.
        throttled: refused or delayed; NaN = unknown; None = unknown everywhere.
        headroom: part of the demand, 0.1 = 10 %.
        saturated_from: part of the limit.

    Returns:
        The demand, same shape; inf = saturated.

    >>> import numpy as np
    >>> estimate(np.array([10.0, 20.0, 0.0]), np.array([20.0, 20.0, np.inf]))
    array([11., inf,  0.])
    >>> estimate(np.array([20.0, 20.0]), np.array([20.0, 20.0]), np.array([0.0, 30.0]))
    array([22., 55.])
    """
    saturated = np.isfinite(limit) & (usage >= saturated_from * limit)
    if throttled is None:
        return np.where(saturated, np.inf, usage * (1.0 + headroom))
    known = ~np.isnan(throttled)
    wanted = (usage + np.where(known, throttled, 0.0)) * (1.0 + headroom)
    return np.where(saturated & ~known, np.inf, wanted)


def steady(headroom: float, saturated_from: float) -> bool:
    """Whether a broker that is given exactly its estimated demand still looks satisfied.

    >>> steady(0.1, 0.95), steady(0.0, 0.95)
    (True, False)
    """
    return (1.0 + headroom) * saturated_from > 1.0


def probe(
    demand: FloatArray,
    starts: IntArray,
    quota: FloatArray,
    weight: FloatArray,
    probe_share: float = DEFAULT_PROBE_SHARE,
) -> FloatArray:
    """Raise demands to a small part of each broker's even share, so that an idle one can wake.

    With a limit of 0 a broker could never show that it wants something. What it is left with this
    way (5 % of its even share by default) is used up the moment it wakes; then it is seen
    saturated and has its fair share in the next round.

    Args:
        demand: (n,) of one dimension; rows of group i are ``starts[i]:starts[i + 1]``.
        starts: (g + 1,).
        quota: (g,); inf = unlimited, then the demand is left as it is.
        weight: (n,) above 0.
        probe_share: part of the even share, by weight.

    >>> import numpy as np
    >>> probe(np.array([90.0, 0.0]), np.array([0, 2]), np.array([100.0]), np.ones(2), 0.05)
    array([90. ,  2.5])
    """
    counts = np.diff(starts)
    of_row = np.repeat(np.arange(len(counts)), counts)
    weights = np.bincount(of_row, weights=weight, minlength=len(counts))
    limited = np.isfinite(quota) & (weights > 0)
    unit = np.divide(probe_share * quota, weights, out=np.zeros(len(counts)), where=limited)
    least: FloatArray = weight * unit.take(of_row)
    return np.maximum(demand, least)
