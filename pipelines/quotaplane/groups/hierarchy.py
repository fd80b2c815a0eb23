"""Trees of resource groups, from their names alone: ``acme`` over ``acme::orders``.

The parent of a group is the nearest group up its path that exists: an undefined level is
skipped. Groups without ``SEPARATOR`` in their names, which may be all of them, cost nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from quotaplane.model import SEPARATOR, BoolArray, FloatArray, IntArray

if TYPE_CHECKING:
    import pyarrow as pa

# Functions that need Arrow import it themselves: sums in trees do without it.


def nested(names: pa.Array) -> BoolArray:
    """Which names, shape (n,), are paths of more than one part.

    >>> import pyarrow as pa
    >>> nested(pa.array(["a", "a::b", "a:b"])).tolist()
    [False, True, False]
    """
    import pyarrow.compute as pc

    found = pc.match_substring(names, SEPARATOR)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.bool_)


def ancestors(name: str) -> list[str]:
    """The groups above a group, whether they exist or not, nearest first.

    >>> ancestors("acme::orders::batch"), ancestors("acme")
    (['acme::orders', 'acme'], [])
    """
    parts = name.split(SEPARATOR)
    return [SEPARATOR.join(parts[:end]) for end in range(len(parts) - 1, 0, -1)]


def parents_of(names: pa.Array, which: BoolArray | None = None) -> IntArray:
    """The index of each group's parent among ``names`` (n different ones), -1 for none.

    Only those in ``which``, a mask, are looked at: by default all.

    >>> import pyarrow as pa
    >>> parents_of(pa.array(["acme", "acme::orders::batch", "acme::orders", "b::c"])).tolist()
    [-1, 2, 0, -1]
    """
    import pyarrow as pa

    parent = np.full(len(names), -1, np.int64)
    looking = nested(names) if which is None else nested(names) & which
    child = np.flatnonzero(looking)
    if not len(child):
        return parent
    parent[child] = nearest(
        [ancestors(name) for name in names.take(pa.array(child)).to_pylist()], names
    )
    return parent


def nearest(paths: Sequence[Sequence[str]], names: pa.Array) -> IntArray:
    """The index among ``names`` of the first of each path's names that is there, -1 for none.

    >>> import pyarrow as pa
    >>> nearest([["a::b", "a"], ["c"], []], pa.array(["a", "b"])).tolist()
    [0, -1, -1]
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    found = np.full(len(paths), -1, np.int64)
    looking = [i for i, path in enumerate(paths) if path]
    level = 0
    while looking:
        above = pa.array([paths[i][level] for i in looking], pa.string())
        place = pc.index_in(above, value_set=names).fill_null(-1).to_numpy().astype(np.int64)
        found[looking] = place
        level += 1
        absent = np.flatnonzero(place < 0).tolist()
        looking = [looking[i] for i in absent if level < len(paths[looking[i]])]
    return found


def roots_of(parent: IntArray) -> IntArray:
    """The index of the uppermost group above each one (itself, if it has no parent), shape (n,).

    >>> roots_of(np.array([-1, 2, 0, -1])).tolist()
    [0, 0, 0, 3]
    """
    root = np.where(parent < 0, np.arange(len(parent)), parent)
    while True:  # twice as far up each time
        further = root[root]
        if np.array_equal(further, root):
            return root
        root = further


def and_below(parent: IntArray, chosen: BoolArray) -> BoolArray:
    """The ``chosen`` groups and those below them, shape (n,).

    >>> and_below(np.array([-1, 0, 1, -1]), np.array([False, True, False, False])).tolist()
    [False, True, True, False]
    """
    inside = chosen.copy()
    nested = np.flatnonzero(parent >= 0)
    while True:  # once for each level
        more = nested[inside[parent[nested]] & ~inside[nested]]
        if not len(more):
            return inside
        inside[more] = True


