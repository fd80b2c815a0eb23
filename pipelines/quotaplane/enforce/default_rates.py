"""The default rate of a topic that has none of its own yet: its namespace has it."""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.enforce.least_bytes import MOST_RAISED, raised_limits
from quotaplane.enforce.subdivide import MOST
from quotaplane.model import BASIC, BoolArray, FloatArray
from quotaplane.topics.topic_layout import SIDES, Layout

_TOO_FAR: Final = 2.0
"""A rate is written again when it differs from the default by more than this factor. Not sooner, as
each write gives every topic of the namespace a burst of one second's rate."""


def default_rates(
    layout: Layout, safe_limits: FloatArray, most_raised: float = MOST_RAISED
) -> FloatArray:
    """(g, 4) the rate of a topic of each group while it has none of its own.

    It is the broker's safe limit divided by one more than the number of the group's topics there;
    of all brokers with a safe limit the lowest, and at least 1. In published bytes the safe limits
    are raised first, see ``raised_limits``. inf: some broker is unlimited. NaN: no broker has
    received a limit.

    Args:
        layout: the topics, and which broker has each part.
        safe_limits: (b, g, 4) of each broker and group; inf = unlimited, NaN = not received.
        most_raised: see ``raised_limits``.

    >>> layout = Layout(("b",), ("g",), ("s", "t"), np.array([0, 0]), ("s", "t"),
    ...     np.array([0, 1]), np.array([0, 0]))
    >>> default_rates(layout, np.array([[[100.0, 2.0, np.inf, np.nan]]]))
    array([[33.,  1., inf, nan]])
    """
    pairs = layout.pairs
    topics = np.zeros(safe_limits.shape[:2])
    topics[pairs.broker, pairs.group] = np.diff(pairs.starts)
    raised = raised_limits(
        safe_limits.reshape(-1, BASIC),
        np.tile(np.arange(safe_limits.shape[1]), safe_limits.shape[0]),
        topics.ravel().astype(np.int64) + 1,
        most_raised,
    ).reshape(safe_limits.shape)
    per_topic = np.floor(raised / (topics[:, :, None] + 1.0) + 1e-9)
    lowest = np.fmin.reduce(np.clip(per_topic, 1.0, MOST), axis=0, initial=np.inf)
    received = ~np.isnan(safe_limits)
    unlimited = (np.isposinf(safe_limits) & received).any(axis=0)
    return np.where(received.any(axis=0), np.where(unlimited, np.inf, lowest), np.nan)


def wanted_rates(in_force: FloatArray, ours: BoolArray, default: FloatArray) -> FloatArray:
    """(n, 4) the rates that n namespaces should have: the default, where that is worth a write.

    Args:
        in_force: (n, 4) current rates; inf = unlimited.
        ours: (n, 2) by kind: whether the enforcer may change the rate.
        default: (n, 4) desired rates; NaN = leave it as it is.

    >>> has = np.array([[20.0, np.inf, np.inf, np.inf]] * 3)
    >>> ours = np.array([[True, True], [True, True], [False, True]])
    >>> wanted_rates(has, ours, np.array([[15.0, np.inf, np.inf, np.inf], [5.0] * 4, [5.0] * 4]))
    array([[20., inf, inf, inf],
           [ 5.,  5.,  5.,  5.],
           [20., inf,  5.,  5.]])
    """
    with np.errstate(invalid="ignore"):
        near = (in_force <= _TOO_FAR * default) & (default <= _TOO_FAR * in_force)
    near &= np.isfinite(in_force) == np.isfinite(default)
    wanted = in_force.copy()
    for kind, side in enumerate(SIDES):
        new = default[:, side]
        due = ours[:, kind] & ~near[:, side].all(axis=1) & ~np.isnan(new).any(axis=1)
        wanted[due, side] = new[due]
    return wanted
