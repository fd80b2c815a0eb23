"""Raises: limits that together may exceed a quota for as long as their use does not. Pure numpy.

Most of a satisfied broker's limit is not used, so more may be handed out than there is. What is
used beyond the quota all the same is a debt (``overuse``): it lowers what may be handed out.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from quotaplane.laws.segments import Segments
from quotaplane.model import FloatArray, IntArray
from quotaplane.quota.headroom import Tree

_REPAID_PART: Final = 0.5
"""Part of its debt that a group pays back in a round."""
_MOST_REPAID: Final = 0.02
"""Most that it pays back in a round, as a part of its quota."""


class Budget(NamedTuple):
    """What the limits of g groups may add up to, each with all groups below it, per second."""

    divided: FloatArray
    """(g,) what the law divides: the quota, less what is paid back in this round."""
    most: FloatArray
    """(g,) with all raises."""


def budget(quota: FloatArray, debt: FloatArray, over: float) -> Budget:
    """The budget of groups with these quotas (g,) and debts (g,), in quota x rounds.

    >>> budget(np.array([100.0, 100.0, 100.0]), np.array([0.0, 1.0, 30.0]), over=0.1)
    Budget(divided=array([100. ,  99.5,  98. ]), most=array([110. , 108.5,  98. ]))
    """
    finite = np.where(np.isfinite(quota), quota, 0.0)
    divided = quota - np.minimum(_REPAID_PART * debt, _MOST_REPAID * finite)
    return Budget(divided, divided + np.maximum(over * finite - debt, 0.0))


def raised(
    rows: Segments,
    limits: FloatArray,
    wanted: FloatArray,
    highest: FloatArray,
    most: FloatArray,
    parent: IntArray | None = None,
) -> FloatArray:
    """The limits (n,), raised as far as they fit: first to what is wanted, then to the highest.

    If not all fit, each gets the same part of what it is short of; so the lowest rise most.

    Args:
        rows: g groups with n brokers.
        limits: (n,) what the law says.
        wanted: (n,) per second; a limit that is higher stays.
        highest: (n,) per second, likewise.
        most: (g,) see ``Budget``; inf = no bound.
        parent: (g,) index of the group above, -1 = none; None: no group has one.

    >>> rows, limits = Segments(np.array([0, 3])), np.array([50.0, 40.0, 10.0])
    >>> raised(rows, limits, np.array([0, 43, 12]), np.array([0, 50, 50]), np.array([110.0]))
    array([50.        , 43.77777778, 16.22222222])
    """
    tree = Tree(rows, most, parent)
    for aim in (wanted, highest):
        short = np.maximum(aim - limits, 0.0)
        limits = limits + short * rows.spread(tree.part(limits, short))
    return limits
