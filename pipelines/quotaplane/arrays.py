"""Small operations on arrays that several rooms share."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import FloatArray, IntArray


def to_single(rates: FloatArray) -> FloatArray:
    """Rates to float32 precision, rounded down: limits that add up to a quota still do.

    >>> float(to_single(np.array([1 / 3]))[0]) <= 1 / 3
    True
    """
    single = rates.astype(np.float32)
    down = np.nextafter(single, np.float32(-np.inf))
    return np.where(single > rates, down, single).astype(np.float64)


def places(names: pa.StringArray, among: pa.StringArray) -> IntArray:
    """Where each of the names (n,) is among others; -1: nowhere."""
    found = pc.index_in(names, value_set=among).fill_null(-1)
    return np.asarray(found.to_numpy(zero_copy_only=False), dtype=np.int64)
