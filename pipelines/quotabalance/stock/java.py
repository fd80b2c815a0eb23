"""Java's numbers and the order in which its hash maps list their keys, for arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from quotabalance.stock.name_places import name_places, same_names
from quotaplane.model import FloatArray, IntArray

INT_MIN: Final = -(2**31)
INT_MAX: Final = 2**31 - 1
_LEAST_CAPACITY: Final = 16
_INVERSE_OF_31: Final = pow(31, -1, 2**32)

HashArray = npt.NDArray[np.uint32]


def to_int(value: float) -> int:
    """``(int) value``: cut towards 0, saturated; NaN is 0.

    >>> to_int(-2.9), to_int(1e300), to_int(float("nan"))
    (-2, 2147483647, 0)
    """
    if value != value:
        return 0
    return int(max(INT_MIN, min(INT_MAX, value)))


def wrap_int(value: int) -> int:
    """A sum of ints as Java has it: modulo 2^32, so that it may change its sign.

    >>> wrap_int(2**31 - 1 + 1000)
    -2147482649
    """
    return (value - INT_MIN) % 2**32 + INT_MIN


def percent_usage(usage: FloatArray, limit: FloatArray) -> FloatArray:
    """``ResourceUsage.percentUsage()``, which computes in 32 bits; 0 where the limit is.

    >>> percent_usage(np.array([1.0, 5.0]), np.array([3.0, 0.0])).tolist()
    [33.333335876464844, 0.0]
    """
    with np.errstate(all="ignore"):
        share = usage.astype(np.float32) / limit.astype(np.float32) * np.float32(100)
    return np.where(limit > 0, share, np.float32(0)).astype(np.float64)


def string_hashes(names: Sequence[str]) -> HashArray:
    """``String.hashCode()`` of each name, as unsigned.

    >>> string_hashes(["", "a", "acme/orders"]).tolist()
    [0, 97, 2049750362]
    """
    if not len(names):
        return np.zeros(0, np.uint32)
    text = np.array(names, dtype=np.str_)
    width = text.dtype.itemsize // 4
    codes = text.view(np.uint32).reshape(len(names), width) if width else np.zeros((len(names), 0))
    if width and codes.max() > 0xFFFF:
        return np.array([_hash_of_units(name) for name in names], np.uint32)
    powers = np.array([pow(31, width - 1 - at, 2**32) for at in range(width)], np.uint32)
    padded = np.zeros(len(names), np.uint32)
    for at in range(width):  # over letters: of a name there are few
        padded += codes[:, at].astype(np.uint32) * powers[at]
    lengths = np.fromiter(map(len, names), np.int64, len(names))
    # Letters that a shorter name does not have were counted as 0s behind it.
    undo = np.array([pow(_INVERSE_OF_31, count, 2**32) for count in range(width + 1)], np.uint32)
    hashes: HashArray = padded * undo[np.clip(width - lengths, 0, width)]
    return hashes


def _hash_of_units(name: str) -> int:
    found = 0
    for unit in np.frombuffer(name.encode("utf-16-le", "surrogatepass"), "<u2").tolist():
        found = (31 * found + unit) % 2**32
    return found


def spread(hashes: HashArray) -> HashArray:
    """How ``HashMap`` and ``ConcurrentHashMap`` mix a hash before they choose a bucket."""
    mixed: HashArray = hashes ^ (hashes >> np.uint32(16))
    return mixed


class HashMapOrder:
    """The order in which a ``HashMap`` lists its keys; its table grows and never shrinks.

    Java turns a bucket of nine or more keys into a tree; that changes the order within this bucket,
    and is not reproduced.

    >>> HashMapOrder().order(spread(string_hashes(["b2", "b1", "b3"]))).tolist()
    [0, 2, 1]
    """

    def __init__(self) -> None:
        self.capacity = _LEAST_CAPACITY

    def order(self, spreads: HashArray) -> IntArray:
        """The iteration order after ``clear()`` and insertion of these keys, as indices."""
        self.capacity = max(self.capacity, table_capacity(len(spreads)))
        return _by_bucket(spreads, self.capacity)


def table_capacity(keys: int) -> int:
    """Buckets of a new ``HashMap`` after this many keys were inserted.

    >>> table_capacity(12), table_capacity(13)
    (16, 32)
    """
    capacity = _LEAST_CAPACITY
    while keys * 4 > capacity * 3:
        capacity *= 2
    return capacity


def _by_bucket(spreads: HashArray, capacity: int) -> IntArray:
    bucket = spreads & np.uint32(capacity - 1)
    return np.argsort(bucket, kind="stable").astype(np.int64)


class ConcurrentMapOrder:
    """The order in which a ``ConcurrentHashMap`` lists its keys, which come and go.

    Within a bucket it depends on the order of insertion and on every growth of the table: both are
    followed. Trees (nine or more keys in a bucket) are not, as in ``HashMapOrder``.

    >>> keys = ConcurrentMapOrder()
    >>> keys.replace(["b2", "b1", "b3"]).tolist()
    [0, 2, 1]
    """

    def __init__(self) -> None:
        self._names: Sequence[str] = ()
        self.spreads: HashArray = np.zeros(0, np.uint32)
        """Mixed hashes of the present keys, in the order in which they were given."""
        self._order: IntArray = np.zeros(0, np.int64)
        self._capacity = _LEAST_CAPACITY

    def replace(self, names: Sequence[str], insertion: IntArray | None = None) -> IntArray:
        """Insert the names that are new, then remove those that are gone.

        Args:
            names: all keys that remain.
            insertion: indices of ``names`` in the order of insertion; else as they are given.

        Returns:
            Indices of ``names`` in iteration order.
        """
        if same_names(names, self._names):
            return self._order
        before = len(self._names)
        found = name_places(names, self._names)
        new = np.flatnonzero(found < 0)
        if insertion is not None:
            new = insertion[found[insertion] < 0]
        # Numbers of keys here: first all earlier ones, then the new ones in order of insertion.
        spreads = np.empty(len(names), np.uint32)
        spreads[found >= 0] = self.spreads[found[found >= 0]]
        spreads[new] = spread(string_hashes([names[at] for at in new.tolist()]))
        listed = self._insert(np.concatenate([self.spreads, spreads[new]]), before)
        place = np.full(before + len(new), -1, np.int64)
        kept = np.flatnonzero(found >= 0)
        place[found[kept]] = kept
        place[before:] = new
        order = place[listed]
        self._names, self.spreads, self._order = names, spreads, order[order >= 0]
        return self._order

    def listed(self, spreads: HashArray) -> IntArray:
        """The iteration order of a new map after insertion of keys with these mixed hashes."""
        return self._insert(spreads, 0)

    def _insert(self, spreads: HashArray, before: int) -> IntArray:
        """Keys 0 to ``before`` are there, listed as ``_order``; the others are inserted."""
        listed, there = self._order, before
        while True:
            full = self._capacity - self._capacity // 4
            upto = min(len(spreads), full)
            if upto > there:
                listed = np.concatenate([listed, np.arange(there, upto)])
                listed = listed[_by_bucket(spreads[listed], self._capacity)]
                there = upto
            if there < full:
                return listed
            listed = listed[_grown(spreads[listed], self._capacity)]
            self._capacity *= 2


def _grown(spreads: HashArray, capacity: int) -> IntArray:
    """The order after a growth, of keys in iteration order: each bucket becomes two. Java takes
    over the end of the list whose keys all go to the same one, and puts the others in front of
    it one by one, which turns them round.
    """
    bucket = spreads & np.uint32(capacity - 1)
    goes_up = (spreads & np.uint32(capacity)) != 0
    at = np.arange(len(spreads))
    first = np.flatnonzero(np.r_[True, bucket[1:] != bucket[:-1]])
    changes = np.r_[(bucket[1:] == bucket[:-1]) & (goes_up[1:] != goes_up[:-1]), False]
    last_change = np.maximum.reduceat(np.where(changes, at, -1), first)
    sizes = np.diff(np.r_[first, len(spreads)])
    in_last_run = at > np.repeat(last_change, sizes)
    within = np.where(in_last_run, at, -at - 1)
    order: IntArray = np.lexsort((within, spreads & np.uint32(2 * capacity - 1)))
    return order
