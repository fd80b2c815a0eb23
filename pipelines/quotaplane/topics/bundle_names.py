"""Names of Pulsar's bundles: ``tenant/namespace/0x00000000_0x40000000``."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from quotaplane.errors import InputError

SYSTEM_NAMESPACE: Final = "pulsar/system"
"""Pulsar's topics about itself. Its bundles are owned and moved like those of tenants."""

PULSARS_OWN: Final = ("pulsar/", "sla-monitor/")
"""How Pulsar's own namespaces begin: ``SYSTEM_NAMESPACE``, and those of single brokers (heartbeat
and SLA namespaces), whose bundles never leave their broker."""

FULL_RANGE: Final = 0xFFFFFFFF
"""The highest hash of a topic; the last bundle of a namespace contains it, all others end before
their upper bound."""

_OF_ONE_BROKER: Final = re.compile(r"(pulsar(/[^/]+)?/[^/]+:\d+|sla-monitor/.*)/0x")
_NAME: Final = re.compile(r"([^/\s]+/[^\s]+)/0x([0-9a-fA-F]{8})_0x([0-9a-fA-F]{8})")


class BundleName(NamedTuple):
    """A bundle: the topics of one namespace whose hashes are in a range."""

    namespace: str
    low: int
    """The lowest hash that it contains."""
    high: int
    """The first hash after it; of a namespace's last bundle: the last hash in it."""

    @property
    def last(self) -> int:
        """The highest hash that it contains."""
        return self.high if self.high == FULL_RANGE else self.high - 1

    @property
    def range(self) -> str:
        """The range as Pulsar writes it."""
        return f"0x{self.low:08x}_0x{self.high:08x}"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.range}"


def is_of_one_broker(bundle: str) -> bool:
    """Whether the bundle is of a namespace that belongs to one broker: its heartbeats, or the
    monitor of its availability.

    >>> is_of_one_broker("pulsar/b1:8080/0x00000000_0xffffffff")
    True
    >>> is_of_one_broker("pulsar/system/0x00000000_0xffffffff")
    False
    """
    return _OF_ONE_BROKER.match(bundle) is not None


def namespace_of(bundle: str) -> str:
    """The namespace in a bundle's name, which is not checked.

    >>> namespace_of("acme/orders/0x00000000_0xffffffff")
    'acme/orders'
    """
    return bundle.rpartition("/")[0]


def parse_bundle(name: str) -> BundleName:
    """Read a bundle's name.

    Raises:
        InputError: it is not the name of a bundle.

    >>> bundle = parse_bundle("acme/orders/0x40000000_0x80000000")
    >>> bundle.namespace, bundle.high - bundle.low == 2**30, str(bundle)
    ('acme/orders', True, 'acme/orders/0x40000000_0x80000000')
    >>> hex(bundle.last), hex(parse_bundle("acme/orders/0xc0000000_0xffffffff").last)
    ('0x7fffffff', '0xffffffff')
    """
    found = _NAME.fullmatch(name)
    if not found:
        raise InputError(
            f"{name[:200]!r} is not a bundle; expected tenant/namespace/0x00000000_0xffffffff"
        )
    bundle = BundleName(found[1], int(found[2], 16), int(found[3], 16))
    if bundle.low >= bundle.high:
        raise InputError(f"{name[:200]!r} is not a bundle: its range is empty")
    return bundle
