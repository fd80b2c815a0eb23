"""Transition: the limits of one round, on the way from the limits in force to those a law wants.

Pure numpy, one dimension of g groups with n leases in all. ``strict``: limits are lowered at once,
and raised only by what no other broker may still be using; so the limits in force never exceed the
quota. ``fast``: all new limits are published together; while the messages are under way some
brokers have the old limit and some the new one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.groups.hierarchy import least_on_path, subtree_totals
from quotaplane.laws.segments import Segments
from quotaplane.model import FloatArray, IntArray

_ROUNDING: Final = 1e-9


def grant(
    segments: Segments,
    limit: FloatArray,
    max_in_force: FloatArray,
    target: FloatArray,
    quota: FloatArray,
    parent: IntArray | None = None,
    reserved: FloatArray | None = None,
) -> FloatArray:
    """One strict step from ``limit`` towards ``target``.

    A limit above its target is lowered to it. A limit below its target is raised to what the broker
    may be using already, then by its part of the free quota, ``quota - sum(max_in_force)`` after
    the lowering, in proportion to what each limit is short of its target. A published limit is in
    force together with the ones before it, so ``max_in_force`` becomes the higher one of both. Its
    sum exceeds the quota only if it did before (the quota was lowered), until the lowered limits
    are acknowledged.

    Args:
        segments: the groups.
        limit: (n,) issued last; inf = unlimited.
        max_in_force: (n,) the highest limit that the broker may be using; at least ``limit``.
        target: (n,) what the law wants.
        quota: (g,) inf where only a group above has one.
        parent: (g,) the group above, -1 = none; None: no group has any. A group and all below it
            stay inside its quota.
        reserved: (g,) quota that brokers of deleted groups may be using; None: nothing.

    Returns:
        (n,) the limits to issue.

    >>> segments, quota = Segments(np.array([0, 2])), np.array([100.0])
    >>> first, fair = np.array([90.0, 10.0]), np.array([50.0, 50.0])
    >>> grant(segments, limit=first, max_in_force=first, target=fair, quota=quota)  # 2nd must wait
    array([50., 10.])
    >>> acked = np.array([50.0, 10.0])
    >>> grant(segments, limit=acked, max_in_force=acked, target=fair, quota=quota)
    array([50., 50.])
    """
    lowered = np.minimum(limit, target)
    in_use = np.maximum(max_in_force, lowered)
    short = np.zeros_like(target)
    np.subtract(target, in_use, out=short, where=target > in_use)  # both may be infinite
    wanted, taken = segments.total(short), segments.total(in_use)
    if reserved is not None:
        taken = taken + reserved
    if parent is not None:
        wanted, taken = subtree_totals(parent, wanted), subtree_totals(parent, taken)
    free = np.full(segments.groups, np.inf)
    np.subtract(quota * (1.0 - segments.slack), taken, out=free, where=np.isfinite(quota))
    part = np.where(np.isposinf(free), 1.0, 0.0)
    np.divide(free, wanted, out=part, where=(wanted > 0.0) & np.isfinite(free))
    part = np.clip(part, 0.0, 1.0)
    if parent is not None:
        part = least_on_path(parent, np.where(wanted > 0.0, part, 1.0))
    raised = np.zeros_like(target)
    lease_part = segments.spread(part)
    np.multiply(short, lease_part, out=raised, where=lease_part > 0.0)
    granted: FloatArray = np.minimum(target, in_use) + raised
    return granted


def step_capped(
    segments: Segments,
    limit: FloatArray,
    target: FloatArray,
    quota: FloatArray,
    max_step: float,
    parent: IntArray | None = None,
) -> FloatArray:
    """The target, but no limit moves by more than ``max_step`` of its quota.

    The quota is that of the group, or the least one above. While some limits come down step by
    step, others can only go up by what these release. If the limits add up to more than the quota
    (it was lowered), steps down are not capped.

    >>> segments, quota = Segments(np.array([0, 2])), np.array([100.0])
    >>> step_capped(segments, np.array([90.0, 10.0]), np.array([50.0, 50.0]), quota, max_step=0.1)
    array([80., 20.])
    """
    limited = np.isfinite(limit)
    start = np.where(limited, limit, 0.0)
    total, least_quota = segments.total(start), quota
    if parent is not None:
        total, least_quota = subtree_totals(parent, total), least_on_path(parent, quota)
    room = quota * (1.0 + _ROUNDING) - total
    if parent is not None:
        room = least_on_path(parent, room)
    step = max_step * segments.spread(least_quota)
    lowest = np.where(segments.spread(room < 0.0), 0.0, start - step)
    # An unlimited lease has no limit to start from: it gets its target as far as there is quota.
    near = np.where(limited, np.clip(target, lowest, start + step), target)
    return grant(segments, start, np.minimum(start, near), near, quota, parent)
