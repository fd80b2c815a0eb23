"""Rates that topics are held to: one topic at a time, publish or dispatch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

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
    """Where a topic's rate is; ``kind`` is 0 for publish, 1 for dispatch.

    >>> rate_path("persistent://acme/orders/a topic", 1)
    '/admin/v2/persistent/acme/orders/a%20topic/dispatchRate'
    """
    domain, _, rest_of_it = topic.partition("://")
    return Rest.path(domain, rest_of_it, _PATHS[kind])


def rate_body(kind: int, rates: FloatArray) -> dict[str, object]:
    """Rates (2,), in messages and bytes, as Pulsar wants them; inf = unlimited.

    >>> rate_body(0, np.array([30.0, np.inf]))
    {'publishThrottlingRateInMsg': 30, 'publishThrottlingRateInByte': -1}
    >>> rate_body(0, np.array([0.4, 0.0]))
    {'publishThrottlingRateInMsg': 1, 'publishThrottlingRateInByte': 1}
    """
    # Never rounded down: Pulsar takes 0 for unlimited.
    whole = [max(math.ceil(rate), 1) if np.isfinite(rate) else -1 for rate in rates]
    return {**dict(zip(RATE_KEYS[kind], whole, strict=True)), **_ALSO[kind]}


def rates_in(said: Mapping[str, Any], kind: int) -> FloatArray:
    """Rates (2,) as Pulsar tells them; inf = unlimited.

    >>> rates_in({"publishThrottlingRateInMsg": 30, "publishThrottlingRateInByte": 0}, 0)
    array([30., inf])
    """
    rates = np.array([float(said.get(key, -1)) for key in RATE_KEYS[kind]])
    return np.where(rates > 0, rates, np.inf)


async def read_rate(rest: Rest, topic: str, kind: int) -> FloatArray:
    """What is in force on a topic, (2,) in messages and bytes; inf = unlimited.

    Raises:
        ClusterError: it can't be read.
    """
    said = await rest.get(rate_path(topic, kind))
    if said is None:
        return np.full(2, np.inf)
    try:
        # Dispatch relative to publish, or over longer than a second, is none of ours.
        if said.get("relativeToPublishRate") or said.get("ratePeriodInSecond", 1) != 1:
            return np.full(2, np.inf)
        return rates_in(said, kind)
    except (AttributeError, TypeError, ValueError):
        path = rate_path(topic, kind)
        raise ClusterError(f"Pulsar's REST API at {rest.url}: GET {path}: no rates") from None


async def write_rate(rest: Rest, topic: str, kind: int, rates: FloatArray) -> None:
    """Put rates (2,) in force, or take the rate away if both are unlimited.

    Raises:
        ClusterError: it is not sure that they are.
    """
    if np.isinf(rates).all():
        await rest.ask("DELETE", rate_path(topic, kind))
    else:
        await rest.ask("POST", rate_path(topic, kind), rate_body(kind, rates))
