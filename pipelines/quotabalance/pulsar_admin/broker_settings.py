"""Reads which load manager a broker has, and whether it balances by itself."""

from __future__ import annotations

from typing import Final, NamedTuple

from quotaplane.parsing.bounded_json import MALFORMED, parse_bounded
from quotaplane.pulsar_admin.rest import Rest

_RUNTIME: Final = Rest.path("brokers", "configuration", "runtime")
_EXTENSIBLE: Final = "ExtensibleLoadManagerImpl"
_ENABLED: Final = "loadBalancerEnabled"
_SWITCHES: Final = ("loadBalancerSheddingEnabled", "loadBalancerAutoBundleSplitEnabled")


class BrokerSettings(NamedTuple):
    """How a broker is set to balance, including what was set while it runs."""

    extensible: bool
    """It has the extensible load manager, not the modular one."""
    switched_on: tuple[str, ...]
    """Settings by which it moves or splits bundles itself when it is the leader."""


async def read_broker_settings(rest: Rest, broker_url: str) -> BrokerSettings:
    """Ask a broker for its settings.

    Raises:
        ClusterError: it does not answer, refuses us, or the answer has no settings.
    """
    answer = await rest.get_bytes(_RUNTIME, broker_url)
    try:
        configuration = dict(parse_bounded(answer))  # all values are texts
    except MALFORMED:
        raise rest.failure(f"GET {_RUNTIME}: the answer has no settings") from None
    manager = str(configuration.get("loadManagerClassName", ""))
    on = [key for key in _SWITCHES if configuration.get(key) == "true"]
    if configuration.get(_ENABLED, "true") != "true":
        on = []
    return BrokerSettings(manager.endswith(_EXTENSIBLE), tuple(on))
