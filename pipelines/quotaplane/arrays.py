"""Small operations on arrays that several rooms share."""

from __future__ import annotations

import numpy as np

from quotaplane.model import FloatArray


def to_single(rates: FloatArray) -> FloatArray:
    """Rates to float32 precision, rounded down: limits that add up to a quota still do.

    >>> float(to_single(np.array([1 / 3]))[0]) <= 1 / 3
    True
    """
    single = rates.astype(np.float32)
    down = np.nextafter(single, np.float32(-np.inf))
    return np.where(single > rates, down, single).astype(np.float64)
