"""Where to split a bundle: the position that gives both new bundles an equal part of the bytes."""

from __future__ import annotations

import numpy as np

from quotaplane.errors import InputError
from quotaplane.model import FloatArray, IntArray
from quotaplane.topics.bundle_names import BundleName


def split_positions(bundle: BundleName, hashes: IntArray, weights: FloatArray) -> tuple[int, ...]:
    """The boundary that divides a bundle's topics most evenly by weight.

    Topics with the same hash stay together. The boundary is in the middle between the hashes of the
    two topics around it, so a new topic may come on either side. Idle topics don't decide, unless
    all are idle: then each topic weighs the same.

    Args:
        bundle: the bundle.
        hashes: (n,) hash of each topic, crc32 of its full name.
        weights: (n,) what is to be divided, for example bytes per second; at least 0.

    Returns:
        The first hash of the second bundle. Empty: all topics have one hash, so no split can divide
        them.

    Raises:
        InputError: a hash is outside the bundle, or a weight is negative or not finite.

    Three topics with 6, 3 and 3 MB/s: the cut comes after the first.

    >>> bundle = BundleName("acme/orders", 0, 100)
    >>> split_positions(bundle, np.array([10, 50, 90]), np.array([6.0, 3.0, 3.0]))
    (31,)
    >>> split_positions(bundle, np.array([10, 10]), np.array([6.0, 3.0]))
    ()
    """
    _check(bundle, hashes, weights)
    places, of_topic = np.unique(hashes, return_inverse=True)
    weight = np.bincount(of_topic.reshape(-1), weights, len(places))
    if np.count_nonzero(weight) < 2:
        # No two busy ones: the idle topics decide, but a trifle against the busy one.
        weight = weight + (weight.max(initial=0.0) or 1.0) / (len(hashes) + 1)
    busy = np.flatnonzero(weight > 0)
    if len(busy) < 2:
        return ()
    ends = np.cumsum(weight[busy])
    half = ends[-1] / 2
    # After busy topic i the sum is ends[i]: of the two cuts around the half, the nearer one.
    after = int(np.searchsorted(ends, half))
    before = max(after - 1, 0)
    nearer = before if half - ends[before] <= ends[after] - half else after
    left, right = places[busy[min(nearer, len(busy) - 2) :][:2]].tolist()
    cut = left + (right - left) // 2 + 1
    # A last bundle has no hash above its highest one.
    return (cut,) if cut < bundle.high else ()


def _check(bundle: BundleName, hashes: IntArray, weights: FloatArray) -> None:
    if hashes.shape != weights.shape:
        raise InputError(f"bundle {bundle}: {len(hashes)} hashes, but {len(weights)} weights")
    if not len(hashes):
        return
    if hashes.min() < bundle.low or hashes.max() > bundle.high:
        raise InputError(f"bundle {bundle}: the hash of a topic is outside its range")
    if not np.isfinite(weights).all() or weights.min() < 0:
        raise InputError(f"bundle {bundle}: the weight of a topic is negative or not finite")
