"""Group names to ids, remembered: a SHA-256 for each of 500,000 entries a round would cost."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import MAX_GROUP_CHARS, SEPARATOR, TREE_BITS, BoolArray, IntArray
from quotaplane.wire.caps import Caps

NO_ID: Final = -1
"""In place of an id: the name can't be one of a group."""

NOT_READ: Final = -2
"""In place of an id: the name is new, and so are too many of its batch."""

_MOST_NAMES: Final = 400_000
_MOST_CHARS: Final = 40_000_000
"""What is remembered, names or their characters together: below 100 MB."""

_AT_ONCE: Final = 100_000
"""So many distinct names of a column become Python's strings at a time."""


class _GroupIds(dict[str, int]):
    """Bounded by forgetting everything.

    Refilling it costs about a microsecond a name; a cluster with more names than fit pays that.
    """

    def __init__(self) -> None:
        self._chars = 0

    def of(self, names: Sequence[str], caps: Caps | None) -> IntArray:
        found = list(map(self.get, names))
        if None not in found:
            return np.array(found, np.int64)
        new = [at for at, number in enumerate(found) if number is None]
        numbers = np.array([NOT_READ if number is None else number for number in found], np.int64)
        if caps is not None:
            new = new[: caps.new_names]
            caps.new_names -= len(new)
        texts = [names[at] for at in new]
        digested = numbers[new] = _digested(pa.array(texts, pa.string()))
        chars = sum(map(len, texts))
        if len(self) + len(new) > _MOST_NAMES or self._chars + chars > _MOST_CHARS:
            self.clear()
            self._chars = 0
        self._chars += chars
        self.update(zip(texts, digested.tolist(), strict=True))
        return numbers


_IDS: Final = _GroupIds()


def _digested(names: pa.StringArray) -> IntArray:
    """``model.group_id`` of many names, ``NO_ID`` for what can't be one."""
    numbers = _upper_bits(names)
    in_trees = np.flatnonzero(pc.match_substring(names, SEPARATOR).to_numpy(zero_copy_only=False))
    if len(in_trees):
        paths = names.take(pa.array(in_trees)).to_numpy(zero_copy_only=False)
        roots = [path.partition(SEPARATOR)[0] for path in paths]
        coded = pa.array(roots, pa.string()).dictionary_encode()
        root = _upper_bits(coded.dictionary)[coded.indices.to_numpy()]
        own = (1 << TREE_BITS) - 1
        numbers[in_trees] = root & ~own | numbers[in_trees] & own
    numbers[~_usable(names)] = NO_ID
    return numbers


def _upper_bits(names: pa.StringArray) -> IntArray:
    """The first 63 bits of each name's SHA-256."""
    texts = names.cast(pa.binary()).to_numpy(zero_copy_only=False)
    digests = b"".join([sha256(text).digest() for text in texts])
    first: IntArray = (np.frombuffer(digests, ">u8")[::4] >> np.uint64(1)).astype(np.int64)
    return first


def _usable(names: pa.StringArray) -> BoolArray:
    length = pc.utf8_length(names).to_numpy()
    usable: BoolArray = (length > 0) & (length <= MAX_GROUP_CHARS)
    ascii_ = pc.ascii_is_printable(names).to_numpy(zero_copy_only=False)
    for at in np.flatnonzero(usable & ~ascii_).tolist():
        usable[at] = names[at].as_py().isprintable()
    return usable


def ids_of(names: Iterable[str], caps: Caps | None = None) -> IntArray:
    """The ids of group names; ``NO_ID`` for what is empty, longer than 1024, or not printable.

    ``NOT_READ`` where ``caps`` allow no more new names.

    >>> ids_of(["tenant-a/orders", ""]).tolist()
    [3895966954609217153, -1]
    >>> tenant, namespace = ids_of(["acme", "acme::orders"])
    >>> bool(tenant >> 40 == namespace >> 40)
    True
    """
    return _IDS.of([*names], caps)


def ids_of_column(names: pa.Array, caps: Caps | None = None) -> IntArray:
    """The same for an Arrow array of strings in which names may repeat (no nulls)."""
    # Hashing in Arrow first: a group used on five brokers becomes one Python string, not five.
    encoded = names.dictionary_encode()
    texts = encoded.dictionary
    parts = (texts.slice(begin, _AT_ONCE) for begin in range(0, len(texts), _AT_ONCE))
    distinct = [ids_of(part.to_numpy(zero_copy_only=False).tolist(), caps) for part in parts]
    places: npt.NDArray[np.int32] = encoded.indices.to_numpy()
    return np.concatenate([np.empty(0, np.int64), *distinct])[places]
