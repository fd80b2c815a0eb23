"""The brokers of a cluster, and the address of each one's own REST API."""

from __future__ import annotations

from typing import Any, NamedTuple
from urllib.parse import quote

from quotaplane.parsing.bounded_json import MALFORMED
from quotaplane.pulsar_admin.rest import Rest


class BrokerAddress(NamedTuple):
    """Where a broker can be reached."""

    name: str
    """As in its usage reports: the URL of its binary protocol."""
    url: str
    """The URL of its own REST API."""


async def look_up_broker(rest: Rest, broker: str) -> BrokerAddress:
    """The addresses of a broker ``host:port`` of the cluster's list.

    Raises:
        ClusterError: it does not answer, or the answer has no addresses.
    """
    # A broker owns its own heartbeat topic, so looking that up returns its addresses.
    path = f"/lookup/v2/topic/persistent/pulsar/{quote(broker)}/healthcheck"
    return address_in(rest, path, await rest.get(path))


def address_in(rest: Rest, path: str, answer: Any) -> BrokerAddress:
    """The broker in the answer to a lookup.

    Raises:
        ClusterError: there is none.
    """
    tls = rest.url.startswith("https:")
    try:
        name = answer.get("brokerUrl") or answer["brokerUrlTls"]
        return BrokerAddress(str(name), str(answer["httpUrlTls" if tls else "httpUrl"]))
    except MALFORMED:
        raise rest.failure(f"GET {path}: the answer has no URL of the broker") from None
