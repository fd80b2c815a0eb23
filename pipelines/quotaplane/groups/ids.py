"""Ids of group names, cached: 500,000 SHA-256 hashes a round would take too long."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from itertools import chain
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.groups.names import usable
from quotaplane.model import SEPARATOR, TREE_BITS, IntArray

NO_ID: Final = -1
"""In place of an id: the name can't be one of a group."""

NOT_READ: Final = -2
"""In place of an id: the name is new, and its batch has more new names than it may have."""

_MOST_NAMES: Final = 400_000
"""Bound of the cache, with ``GroupIds.most_bytes``; with the dictionary it stays below 100 MB."""


@dataclass
class NewNames:
    """Names, new to this process, that may still be turned into ids."""

    left: int


@dataclass
class GroupIds:
    """Ids by name, cached. When the cache is full it drops all; a name again takes a microsecond.

    Args:
        most_bytes: of the names in memory; an emoji makes each character of its name take four.
        most_strings: distinct names of a column that become Python strings at a time.
        most_encoded: entries that Arrow searches for distinct names at a time; one table of a
            million names takes longer than two of half a million.
        sample: entries by which a long column is judged to have mostly new names.
    """

    most_bytes: int = 64_000_000
    most_strings: int = 100_000
    most_encoded: int = 500_000
    sample: int = 500
    cached: dict[str, int] = field(default_factory=dict)
    _bytes: int = 0

    def of(self, names: Sequence[str], room: NewNames) -> IntArray:
        """See ``ids_of``."""
        found = list(map(self.cached.get, names))
        if None not in found:
            return np.array(found, np.int64)
        new = [at for at, number in enumerate(found) if number is None][: room.left]
        room.left -= len(new)
        numbers = np.array([NOT_READ if number is None else number for number in found], np.int64)
        texts = [names[at] for at in new]
        digested = numbers[new] = _digested(texts)
        size = sum(map(sys.getsizeof, texts))
        if len(self.cached) + len(new) > _MOST_NAMES or self._bytes + size > self.most_bytes:
            self.cached.clear()
            self._bytes = 0
        self._bytes += size
        self.cached.update(zip(texts, digested.tolist(), strict=True))
        return numbers

    def of_column(self, names: pa.Array, room: NewNames) -> IntArray:
        """See ``ids_of_column``."""
        if not room.left:
            return self._known(names)
        parts: list[IntArray] = []
        begin = 0
        while begin < len(names):
            mostly_new = self._are_mostly_new(names.slice(begin))
            end = begin + (self.most_strings if mostly_new else self.most_encoded)
            encoded = names.slice(begin, end - begin).dictionary_encode()
            begin = end
            texts = encoded.dictionary
            # Hashed in Arrow first: a group on five brokers becomes one Python string, not five.
            distinct = np.empty(len(texts), np.int64)
            read = 0
            while read < len(texts) and room.left:
                part = texts.slice(read, self.most_strings).to_numpy(zero_copy_only=False).tolist()
                distinct[read : read + len(part)] = self.of(part, room)
                read += len(part)
            if read == len(texts):
                parts.append(distinct[encoded.indices.to_numpy()])
                continue
            # No new name may be read any more.
            further = self._known(pa.concat_arrays([texts.slice(read), names.slice(end)]))
            distinct[read:] = further[: len(texts) - read]
            parts += [distinct[encoded.indices.to_numpy()], further[len(texts) - read :]]
            break
        return np.concatenate([np.empty(0, np.int64), *parts])

    def _known(self, names: pa.StringArray) -> IntArray:
        """Cached ids, ``NOT_READ`` for each new name; makes no Python strings of ``names``."""
        numbers = np.fromiter(chain(self.cached.values(), (NOT_READ,)), np.int64)
        found = pc.index_in(names, pa.array([*self.cached], pa.string()))
        result: IntArray = numbers[found.fill_null(len(self.cached)).to_numpy()]
        return result

    def _are_mostly_new(self, names: pa.Array) -> bool:
        """Whether most of a sample are: then a large table of distinct names would be of no use."""
        if len(names) <= self.most_strings:
            return False
        every = pa.array(np.arange(0, len(names), len(names) // self.sample))
        sample = names.take(every).to_pylist()
        return 2 * sum(name in self.cached for name in sample) < len(sample)


_IDS: Final = GroupIds()


def _digested(names: Sequence[str]) -> IntArray:
    """``model.group_id`` of many names, ``NO_ID`` for what can't be one."""
    # Not from the names themselves: a name given to Arrow keeps its UTF-8 form as well.
    encoded = [name.encode() for name in names]
    column = pa.array(encoded, pa.binary()).cast(pa.string())
    numbers = _upper_bits(encoded)
    in_trees = np.flatnonzero(pc.match_substring(column, SEPARATOR).to_numpy(zero_copy_only=False))
    if len(in_trees):
        roots = [names[at].partition(SEPARATOR)[0].encode() for at in in_trees.tolist()]
        coded = pa.array(roots, pa.binary()).dictionary_encode()
        root = _upper_bits(coded.dictionary.to_pylist())[coded.indices.to_numpy()]
        own = (1 << TREE_BITS) - 1
        numbers[in_trees] = root & ~own | numbers[in_trees] & own
    numbers[~usable(names, column)] = NO_ID
    return numbers


def _upper_bits(names: Sequence[bytes]) -> IntArray:
    """The first 63 bits of each name's SHA-256."""
    digests = b"".join([sha256(name).digest() for name in names])
    first: IntArray = (np.frombuffer(digests, ">u8")[::4] >> np.uint64(1)).astype(np.int64)
    return first


def ids_of(names: Iterable[str], room: NewNames | None = None) -> IntArray:
    """The ids of group names; ``NO_ID`` for what is empty, longer than 1024, or not printable.

    ``NOT_READ`` where ``room`` has none left for new names.

    >>> ids_of(["tenant-a/orders", ""]).tolist()
    [3895966954609217153, -1]
    >>> tenant, namespace = ids_of(["acme", "acme::orders"])
    >>> bool(tenant >> 40 == namespace >> 40)
    True
    """
    return _IDS.of([*names], room or NewNames(sys.maxsize))


def ids_of_column(names: pa.Array, room: NewNames | None = None) -> IntArray:
    """The same for an Arrow array of strings in which names may repeat (no nulls)."""
    return _IDS.of_column(names, room or NewNames(sys.maxsize))
