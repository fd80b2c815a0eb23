"""Kafka's own client quotas: numbers of a user, a client id or both, the same on each broker.

A controller mutation rate is for the cluster: only the active controller counts it (KIP-599).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

import numpy as np

from quotaplane.errors import InputError
from quotaplane.groups.scope import DEFAULT, Scope, encode
from quotaplane.model import DIMENSIONS, MAX_RATE, FloatArray


class Key(NamedTuple):
    """One of Kafka's numbers."""

    name: str
    dimension: str
    unit: float
    """How much of our dimension one of Kafka's is: 1 percent of a thread is 10 ms a second."""
    is_whole: bool
    """Kafka takes whole numbers only."""
    is_per_broker: bool = True

    @property
    def place(self) -> int:
        """The dimension's place in ``DIMENSIONS``."""
        return DIMENSIONS.index(self.dimension)

    def times(self, brokers: float) -> float:
        """A number of Kafka's becomes this many times as much per second in our dimension."""
        return self.unit * (brokers if self.is_per_broker else 1)


KEYS: Final = (
    Key("producer_byte_rate", "publish_bytes", 1, is_whole=True),
    Key("consumer_byte_rate", "dispatch_bytes", 1, is_whole=True),
    Key("request_percentage", "request_ms", 10, is_whole=False),
    Key("controller_mutation_rate", "controller_mutations", 1, is_whole=False, is_per_broker=False),
)

Entity = Mapping[str, str | None]
"""As in Kafka's protocol: names by type (``user``, ``client-id``, ``ip``); None: the default."""

USER: Final = "user"
CLIENT: Final = "client-id"
IP: Final = "ip"


class FoundQuota(NamedTuple):
    """The numbers of an entity, by Kafka's names, and where they were found."""

    entity: Entity
    values: Mapping[str, float]
    where: str


class ClientQuotas(NamedTuple):
    """All that was found."""

    by_scope: dict[Scope, dict[str, float]]
    """Numbers by Kafka's name."""
    others: int
    """Entities of other types, which are addresses: no group is one."""


def gather(found: Iterable[FoundQuota]) -> ClientQuotas:
    """The numbers of each user and client id.

    Raises:
        InputError: a name is empty, or a number is given twice and differs.
    """
    by_scope: dict[Scope, dict[str, float]] = {}
    others = 0
    for entity, values, where in found:
        if not entity or not entity.keys() <= {USER, CLIENT}:
            others += 1
            continue
        try:
            scope = Scope(*(_named(entity, kind) for kind in (USER, CLIENT)))
        except InputError as error:
            raise InputError(f"{where}: a name {error}") from None
        known = by_scope.setdefault(scope, {})
        for name, value in values.items():
            if name not in known or math.isnan(known[name]):
                known[name] = value
            elif known[name] != value:
                raise InputError(
                    f"{where}: {name} of {scope} is {value:.10g} here, and {known[name]:.10g} "
                    "elsewhere: are these two clusters?"
                )
    return ClientQuotas(by_scope, others)


def is_usable(value: float) -> bool:
    """Whether a number limits something.

    Kafka also stores NaN. Its word for unlimited is the largest whole number of 64 bits.

    >>> [is_usable(value) for value in (5.0, 0.0, -1.0, float("nan"), 9.3e18)]
    [True, True, False, False, False]
    """
    return 0 <= value <= MAX_RATE


def rates(values: Mapping[str, float], brokers: float) -> FloatArray:
    """Kafka's numbers on this many brokers, (dimensions,) per second; inf = unlimited.

    >>> found = rates({"producer_byte_rate": 1000, "controller_mutation_rate": 5}, 3)
    >>> found[np.isfinite(found)].tolist()
    [3000.0, 5.0]
    """
    found = np.full(len(DIMENSIONS), np.inf)
    for key in KEYS:
        value = values.get(key.name, math.inf)
        if is_usable(value):
            # Rounded, as thirds of a percent may add up to a little less than a whole number.
            rate = round(value * key.times(brokers), 6)
            found[key.place] = rate if is_usable(rate) else np.inf
    return found


def _named(entity: Entity, kind: str) -> str | None:
    if kind not in entity:
        return None
    name = entity[kind]
    return DEFAULT if name is None else encode(name)
