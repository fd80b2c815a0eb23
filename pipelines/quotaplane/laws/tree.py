"""Divides quotas in a forest of groups: what remains for each group's own brokers."""

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

    All brokers of a group and of its descendants stay within its quota together. ``max_min``
    divides a group's quota among its children and, as one more child with weight 1 and priority 0,
    its own brokers. For each child these values count, for all brokers in its subtree:

    - ceiling: its quota, or the most that these brokers and groups may have together, if that is
      less. So spare goes, by weight, where it can be used;
    - floor: its floor, or the sum of the floors below it, if that is more. Floors that exceed the
      parent's quota are cut in proportion;
    - demand: the sum of the demands below it, but not less than its floor. A broker's demand counts
      up to its ceiling, and not less than its floor.

    A subtree without brokers takes no part, not even with its floor. A group without a quota shares
    what its parent gives it. A root without a quota has infinite quota, so its children have their
    own quotas, or infinite quota.

    Weight, floor and priority of a root have no effect. (Demands go up and shares come down, as in
    hierarchical max-min: Kumar et al., BwE, SIGCOMM 2015.)

    Args:
        parent: (g,) index of each group's parent; -1: none.
        brokers: demands, floors and ceilings of each group's own brokers. ``quota`` is each group's
            own; inf: none.
        weight: (g,) above 0, among siblings.
        floor: (g,) guaranteed to the whole subtree from the parent's quota, per second.
        priority: (g,) among siblings; higher is served first.

    Returns:
        (g,) quota for the group's own brokers, per second; inf: unlimited; 0 if it has no brokers.
        In each subtree with a quota they add up to at most that quota.

    Raises:
        ValueError: ``parent`` has an index that does not exist, or a cycle.

    A tenant has 100. One of its groups has one broker with ceiling 1:

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
    # Own brokers of an inner node become a child of it, so all brokers are in leaves.
    inner = np.zeros(groups, dtype=np.bool_)
    depth = _depths(parent)
    inner[parent[parent >= 0]] = True
    own = np.flatnonzero(inner & has_brokers)
    node = np.concatenate([np.arange(groups), own])  # for a leaf: the group of its brokers
    above = np.concatenate([parent, own])
    depth = np.concatenate([depth, depth[own] + 1])
    leaf = np.concatenate([~inner & has_brokers, np.ones(len(own), dtype=np.bool_)])
    extra = len(own)
    quota = np.concatenate([brokers.quota, np.full(extra, np.inf)])
    weight = np.concatenate([weight, np.ones(extra)])
    floor = np.concatenate([floor, np.zeros(extra)])
    priority = np.concatenate([priority, np.zeros(extra, dtype=priority.dtype)])

    levels = _levels(above, depth)
    totals = _Totals(*(np.where(leaf, sums[node], 0.0) for sums in _of_brokers(brokers)))
    _add_up(totals, levels, quota, floor)
    share = quota.copy()
    for children, parents, starts in levels:
        siblings = Problem(
            starts=np.append(starts, len(children)),
            quota=share[parents],
            usage=np.zeros(len(children)),
            limit=np.full(len(children), np.inf),
            demand=totals.demand[children],
            weight=weight[children],
            floor=totals.floor[children],
            ceiling=totals.ceiling[children],
            priority=priority[children],
        )
        share[children] = np.minimum(max_min(siblings).limits, quota[children])
    effective = np.zeros(groups)
    effective[node[leaf]] = share[leaf]
    return effective


def _depths(parent: IntArray) -> IntArray:
    """(g,) number of ancestors of each group; the loop is over depths."""
    if len(parent) and not -1 <= parent.min() <= parent.max() < len(parent):
        raise ValueError("parent: must be the index of a group, or -1")
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
    """The nodes of one depth."""

    children: IntArray
    """Nodes, siblings adjacent."""
    parents: IntArray
    """Their parents, each once."""
    starts: IntArray
    """Where each parent's children begin."""


def _levels(above: IntArray, depth: IntArray) -> list[_Level]:
    """All nodes with a parent, from the children of the roots downwards."""
    order = np.lexsort((above, depth))
    ends = np.cumsum(np.bincount(depth)) if len(depth) else np.zeros(1, dtype=np.int64)
    levels = []
    for first, last in pairwise(ends):
        children = order[first:last]
        parents = above[children]
        starts = np.flatnonzero(np.diff(parents, prepend=-1))
        levels.append(_Level(children, parents[starts], starts))
    return levels


class _Totals(NamedTuple):
    """Sums over the brokers of a group or subtree."""

    demand: FloatArray
    floor: FloatArray
    ceiling: FloatArray


def _of_brokers(brokers: Problem) -> _Totals:
    """(g,) sums over each group's own brokers."""
    rows, demand = Segments(brokers.starts), brokers.demand
    floor: FloatArray = np.zeros(rows.groups)
    ceiling = np.where(rows.counts > 0, np.inf, 0.0)
    if brokers.ceiling is not None:
        demand, ceiling = np.minimum(demand, brokers.ceiling), rows.total(brokers.ceiling)
    if brokers.floor.any():
        low = brokers.floor
        if brokers.ceiling is not None:
            low = np.minimum(low, brokers.ceiling)
        demand, floor = np.maximum(demand, low), rows.total(low)
    return _Totals(rows.total(demand), floor, ceiling)


def _add_up(totals: _Totals, levels: list[_Level], quota: FloatArray, floor: FloatArray) -> None:
    """Sum up from the leaves, whose values ``totals`` has, to the roots; (nodes,), in place."""
    demand, own_floor, ceiling = totals
    for children, parents, starts in reversed(levels):
        ceiling[children] = np.minimum(quota[children], ceiling[children])
        guarantee = np.maximum(floor[children], own_floor[children])
        own_floor[children] = np.minimum(guarantee, ceiling[children])
        demand[children] = np.clip(demand[children], own_floor[children], ceiling[children])
        for sums in totals:
            sums[parents] += np.add.reduceat(sums[children], starts)
