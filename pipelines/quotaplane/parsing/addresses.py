"""Hosts in addresses and URLs, and whether they are this machine."""

from __future__ import annotations

import ipaddress
from typing import Final
from urllib.parse import urlsplit

_CLEAR_SCHEMES: Final = ("http", "pulsar")
"""Schemes of connections without TLS; all others that settings accept have TLS."""


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine can connect to an address.

    >>> [is_loopback(host) for host in ("localhost", "127.0.0.7", "::1", "0.0.0.0", "qp.example")]
    [True, True, True, False, False]
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def host_of(address: str) -> str:
    """The host of ``host:port``; empty if there is none.

    >>> [host_of(address) for address in ("b1:9092", "[::1]:6650", "b1", "[::1")]
    ['b1', '::1', 'b1', '']
    """
    try:
        return urlsplit(f"//{address.strip()}").hostname or ""
    except ValueError:
        return ""


def first_remote(addresses: str) -> str | None:
    """The first host of a comma-separated list that is not this machine; None: there is none.

    >>> first_remote("localhost:9092, b1:9092, b2:9092"), first_remote("[::1]:6650")
    ('b1', None)
    """
    hosts = (host_of(address) for address in addresses.split(",") if address.strip())
    return next((host for host in hosts if not is_loopback(host)), None)


def clear_to(url: str) -> str | None:
    """The remote host to which a URL connects without TLS; None: there is none.

    A Pulsar URL may list several: ``pulsar://b1:6650,b2:6650``.

    >>> [clear_to(url) for url in ("http://b1:8080/", "https://b1:8443", "pulsar://[::1]:1,b2:1")]
    ['b1', None, 'b2']
    """
    scheme, _, rest = url.partition("://")
    return first_remote(rest.partition("/")[0]) if scheme.lower() in _CLEAR_SCHEMES else None


def has_password(url: str) -> bool:
    """Whether a URL has a user name or password before its host.

    >>> has_password("http://me:secret@b1:8080"), has_password("http://b1/a@b")
    (True, False)
    """
    return "@" in url.partition("://")[2].partition("/")[0]
