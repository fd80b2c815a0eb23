"""Which bundles a broker reports to the extensible manager's leader, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from quotabalance.planning.cluster_load import ClusterLoad
from quotaplane.model import FloatArray, IntArray

_BYTES_STEP: Final = 1e5
_MESSAGES_STEP: Final = 100.0
_CONNECTIONS_STEP: Final = 500
_MOST: Final = 2.0**63


def load_classes(load: ClusterLoad) -> FloatArray:
    """The steps by which Pulsar compares two bundles' loads; shape (N, 4), the first column first.

    Steps of 100 KB/s in, of 100 KB/s out, of 100 messages per second, of 500 topics and clients.
    Bundles in the same steps count as equal (``NamespaceBundleStats.compareTo``).
    """
    topics = load.topics if len(load.topics) else np.zeros(len(load.bundles), np.int64)
    sessions = load.sessions if len(load.sessions) else np.zeros(len(load.bundles), np.int64)
    return np.column_stack(
        (
            _rounded(load.rates[:, 0] / _BYTES_STEP),
            _rounded(load.rates[:, 1] / _BYTES_STEP),
            _rounded((load.rates[:, 2] + load.rates[:, 3]) / _MESSAGES_STEP),
            ((topics + sessions) // _CONNECTIONS_STEP).astype(np.float64),
        )
    )


def _rounded(values: FloatArray) -> FloatArray:
    """``Math.round``: halves go up."""
    below = np.floor(values)
    found: FloatArray = np.minimum(below + (values - below >= 0.5), _MOST)
    return found


def reported_bundles(bundles: Sequence[int], classes: FloatArray, most: int) -> list[int]:
    """The bundles that a broker reports: the ``most`` biggest, *the smallest of them first*.

    Args:
        bundles: the broker's bundles that may be reported, in the order of its map.
        classes: of all bundles (``load_classes``).
        most: ``loadBalancerMaxNumberOfBundlesInBundleLoadReport``.

    Pulsar (``TopKBundles``) sorts only as much as it needs. Which of equal bundles are reported
    depends on how it does that, so this does the same.

    >>> classes = np.array([[5.0, 0, 0, 0], [9, 0, 0, 0], [1, 0, 0, 0]])
    >>> reported_bundles([0, 1, 2], classes, 2)
    [0, 1]
    """
    most = min(most, len(bundles))
    if most <= 0:
        return []
    keys = [tuple(row) for row in classes[np.asarray(bundles, np.int64)].tolist()]
    order = list(range(len(bundles)))
    end = _biggest_first(order, keys, most)
    order[:end] = sorted(order[:end], key=keys.__getitem__, reverse=True)
    return [bundles[place] for place in reversed(order[:most])]


def _biggest_first(order: list[int], keys: list[tuple[float, ...]], most: int) -> int:
    """Put the ``most`` biggest first (quickselect on thirds); returns how many are to be sorted."""
    start, end, target = 0, len(order) - 1, most - 1
    while start < end:
        bigger, at, smaller = start, start, end
        pivot = keys[order[end]]
        while at <= smaller:
            key = keys[order[at]]
            if key > pivot:
                order[bigger], order[at] = order[at], order[bigger]
                bigger += 1
                at += 1
            elif key < pivot:
                order[at], order[smaller] = order[smaller], order[at]
                smaller -= 1
            else:
                at += 1
        if bigger <= target < at:
            return bigger
        if target < bigger:
            end = bigger - 1
        else:
            start = at
    return end


def grouped(owner: IntArray, brokers: int) -> tuple[IntArray, IntArray]:
    """Bundles by broker: their indices, and where each broker's begin; shapes (N,), (B + 1,)."""
    order = np.argsort(owner, kind="stable")
    return order, np.searchsorted(owner[order], np.arange(brokers + 1))