def subtree_totals(parent: IntArray, values: FloatArray) -> FloatArray:
    """Each group's value and those of all groups below it, added up; shape (n,).

    >>> subtree_totals(np.array([-1, 2, 0, -1]), np.array([1.0, 10.0, 100.0, 1000.0])).tolist()
    [111.0, 10.0, 110.0, 1000.0]
    """
    totals = values.copy()
    for level in reversed(_levels(parent)):
        np.add.at(totals, parent[level], totals[level])
    return totals


def least_on_path(parent: IntArray, values: FloatArray) -> FloatArray:
    """The least of each group's value and those of all groups above it; shape (n,).

    >>> least_on_path(np.array([-1, 2, 0, -1]), np.array([5.0, 7.0, 9.0, 1.0])).tolist()
    [5.0, 5.0, 5.0, 1.0]
    """
    least = values.copy()
    for level in _levels(parent):
        least[level] = np.minimum(least[level], least[parent[level]])
    return least


def even_shares(parent: IntArray, quota: FloatArray, brokers: IntArray) -> FloatArray:
    """One broker's share, by group, if every quota is divided evenly among all brokers below it.

    The shares of all brokers below a group add up to its quota at most. Shape (g,); inf: no quota
    applies.

    Args:
        parent: (g,) index of the group above, -1 for none.
        quota: (g,) per second, inf for none.
        brokers: (g,) number of brokers that use the group itself.

    >>> parent, quota = np.array([-1, 0, 0]), np.array([100.0, np.inf, 30.0])
    >>> even_shares(parent, quota, np.array([0, 3, 2]))
    array([20., 20., 15.])
    """
    below = subtree_totals(parent, brokers.astype(np.float64))
    return least_on_path(parent, quota / np.maximum(below, 1.0))


def binding_quota(parent: IntArray, quota: FloatArray, is_hard: BoolArray) -> FloatArray:
    """(g,) quotas (inf: none) that hold in trees: a parent's binds no child unless it is enforced.

    >>> soft = np.array([False, False])
    >>> binding_quota(np.array([-1, 0]), np.array([100.0, 60.0]), soft).tolist()
    [inf, 60.0]
    """
    is_parent = np.zeros(len(parent), np.bool_)
    is_parent[parent[parent >= 0]] = True
    return np.where(is_parent & ~is_hard, np.inf, quota)


def fair_shares(
    parent: IntArray, quota: FloatArray, brokers: IntArray, weight: FloatArray
) -> FloatArray:
    """The share that one broker of each group gets if all want more.

    A group's quota is divided by weight among its children that have brokers; its own brokers
    together count as one more child of weight 1. Shape (g,); inf: no quota applies.

    Args:
        parent: (g,) index of the group above, -1 for none.
        quota: (g,) per second, inf for none.
        brokers: (g,) number of brokers that use the group itself.
        weight: (g,) among siblings.

    >>> parent, quota = np.array([-1, 0, 0]), np.array([120.0, np.inf, 30.0])
    >>> fair_shares(parent, quota, np.array([1, 4, 2]), np.array([1.0, 1.0, 2.0]))
    array([30. ,  7.5, 15. ])
    """
    taking = subtree_totals(parent, brokers.astype(np.float64)) > 0.0
    total = (brokers > 0).astype(np.float64)  # of weights
    child = np.flatnonzero((parent >= 0) & taking)
    np.add.at(total, parent[child], weight[child])
    total[total == 0.0] = 1.0  # nothing takes part
    share = quota.copy()
    for level in _levels(parent):
        above = parent[level]
        share[level] = np.minimum(share[level], share[above] / total[above] * weight[level])
    each: FloatArray = share / total / np.maximum(brokers, 1)
    return each


def _levels(parent: IntArray) -> list[IntArray]:
    """The groups that have a parent, by depth: children of roots first."""
    below = np.flatnonzero(parent >= 0)
    depth, above = np.ones(len(below), np.int64), parent[parent[below]]
    while (above >= 0).any():
        depth += above >= 0
        above = np.where(above >= 0, parent[np.maximum(above, 0)], -1)
    return [below[depth == d] for d in range(1, int(depth.max(initial=0)) + 1)]
