"""Quotas within quotas: what a forest of groups leaves for each group's own brokers."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from quotaplane.laws.max_min import max_min
from quotaplane.laws.problem import Problem
from quotaplane.laws.segments import Segments
from quotaplane.model import FloatArray, IntArray


def effective_quota(
    parent: IntArray,
    brokers: Problem,
    weight: FloatArray,
    floor: FloatArray,
    priority: IntArray,
) -> FloatArray:
    """Divide the quotas of a forest, level by level, in one dimension.

    All that belongs to a group, its own brokers and its children's, stays inside its quota. What a
    group has is shared by ``max_min`` among its children and, as one child more of weight 1 and
    priority 0, its own brokers. Of each child count, for all brokers below it:

    - at most: its quota, or what those brokers and groups may have together, if that is less. So
      spare is handed down by weight to where it can be used;
    - guaranteed: its floor, or the sum of what is guaranteed below it, if that is more. A broker's
      floor is a guarantee. Guarantees that exceed what their parent has are cut in proportion;
    - wanted: the sum of what is wanted below it, but no less than its guarantee. A broker wants its
      demand up to its ceiling, and no less than its floor.

    A subtree without any broker takes no part, not even with its floor. A group without a quota
    shares what its parent gives it; a root without one has infinite quota, so its children have
    their own quotas, and that is infinite if they have none.

    Weight, floor and priority of a root mean nothing. (The wants go up and the shares come down, as
    in hierarchical max-min: Kumar et al., BwE, SIGCOMM 2015.)

    Args:
        parent: (g,) index of each group's parent, -1 = none.
        brokers: each group's own brokers: their demands, floors and ceilings. ``quota`` is each
            group's own, inf = none.
        weight: (g,) above 0, among its siblings.
        floor: (g,) what the whole subtree is guaranteed of what its parent has, per second.
        priority: (g,) among its siblings; higher goes first.

    Returns:
        (g,) the quota that the group's own brokers may share, per second; inf = unlimited, 0 where
        it has no brokers. Below every quota they add up to at most that quota.

    Raises:
        ValueError: ``parent`` names a group that isn't there, or has a cycle.

    A tenant has 100. One of its groups is on a broker that may have 1 at most:

    >>> nothing = np.zeros(2)
    >>> brokers = Problem(
    ...     starts=np.array([0, 0, 1, 2]), quota=np.array([100.0, np.inf, np.inf]),
    ...     usage=nothing, limit=nothing, demand=np.array([1000.0, 1000.0]), weight=np.ones(2),
    ...     floor=nothing, ceiling=np.array([1.0, np.inf]),
    ... )
    >>> effective_quota(np.array([-1, 0, 0]), brokers, np.ones(3), np.zeros(3), np.zeros(3, int))
    array([ 0.,  1., 99.])
    """
    groups, has_brokers = len(parent), np.diff(brokers.starts) > 0
    # Own brokers beside children become a child of their own: then all brokers are in leaves.
    inner = np.zeros(groups, dtype=np.bool_)
    depth = _depths(parent)
    inner[parent[parent >= 0]] = True
    own = np.flatnonzero(inner & has_brokers)
    node = np.concatenate([np.arange(groups), own])  # whose brokers are there, if it is a leaf
    above = np.concatenate([parent, own])
    depth = np.concatenate([depth, depth[own] + 1])
    leaf = np.concatenate([~inner & has_brokers, np.ones(len(own), dtype=np.bool_)])
    extra = len(own)
    quota = np.concatenate([brokers.quota, np.full(extra, np.inf)])
    weight = np.concatenate([weight, np.ones(extra)])
    floor = np.concatenate([floor, np.zeros(extra)])
    priority = np.concatenate([priority, np.zeros(extra, dtype=priority.dtype)])

    levels = _levels(above, depth)
    asked = _Asked(*(np.where(leaf, sums[node], 0.0) for sums in _of_brokers(brokers)))
    _add_up(asked, levels, quota, floor)
    has = quota.copy()
    for children, parents, starts in levels:
        siblings = Problem(
            starts=np.append(starts, len(children)),
            quota=has[parents],
            usage=np.zeros(len(children)),
            limit=np.full(len(children), np.inf),
            demand=asked.want[children],
            weight=weight[children],
            floor=asked.least[children],
            ceiling=asked.most[children],
            priority=priority[children],
        )
        has[children] = np.minimum(max_min(siblings).limits, quota[children])
    effective = np.zeros(groups)
    effective[node[leaf]] = has[leaf]
    return effective


def _depths(parent: IntArray) -> IntArray:
    """(g,) how many ancestors each group has; the loop is over depths."""
    if len(parent) and not -1 <= parent.min() <= parent.max() < len(parent):
        raise ValueError("parent: an index of a group, or -1")
    depth: IntArray = np.zeros(len(parent), dtype=np.int64)
    child, ancestor = np.flatnonzero(parent >= 0), parent[parent >= 0]
    for _ in range(len(parent)):
        if not len(child):
            return depth
        depth[child] += 1
        further = parent[ancestor] >= 0
        child, ancestor = child[further], parent[ancestor[further]]
    if len(child):
        raise ValueError(f"parent: group {child[0]} is its own ancestor, or below one that is")
    return depth


class _Level(NamedTuple):
    """The nodes of one depth, siblings side by side; their parents; where each family starts."""

    children: IntArray
    parents: IntArray
    starts: IntArray


def _levels(above: IntArray, depth: IntArray) -> list[_Level]:
    """All nodes that have a parent, from the children of the roots downwards."""
    order = np.lexsort((above, depth))
    ends = np.cumsum(np.bincount(depth)) if len(depth) else np.zeros(1, dtype=np.int64)
    levels = []
    for first, last in pairwise(ends):
        children = order[first:last]
        parents = above[children]
        starts = np.flatnonzero(np.diff(parents, prepend=-1))
        levels.append(_Level(children, parents[starts], starts))
    return levels


class _Asked(NamedTuple):
    """What each group or subtree wants, is guaranteed, and may have at most."""

    want: FloatArray
    least: FloatArray
    most: FloatArray


def _of_brokers(brokers: Problem) -> _Asked:
    """(g,) of each group's own brokers together."""
    rows, want = Segments(brokers.starts), brokers.demand
    least: FloatArray = np.zeros(rows.groups)
    most = np.where(rows.counts > 0, np.inf, 0.0)
    if brokers.ceiling is not None:
        want, most = np.minimum(want, brokers.ceiling), rows.total(brokers.ceiling)
    if brokers.floor.any():
        low = brokers.floor
        if brokers.ceiling is not None:
            low = np.minimum(low, brokers.ceiling)
        want, least = np.maximum(want, low), rows.total(low)
    return _Asked(rows.total(want), least, most)


def _add_up(asked: _Asked, levels: list[_Level], quota: FloatArray, floor: FloatArray) -> None:
    """From the leaves, which ``asked`` has, to the roots; all (nodes,), in place."""
    want, least, most = asked
    for children, parents, starts in reversed(levels):
        most[children] = np.minimum(quota[children], most[children])
        guarantee = np.maximum(floor[children], least[children])
        least[children] = np.minimum(guarantee, most[children])
        want[children] = np.clip(want[children], least[children], most[children])
        for sums in asked:
            sums[parents] += np.add.reduceat(sums[children], starts)
