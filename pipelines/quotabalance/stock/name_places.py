"""Where names are in another list of names."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import IntArray


def same_names(one: Sequence[str], other: Sequence[str]) -> bool:
    """Whether the lists are equal; fast if they are the same object.

    So a list of names that a strategy has must not change.
    """
    return one is other or (len(one) == len(other) and one == other)


def name_places(wanted: Sequence[str], names: Sequence[str]) -> IntArray:
    """The index in ``names`` of each wanted one, -1 if it is not there.

    >>> name_places(("b1", "b3"), ("b2", "b1")).tolist()
    [1, -1]
    """
    listed = pa.array(names, pa.string())
    places = pc.index_in(pa.array(wanted, pa.string()), value_set=listed)
    return np.asarray(places.fill_null(-1), np.int64)
