"""Bundles: hash ranges of a namespace's topics; a broker owns a bundle as a whole."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from quotaplane.model import IntArray

_RANGE: Final = re.compile(r"^(.+)/0x([0-9a-fA-F]{8})_0x([0-9a-fA-F]{8})$")
_BITS: Final = 32


class Bundle(NamedTuple):
    """A range of a namespace's topics."""

    namespace: str
    first: int
    """Lowest hash in the range."""
    last: int
    """Highest hash in the range."""


def bundle_of(owned: str) -> Bundle | None:
    """Parse a bundle's name; None if it is not a bundle of a tenant's namespace.

    >>> bundle_of("acme/orders/0xc0000000_0xffffffff")
    Bundle(namespace='acme/orders', first=3221225472, last=4294967295)
    >>> bundle_of("acme/orders/0x00000000_0xc0000000").last
    3221225471
    """
    match = _RANGE.match(owned)
    if not match or match[1].count("/") != 1:
        return None
    first, end = int(match[2], 16), int(match[3], 16)
    # The second number is exclusive, except in the highest range.
    return Bundle(match[1], first, end if end == 2**_BITS - 1 else end - 1)


def owners(
    namespace: IntArray, hashed: IntArray, names: Sequence[str], bundles: Sequence[Sequence[Bundle]]
) -> IntArray:
    """The index of the broker that owns each of p topics; -1 = no broker.

    Args:
        namespace: (p,) index of each topic's namespace in ``names``.
        hashed: (p,) CRC32 of each topic's full name, which decides its bundle.
        names: the namespaces.
        bundles: the bundles of each broker.

    >>> bundles = [[Bundle("a/b", 0, 99)], [Bundle("a/b", 100, 200)]]
    >>> owners(np.zeros(3, np.int64), np.array([100, 99, 201]), ["a/b"], bundles).tolist()
    [1, 0, -1]
    """
    place = {name: index for index, name in enumerate(names)}
    first, last, owner = [], [], []
    for broker, owned in enumerate(bundles):
        for bundle in owned:
            at = place.get(bundle.namespace)
            if at is not None:
                first.append(at << _BITS | bundle.first)
                last.append(at << _BITS | bundle.last)
                owner.append(broker)
    if not first:
        return np.full(len(hashed), -1, np.int64)
    starts, ends = np.array(first), np.array(last)
    order = np.argsort(starts, kind="stable")
    starts, ends, broker_of = starts[order], ends[order], np.array(owner, np.int64)[order]
    key = (namespace << _BITS) | hashed
    index = np.maximum(np.searchsorted(starts, key, side="right") - 1, 0)
    inside = (starts[index] <= key) & (key <= ends[index])
    return np.where(inside, broker_of[index], -1)
