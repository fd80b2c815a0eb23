"""From the limits in force to those a law wants, without exceeding the quota on the way.

Pure numpy, one dimension of g groups with n rows in all. ``strict``: a broker is told to come down
at once, and to go up only as far as nobody else may still be using what it would get. What a broker
may still be using is *held*: the highest limit it was told and has not been seen to leave behind.
``fast``: all of a round's limits go out together, and while its messages are under way some brokers
have the old limit and some the new one.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from quotaplane.groups.hierarchy import least_on_path, subtree_totals
from quotaplane.laws.segments import Segments
from quotaplane.model import FloatArray, IntArray

_ROUNDING: Final = 1e-9


def grant(
    rows: Segments,
    limit: FloatArray,
    held: FloatArray,
    target: FloatArray,
    quota: FloatArray,
    parent: IntArray | None = None,
    reserved: FloatArray | None = None,
) -> FloatArray:
    """One strict step from ``limit`` towards ``target``.

    Whoever is to come down is told so. Whoever is to go up is given what it holds already, and then
    its part of what nobody holds: ``quota - sum(max(held, limit))``, shared in proportion to what
    each is short of its target. Once told, a broker holds the higher one of what it held and its
    limit; so what is held never grows beyond the quota. It stays above it only where it was (the
    quota was lowered), until those who must come down have.

    Args:
        rows: the groups.
        limit: (n,) told last; inf = told that it is not limited.
        held: (n,) at least ``limit``.
        target: (n,) what the law wants.
        quota: (g,) inf where only a group above has one.
        parent: (g,) the group above, -1 = none; None: no group has any. What belongs to a group
            and all below it stays inside its quota.
        reserved: (g,) what else somebody may be using of each group's quota; None: nothing.

    Returns:
        (n,) the limits to tell.

    >>> rows, quota = Segments(np.array([0, 2])), np.array([100.0])
    >>> first, fair = np.array([90.0, 10.0]), np.array([50.0, 50.0])
    >>> grant(rows, limit=first, held=first, target=fair, quota=quota)  # the second has to wait
    array([50., 10.])
    >>> acknowledged = np.array([50.0, 10.0])
    >>> grant(rows, limit=acknowledged, held=acknowledged, target=fair, quota=quota)
    array([50., 50.])
    """
    down = np.minimum(limit, target)
    kept = np.maximum(held, down)
    short = np.zeros_like(target)
    np.subtract(target, kept, out=short, where=target > kept)  # both may be infinite
    wanted, taken = rows.total(short), rows.total(kept)
    if reserved is not None:
        taken = taken + reserved
    if parent is not None:
        wanted, taken = subtree_totals(parent, wanted), subtree_totals(parent, taken)
    free = np.full(rows.groups, np.inf)
    np.subtract(quota * (1.0 - rows.slack), taken, out=free, where=np.isfinite(quota))
    part = np.where(np.isposinf(free), 1.0, 0.0)
    np.divide(free, wanted, out=part, where=(wanted > 0.0) & np.isfinite(free))
    part = np.clip(part, 0.0, 1.0)
    if parent is not None:
        part = least_on_path(parent, np.where(wanted > 0.0, part, 1.0))
    raised = np.zeros_like(target)
    part_of_row = rows.spread(part)
    np.multiply(short, part_of_row, out=raised, where=part_of_row > 0.0)
    granted: FloatArray = np.minimum(target, kept) + raised
    return granted


def step_capped(
    rows: Segments,
    limit: FloatArray,
    target: FloatArray,
    quota: FloatArray,
    most: float,
    parent: IntArray | None = None,
) -> FloatArray:
    """The target, no limit further than ``most`` of its quota from where it is.

    The quota is that of its group, or the least one above. What those who come down slowly keep for
    now, those who go up have to wait for. Where limits add up to more than the quota (it was
    lowered), the way down is not capped.

    >>> rows, quota = Segments(np.array([0, 2])), np.array([100.0])
    >>> step_capped(rows, np.array([90.0, 10.0]), np.array([50.0, 50.0]), quota, most=0.1)
    array([80., 20.])
    """
    limited = np.isfinite(limit)
    start = np.where(limited, limit, 0.0)
    total, width = rows.total(start), quota
    if parent is not None:
        total, width = subtree_totals(parent, total), least_on_path(parent, quota)
    room = quota * (1.0 + _ROUNDING) - total
    if parent is not None:
        room = least_on_path(parent, room)
    step = most * rows.spread(width)
    lowest = np.where(rows.spread(room < 0.0), 0.0, start - step)
    # Who was never limited has no way to go: it gets what there is.
    near = np.where(limited, np.clip(target, lowest, start + step), target)
    return grant(rows, start, np.minimum(start, near), near, quota, parent)
