"""Reads and writes the publish or dispatch rate of one topic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from quotaplane.bounded_json import MALFORMED
from quotaplane.errors import ClusterError
from quotaplane.model import FloatArray
from quotaplane.pulsar_admin.rest import Rest

_PATHS: Final = ("publishRate", "dispatchRate")
RATE_KEYS: Final = (
    ("publishThrottlingRateInMsg", "publishThrottlingRateInByte"),
    ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
)
_ALSO: Final[tuple[dict[str, object], ...]] = (
    {},
    {"relativeToPublishRate": False, "ratePeriodInSecond": 1},
)


def rate_path(topic: str, kind: int) -> str:
    """The REST path of a topic's rate; ``kind`` is 0 for publish, 1 for dispatch.

    >>> rate_path("persistent://acme/orders/a topic", 1)
    '/admin/v2/persistent/acme/orders/a%20topic/dispatchRate'
    """
    domain, _, name = topic.partition("://")
    return Rest.path(domain, name, _PATHS[kind])


def rate_body(kind: int, rates: FloatArray) -> dict[str, object]:
    """Pulsar's JSON for rates (2,) in messages and bytes; inf = unlimited.

    >>> rate_body(0, np.array([30.0, np.inf]))
    {'publishThrottlingRateInMsg': 30, 'publishThrottlingRateInByte': -1}
    >>> rate_body(0, np.array([0.4, 0.0]))
    {'publishThrottlingRateInMsg': 1, 'publishThrottlingRateInByte': 1}
    """
    # Never rounded down, as 0 means unlimited to Pulsar.
    whole = [max(math.ceil(rate), 1) if np.isfinite(rate) else -1 for rate in rates]
    return {**dict(zip(RATE_KEYS[kind], whole, strict=True)), **_ALSO[kind]}


def rates_in(policy: Mapping[str, Any], kind: int) -> FloatArray:
    """Parse Pulsar's JSON of a rate: (2,) in messages and bytes; inf = unlimited.

    >>> rates_in({"publishThrottlingRateInMsg": 30, "publishThrottlingRateInByte": 0}, 0)
    array([30., inf])
    """
    rates = np.array([float(policy.get(key, -1)) for key in RATE_KEYS[kind]])
    return np.where(rates > 0, rates, np.inf)


async def read_rate(rest: Rest, topic: str, kind: int) -> FloatArray:
    """Read a topic's own rate, (2,) in messages and bytes; inf = unlimited.

    Raises:
        ClusterError: it can't be read.
    """
    policy = await rest.get(rate_path(topic, kind))
    if policy is None:
        return np.full(2, np.inf)
    try:
        # We never write a dispatch rate relative to publish, or over more than a second.
        if policy.get("relativeToPublishRate") or policy.get("ratePeriodInSecond", 1) != 1:
            return np.full(2, np.inf)
        return rates_in(policy, kind)
    except MALFORMED:
        path = rate_path(topic, kind)
        raise ClusterError(
            f"Pulsar's REST API at {rest.url}: GET {path}: the answer has no valid rates"
        ) from None


async def write_rate(rest: Rest, topic: str, kind: int, rates: FloatArray) -> None:
    """Write rates (2,) of a topic, or remove its rate if both are unlimited.

    Raises:
        ClusterError: the request failed, so the rate in force is uncertain.
    """
    if np.isinf(rates).all():
        await rest.ask("DELETE", rate_path(topic, kind))
    else:
        await rest.ask("POST", rate_path(topic, kind), rate_body(kind, rates))
