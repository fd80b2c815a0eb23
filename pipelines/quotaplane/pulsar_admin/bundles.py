"""The bundles of tenants' namespaces, and which broker owns a topic by them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from quotaplane.errors import InputError
from quotaplane.model import IntArray
from quotaplane.topics.bundle_names import BundleName, parse_bundle

_BITS: Final = 32


def tenant_bundle(owned: str) -> BundleName | None:
    """Parse the name of a bundle that a broker owns; None if it is not of a tenant's namespace.

    >>> tenant_bundle("acme/orders/0xc0000000_0xffffffff")
    BundleName(namespace='acme/orders', low=3221225472, high=4294967295)
    >>> tenant_bundle("sla-monitor/test/b1:8080/0x00000000_0xffffffff")
    """
    try:
        bundle = parse_bundle(owned)
    except InputError:
        return None
    return bundle if bundle.namespace.count("/") == 1 else None


def owners(
    namespace: IntArray,
    hashed: IntArray,
    names: Sequence[str],
    bundles: Sequence[Sequence[BundleName]],
) -> IntArray:
    """The index of the broker that owns each of p topics; -1 = no broker.

    Args:
        namespace: (p,) index of each topic's namespace in ``names``.
        hashed: (p,) CRC32 of each topic's full name, which decides its bundle.
        names: the namespaces.
        bundles: the bundles of each broker.

    >>> bundles = [[BundleName("a/b", 0, 100)], [BundleName("a/b", 100, 201)]]
    >>> owners(np.zeros(3, np.int64), np.array([100, 99, 201]), ["a/b"], bundles).tolist()
    [1, 0, -1]
    """
    place = {name: index for index, name in enumerate(names)}
    first, last, owner = [], [], []
    for broker, owned in enumerate(bundles):
        for bundle in owned:
            at = place.get(bundle.namespace)
            if at is not None:
                first.append(at << _BITS | bundle.low)
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
