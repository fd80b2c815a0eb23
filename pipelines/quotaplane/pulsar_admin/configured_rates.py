"""Parses the rates per topic that administrators set: of topics, namespaces and brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from quotaplane.errors import ClusterError
from quotaplane.model import FloatArray
from quotaplane.parsing.bounded_json import MALFORMED
from quotaplane.pulsar_admin.namespace_rates import namespace_rates
from quotaplane.pulsar_admin.topic_rates import PATHS, RATE_KEYS

RATE_PATHS: Final = (*PATHS, "subscriptionDispatchRate")
"""``PATHS``, and that of the third kind."""
SUBSCRIPTION: Final = 2
"""The kind that limits each subscription by itself."""

_KEYS: Final = (*RATE_KEYS, RATE_KEYS[1])
_POLICIES: Final = ("publishMaxMessageRate", "topicDispatchRate", "subscriptionDispatchRate")
"""By kind, the keys in a namespace's policies; each holds rates by cluster."""
_BROKER_KEYS: Final = (
    ("maxPublishRatePerTopicInMessages", "maxPublishRatePerTopicInBytes"),
    ("dispatchThrottlingRatePerTopicInMsg", "dispatchThrottlingRatePerTopicInByte"),
    ("dispatchThrottlingRatePerSubscriptionInMsg", "dispatchThrottlingRatePerSubscriptionInByte"),
)
_RELATIVE: Final = "dispatchThrottlingRateRelativeToPublishRate"
_MOST: Final = 2**63 - 1
"""Pulsar's rates in bytes are of 64 bits."""


class TopicRate(NamedTuple):
    """A rate as an administrator set it; a number below 1 means unlimited."""

    messages: int
    bytes: int
    period_s: int = 1
    relative: bool = False
    """It comes on top of what is published (Pulsar: relativeToPublishRate)."""

    @property
    def per_s(self) -> FloatArray:
        """(2,) messages and bytes per second; inf = unlimited, also if it is relative.

        >>> TopicRate(100, -1, period_s=2).per_s.tolist()
        [50.0, inf]
        """
        given = np.array([self.messages, self.bytes], np.float64)
        return np.where((given > 0) & (not self.relative), given / self.period_s, np.inf)


TopicRates = tuple[TopicRate | None, ...]
"""(3,) by kind; None: there is none."""
NO_RATES: Final[TopicRates] = (None, None, None)


def per_s(rates: TopicRates) -> FloatArray:
    """(4,) per second of one part, without what limits each subscription; inf = unlimited."""
    unlimited = np.full(2, np.inf)
    return np.concatenate([rate.per_s if rate else unlimited for rate in rates[:SUBSCRIPTION]])


def rates_of_namespace(policies: Mapping[str, Any], cluster: str) -> TopicRates:
    """The rates in a namespace's policies, without those that an enforcer wrote.

    Raises:
        ClusterError: the answer is not policies.
    """
    ours = (*namespace_rates(policies, cluster).ours, False)
    rates: list[TopicRate | None] = []
    for kind, key in enumerate(_POLICIES):
        by_cluster = policies.get(key) or {}
        if not isinstance(by_cluster, Mapping):
            raise _malformed(key)
        rates.append(None if ours[kind] else rate_in(by_cluster.get(cluster), kind, key))
    return tuple(rates)


def rates_of_brokers(configuration: Mapping[str, Any]) -> TopicRates:
    """The rates in the brokers' configuration, of topics without any other.

    Raises:
        ClusterError: they are no numbers.
    """
    relative = {"relativeToPublishRate": configuration.get(_RELATIVE) == "true"}
    return tuple(
        rate_in({**configuration, **relative} if kind else configuration, kind, keys[0], keys)
        for kind, keys in enumerate(_BROKER_KEYS)
    )


def rate_in(
    policy: Any, kind: int, where: str, keys: Sequence[str] | None = None
) -> TopicRate | None:
    """Parse Pulsar's JSON of a rate; None if it is unlimited.

    >>> rate_in({"publishThrottlingRateInMsg": 30, "publishThrottlingRateInByte": -1}, 0, "rate")
    TopicRate(messages=30, bytes=-1, period_s=1, relative=False)

    Raises:
        ClusterError: it is something else; ``where`` names it.
    """
    if policy is None:
        return None
    try:
        messages, in_bytes = (int(policy.get(key, -1)) for key in keys or _KEYS[kind])
        period_s = max(int(policy.get("ratePeriodInSecond", 1)), 1)
        relative = bool(policy.get("relativeToPublishRate"))
        if max(messages, in_bytes, period_s) > _MOST:
            raise ValueError
    except MALFORMED:
        raise _malformed(where) from None
    if messages <= 0 and in_bytes <= 0:
        return None
    return TopicRate(messages, in_bytes, period_s, relative)


def _malformed(where: str) -> ClusterError:
    return ClusterError(f"Pulsar's REST API: {where}: the answer has no valid rates")
