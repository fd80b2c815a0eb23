"""Group names to ids, remembered: a SHA-256 for each of 500,000 entries a round would cost."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from quotaplane.model import MAX_GROUP_CHARS, IntArray, group_id

NO_ID: Final = -1
"""In place of an id: the name can't be one of a group."""

_MOST_NAMES: Final = 2_000_000


class _GroupIds(dict[str, int]):
    """Bounded by forgetting everything.

    Refilling it costs about a microsecond a name; a cluster with more names than fit pays that.
    """

    def __missing__(self, name: str) -> int:
        usable = 0 < len(name) <= MAX_GROUP_CHARS and name.isprintable()
        number = group_id(name) if usable else NO_ID
        if len(self) >= _MOST_NAMES:
            self.clear()
        if usable:
            self[name] = number
        return number


_IDS: Final = _GroupIds()


def ids_of(names: Iterable[str]) -> IntArray:
    """The ids of group names; ``NO_ID`` for what is empty, longer than 1024, or not printable.

    >>> ids_of(["tenant-a/orders", ""]).tolist()
    [3895966954609217153, -1]
    >>> tenant, namespace = ids_of(["acme", "acme::orders"])
    >>> bool(tenant >> 40 == namespace >> 40)
    True
    """
    return np.fromiter(map(_IDS.__getitem__, names), np.int64)


def ids_of_column(names: pa.Array) -> IntArray:
    """The same for an Arrow array of strings in which names may repeat (no nulls)."""
    # Hashing in Arrow first: a group used on five brokers becomes one Python string, not five.
    encoded = names.dictionary_encode()
    distinct = ids_of(encoded.dictionary.to_numpy(zero_copy_only=False))
    places: npt.NDArray[np.int32] = encoded.indices.to_numpy()
    return distinct[places]
