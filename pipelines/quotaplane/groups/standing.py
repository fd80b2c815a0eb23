"""How groups and their brokers stand beside quotas: one rule for metrics, ``status`` and the page.

Arrays have shape (g,) for groups and (n,) for pairs of a broker and a group, of one dimension;
rates are per second. The audits have the same numbers in SQL (a test compares them).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from quotaplane.groups.hierarchy import fair_shares, least_on_path, roots_of, subtree_totals
from quotaplane.model import BoolArray, FloatArray, IntArray

OVER_QUOTA: Final = 1.05
"""A group is over its quota if it uses more than this part of it."""
NEAR_QUOTA: Final = 0.8
"""From this part of its quota on a group is near it, until it is over it."""
AT_LIMIT: Final = 0.95
"""A broker that uses this part of its limit or more may be held back by it."""
WANTS_MORE: Final = 1.05
"""A broker wants more (is saturated) if its demand is above this part of its limit. Limits change
only if that is worth a message, so a demand just above one is satisfied."""
UNFAIR: Final = 0.9
"""A group is unfair if a broker that wants more has less than this part of its share."""
STARVING: Final = 0.5
"""A group starves if a broker that wants more has less than this part of its share, and the group
and those above it are not ``FULL``."""
FULL: Final = 0.9
"""Below this part of its quota a group leaves some of it free."""


@dataclass(frozen=True)
class QuotaTree:
    """Groups with the columns from which fair shares follow, in one dimension."""

    parent: IntArray
    """(g,) the index of the group above; -1: none."""
    quota: FloatArray
    """(g,) as the law divides it; inf: none."""
    brokers: IntArray
    """(g,) number of brokers that use the group itself."""
    weight: FloatArray
    """(g,) among siblings."""
    has_terms: BoolArray
    """(g,) it has a floor, a priority or terms of single brokers. All groups of such a tree may
    have other shares than by weight, so they are not judged."""

    def fair_shares(self) -> FloatArray:
        """(g,) the part that a broker of the group can count on; inf: no quota, NaN: not judged."""
        root = roots_of(self.parent)
        has_terms = np.bincount(root, self.has_terms, len(root)) > 0.0
        fair = fair_shares(self.parent, self.quota, self.brokers, self.weight)
        return np.where(has_terms[root], np.nan, fair)


def used_part(
    parent: IntArray, group: IntArray, rates: npt.NDArray[Any], quota: FloatArray
) -> FloatArray:
    """(g,) the sums of rates (n,) by group, with all groups below, as a part of the quota (g,).

    0 without a quota (inf); inf: something is used of a quota of 0.

    >>> used_part(np.array([-1, 0]), np.array([0, 1, 1]), np.array([10.0, 20.0, 30.0]),
    ...     np.array([100.0, np.inf]))
    array([0.6, 0. ])
    """
    total = np.bincount(group, weights=rates, minlength=len(parent)).astype(np.float64)
    total = subtree_totals(parent, total)
    part = np.where(total > 0.0, np.inf, 0.0)
    part[np.isinf(quota)] = 0.0
    with np.errstate(over="ignore"):  # a quota may be the smallest float there is
        np.divide(total, quota, out=part, where=np.isfinite(quota) & (quota > 0.0))
    return part


def wants_more(limit: FloatArray, demand: FloatArray) -> BoolArray:
    """(n,) saturated: the demand is above the limit, or not known (inf). No limit is inf, too.

    >>> wants_more(np.array([100.0, 100.0, np.inf]), np.array([104.0, np.inf, np.inf]))
    array([False,  True, False])
    """
    more: BoolArray = demand > WANTS_MORE * limit
    return more


def worst_shares(
    tree: QuotaTree, group: IntArray, limit: FloatArray, demand: FloatArray, held: BoolArray
) -> FloatArray:
    """(g,) the least ratio of limit to share among brokers that want more; NaN: there is none.

    A broker's share is its demand, or its fair share if that is less. ``held`` (n,): whether the
    pair's limit is enforced and its broker live.

    Of 120, one broker wants 30 and has it, another wants more than its 45. Fair is 60:

    >>> tree = QuotaTree(*map(np.array, ([-1], [120.0], [2], [1.0], [False])))
    >>> worst_shares(tree, np.array([0, 0]), np.array([30.0, 45.0]), np.array([30.0, np.inf]),
    ...     np.array([True, True]))
    array([0.75])
    """
    worst = np.full(len(tree.parent), np.inf)
    at = np.flatnonzero(held & wants_more(limit, demand))
    if not len(at):
        return np.full(len(worst), np.nan)
    wanted = np.minimum(demand[at], tree.fair_shares()[group[at]])
    share = np.ones(len(at))
    np.divide(limit[at], wanted, out=share, where=wanted > 0.0)
    np.fmin.at(worst, group[at], np.minimum(share, 1.0))
    return np.where(np.isinf(worst), np.nan, worst)


def starving(tree: QuotaTree, worst: FloatArray, part: FloatArray) -> BoolArray:
    """(g,) whether a broker of the group has far less than its share while quota is free.

    ``worst``: ``worst_shares``; ``part``: ``used_part``.
    """
    free = -least_on_path(tree.parent, -part) < FULL
    starved: BoolArray = (worst < STARVING) & free
    return starved
