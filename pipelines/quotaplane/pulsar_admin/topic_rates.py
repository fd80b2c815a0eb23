"""Reads and writes the publish or dispatch rate of one topic."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import numpy as np

from quotaplane.model import FloatArray
from quotaplane.parsing.bounded_json import MALFORMED
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.topics.rate_marks import Mark, mark_of, unlimited_number

PATHS: Final = ("publishRate", "dispatchRate")
"""By kind of rate, the last part of the path of a topic's or namespace's own one."""
RATE_KEYS: Final = (
    ("publishThrottlingRateInMsg", "publishThrottlingRateInByte"),
    ("dispatchThrottlingRateInMsg", "dispatchThrottlingRateInByte"),
)
_ALSO: Final[tuple[dict[str, bool | int], ...]] = (
    {},
    {"relativeToPublishRate": False, "ratePeriodInSecond": 1},
)


def rate_path(topic: str, kind: int) -> str:
    """The REST path of a topic's rate; ``kind`` is 0 for publish, 1 for dispatch.

    >>> rate_path("persistent://acme/orders/a topic", 1)
    '/admin/v2/persistent/acme/orders/a%20topic/dispatchRate'
    """
    domain, _, name = topic.partition("://")
    return Rest.path(domain, name, PATHS[kind])


def rate_body(kind: int, rates: FloatArray, unlimited: int = -1) -> dict[str, Any]:
    """Pulsar's JSON for rates (2,) in messages and bytes; inf is written as ``unlimited``.

    >>> rate_body(0, np.array([30.0, np.inf]))
    {'publishThrottlingRateInMsg': 30, 'publishThrottlingRateInByte': -1}
    >>> rate_body(0, np.array([0.4, 0.0]))
    {'publishThrottlingRateInMsg': 1, 'publishThrottlingRateInByte': 1}
    """
    # Never rounded down, as 0 means unlimited to Pulsar.
    whole = [max(math.ceil(rate), 1) if np.isfinite(rate) else unlimited for rate in rates]
    return {**dict(zip(RATE_KEYS[kind], whole, strict=True)), **_ALSO[kind]}


def rates_in(policy: Mapping[str, Any], kind: int) -> FloatArray:
    """Parse Pulsar's JSON of a rate: (2,) in messages and bytes per second; inf = unlimited.

    A dispatch rate that is relative to the publish rate has no fixed amount, and counts as
    unlimited. One over several seconds is rounded down to whole numbers per second, at least 1.

    >>> rates_in({"publishThrottlingRateInMsg": 30, "publishThrottlingRateInByte": 0}, 0)
    array([30., inf])
    >>> rates_in({"dispatchThrottlingRateInMsg": 30, "ratePeriodInSecond": 60}, 1)
    array([ 1., inf])
    """
    rates = np.array([float(policy.get(key, -1)) for key in RATE_KEYS[kind]])
    if policy.get("relativeToPublishRate"):
        return np.full(2, np.inf)
    period_s = float(policy.get("ratePeriodInSecond") or 1)
    if period_s > 1:
        return np.where(rates > 0, np.maximum(np.floor(rates / period_s), 1.0), np.inf)
    return np.where(rates > 0, rates, np.inf)


class OwnRate(NamedTuple):
    """A topic's own rate of one kind, as the cluster has it."""

    rates: FloatArray
    """(2,) in messages and bytes per second; inf = unlimited."""
    mark: Mark
    policy: dict[str, Any] | None
    """Pulsar's JSON of an administrator's rate; None: the rate is ours, or there is none."""

    def without_mark(self, kind: int) -> OwnRate:
        """The same rate as if an administrator had set it."""
        # A remainder of its bytes would be a mark again.
        rates = self.rates + np.array([0.0, 1.0]) if np.isfinite(self.rates).all() else self.rates
        return OwnRate(rates, Mark.NONE, rate_body(kind, rates))


NO_RATE: Final = OwnRate(np.full(2, np.inf), Mark.NONE, None)


def own_rate(policy: Mapping[str, Any] | None, kind: int) -> OwnRate:
    """Parse what Pulsar has as a topic's own rate.

    >>> own_rate({"publishThrottlingRateInMsg": 5, "publishThrottlingRateInByte": -1}, 0).policy
    {'publishThrottlingRateInMsg': 5, 'publishThrottlingRateInByte': -1}

    Raises:
        ArithmeticError, AttributeError, LookupError, TypeError, ValueError: it is no rate.
    """
    exact = [_long((policy or {}).get(key, -1)) for key in RATE_KEYS[kind]]
    if policy is None or max(exact) <= 0:  # Pulsar treats such a policy as none
        return NO_RATE
    rates = rates_in(policy, kind)
    also = {key: type(usual)(_long(policy.get(key, usual))) for key, usual in _ALSO[kind].items()}
    mark = mark_of(*exact) if also == _ALSO[kind] else Mark.NONE
    if mark is not Mark.NONE:
        return OwnRate(rates, mark, None)
    return OwnRate(rates, mark, {**dict(zip(RATE_KEYS[kind], exact, strict=True)), **also})


def _long(number: Any) -> int:
    """A number of Pulsar's; true and false are 1 and 0.

    Raises:
        ArithmeticError, TypeError, ValueError: it is none.
    """
    whole = int(number)
    if abs(whole) >= 2**63:
        raise ValueError("a number above 63 bits")
    return whole


async def read_rate(rest: Rest, topic: str, kind: int) -> OwnRate:
    """Read a topic's own rate.

    Raises:
        ClusterError: it can't be read.
    """
    path = rate_path(topic, kind)
    policy = await rest.get(path)
    try:
        return own_rate(policy, kind)
    except MALFORMED:
        raise rest.failure(f"GET {path}: the answer has no valid rates") from None


async def write_rate(
    rest: Rest, topic: str, kind: int, rates: FloatArray, *, in_place: bool = False
) -> None:
    """Write a rate of ours (2,), with its mark (``rate_marks``).

    Raises:
        ClusterError: the request failed, so the rate in force is uncertain.
    """
    body = rate_body(kind, rates, unlimited_number(in_place=in_place))
    await rest.ask("POST", rate_path(topic, kind), body)


async def give_back(rest: Rest, topic: str, kind: int, policy: Mapping[str, Any] | None) -> None:
    """Write an administrator's rate again, in place of ours; None: there was none.

    Raises:
        ClusterError: the request failed, so the rate in force is uncertain.
    """
    if policy is None:
        await rest.ask("DELETE", rate_path(topic, kind))
    else:
        await rest.ask("POST", rate_path(topic, kind), dict(policy))
