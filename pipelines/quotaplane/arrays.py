"""Small array operations that several rooms use."""

from __future__ import annotations

import numpy as np

from quotaplane.model import FloatArray, IntArray


def to_single(rates: FloatArray) -> FloatArray:
    """Round rates down to float32 precision, so that limits still add up to at most the quota.

    >>> float(to_single(np.array([1 / 3]))[0]) <= 1 / 3
    True
    """
    single = rates.astype(np.float32)
    down = np.nextafter(single, np.float32(-np.inf))
    return np.where(single > rates, down, single).astype(np.float64)


def to_half(values: FloatArray) -> FloatArray:
    """Round to float16, the precision in which the state keeps noise and deviations."""
    most = float(np.finfo(np.float16).max)
    half: FloatArray = np.clip(values, -most, most).astype(np.float16).astype(np.float64)
    return half


def find(keys: IntArray, wanted: IntArray) -> IntArray:
    """The index of each ``wanted`` key (m,) in ``keys`` (n,), which ascend; -1: it is not there.

    >>> find(np.array([3, 5]), np.array([5, 4, 9])).tolist()
    [1, -1, -1]
    """
    if not len(keys):
        return np.full(len(wanted), -1, np.int64)
    place = np.minimum(np.searchsorted(keys, wanted), len(keys) - 1)
    return np.where(keys[place] == wanted, place, -1)
