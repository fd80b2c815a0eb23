"""Quotas within quotas: what a forest of groups leaves for each group's own brokers."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from quotaplane.laws.max_min import max_min
from quotaplane.laws.problem import Problem
from quotaplane.model import BoolArray, FloatArray, IntArray


def effective_quota(
    parent: IntArray,
    quota: FloatArray,
    demand: FloatArray,
    weight: FloatArray,
    floor: FloatArray,
    priority: IntArray,
    has_brokers: BoolArray,
) -> FloatArray:
    """Divide the quotas of a forest, level by level, in one dimension.

    All that belongs to a group, its own brokers and its children's, stays inside its quota. What a
    group has is shared by ``max_min`` among its children and, as one child more (weight 1, floor 0,
    priority 0), its own brokers:

    - a child wants, for all below it, ``min(quota, max(floor, sum of what is wanted there))``;
    - its ceiling is what its subtree may take at all: its quota, or less if everybody below has
      quotas of their own. So spare is handed down by weight to where it may be used;
    - a subtree without any broker takes no part, not even with its floor;
    - a group without a quota shares what its parent gives it; a root without one has infinite
      quota, so its children have their own quotas, and that is infinite if they have none.

    Weight, floor and priority of a root mean nothing. (The wants go up and the shares come down, as
    in hierarchical max-min: Kumar et al., BwE, SIGCOMM 2015.)

    Args:
        parent: (g,) index of each group's parent, -1 = none.
        quota: (g,) per second; inf = none of its own.
        demand: (g,) of the group's own brokers together, per second; may be inf.
        weight: (g,) above 0, among its siblings.
        floor: (g,) what the whole subtree is guaranteed of what its parent has, per second.
        priority: (g,) among its siblings; higher goes first.
        has_brokers: (g,) whether the group has brokers of its own.

    Returns:
        (g,) the quota that the group's own brokers may share, per second; inf = unlimited, 0 where
        it has no brokers. Below every quota they add up to at most that quota.

    Raises:
        ValueError: ``parent`` names a group that isn't there, or has a cycle.

    Tenant 0 has 100 for its namespaces 1 and 2; 1 may have 60 of it for its groups 3 and 4:

    >>> tenant, nowhere = np.array([-1, 0, 0, 1, 1]), np.zeros(5)
    >>> quota = np.array([100.0, 60.0, np.inf, np.inf, 20.0])
    >>> demand = np.array([0.0, 0.0, 30.0, 90.0, 90.0])
    >>> leaf = np.array([False, False, True, True, True])
    >>> effective_quota(tenant, quota, demand, np.ones(5), nowhere, nowhere.astype(int), leaf)
    array([ 0.,  0., 40., 40., 20.])
    """
    groups = len(parent)
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
    quota = np.concatenate([quota, np.full(extra, np.inf)])
    weight = np.concatenate([weight, np.ones(extra)])
    floor = np.concatenate([floor, np.zeros(extra)])
    priority = np.concatenate([priority, np.zeros(extra, dtype=priority.dtype)])

    # Siblings side by side, depth after depth.
    order = np.lexsort((above, depth))
    ends = np.cumsum(np.bincount(depth)) if len(depth) else np.zeros(1, dtype=np.int64)
    levels = [order[first:last] for first, last in pairwise(ends)]

    want, most = _wants(levels, above, quota, floor, np.where(leaf, demand[node], 0.0), leaf)
    has = quota.copy()
    for children in levels:
        parents, counts = np.unique(above[children], return_counts=True)
        siblings = Problem(
            starts=np.concatenate([[0], np.cumsum(counts)]),
            quota=has[parents],
            usage=np.zeros(len(children)),
            limit=np.full(len(children), np.inf),
            demand=want[children],
            weight=weight[children],
            floor=floor[children],
            ceiling=most[children],
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


def _wants(
    levels: list[IntArray],
    above: IntArray,
    quota: FloatArray,
    floor: FloatArray,
    demand: FloatArray,
    leaf: BoolArray,
) -> tuple[FloatArray, FloatArray]:
    """(nodes,) what each subtree wants, and the most that it may take, from the leaves up."""
    want, most = demand, np.where(leaf, np.inf, 0.0)
    for children in reversed(levels):
        most[children] = np.minimum(quota[children], most[children])
        want[children] = np.minimum(np.maximum(floor[children], want[children]), most[children])
        parents = above[children]
        want += np.bincount(parents, weights=want[children], minlength=len(want))
        most += np.bincount(parents, weights=most[children], minlength=len(most))
    return want, most
