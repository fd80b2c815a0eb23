"""Types of throttling: laws, modes, quotas, requests and answers.

They consist of arrays, so that one call answers a batch of requests of many entities. An entity is
anything with a quota of its own: a group at a broker, a user, a client. Entities are numbered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from quotaplane.arrays import taken
from quotaplane.errors import InputError
from quotaplane.model import BoolArray, FloatArray, IntArray


class ThrottleLaw(str, Enum):
    """How requests are measured against a quota."""

    TOKEN_BUCKET = "token_bucket"
    """KIP-599: tokens arrive at the quota's rate, up to the burst; a request may overdraw them."""
    WINDOWED_RATE = "windowed_rate"
    """Kafka's: the mean rate over the last windows, each of which begins with a request."""
    AMENDED_RATE = "amended_rate"
    """KIP-599's alternative: a burst is distributed over earlier windows, up to the quota in
    each."""
    SLIDING_WINDOW = "sliding_window"
    """ZooKeeper's: the sum of the slots of the last window."""


class ThrottleMode(str, Enum):
    """The treatment of a request above the quota."""

    HARD = "hard"
    """Refused, with a time for a retry; it is not counted (KIP-599: strict)."""
    SOFT = "soft"
    """Admitted and counted, but the client is delayed (KIP-599: permissive)."""


class Requests(NamedTuple):
    """n requests in time order: ``at_ms`` never decreases within an entity."""

    entity: IntArray
    """(n,) numbers of the requesting entities."""
    at_ms: IntArray
    """(n,) epoch milliseconds."""
    units: FloatArray
    """(n,) requested messages, bytes or mutations; 0 or more, and finite."""


class Answers(NamedTuple):
    """The answers to n requests, in their order."""

    admitted: BoolArray
    """(n,) False: refused and not counted. Always True in soft mode."""
    throttle_ms: FloatArray
    """(n,) soft: how long the client must wait; hard: when a refused client may retry. Whole
    milliseconds; inf: never."""
    balance: FloatArray
    """(n,) units left afterwards; negative: the quota is exceeded."""


@dataclass(frozen=True)
class Quotas:
    """The quotas of e entities and how they are measured."""

    rate_per_s: FloatArray
    """(e,) 0 or more; inf: no quota."""
    samples: IntArray
    """(e,) number of windows over which the rate is measured, and for which the burst is
    allowed."""
    window_ms: IntArray
    """(e,) length of a window."""
    hard: BoolArray
    """(e,) the mode."""
    burst_units: FloatArray | None = None
    """(e,) a token bucket's burst, finite; None: as the windows define it. For no other law."""

    def __post_init__(self) -> None:
        """Refuse invalid values.

        Raises:
            InputError: a rate is negative or NaN, or there is no window.
        """
        for name, values, least in (
            ("rate_per_s", self.rate_per_s, 0),
            ("samples", self.samples, 1),
            ("window_ms", self.window_ms, 1),
        ):
            bad = np.flatnonzero(~(values >= least))
            if len(bad):
                at = bad[0]
                raise InputError(f"entity {at}: {name} must be {least} or more, not {values[at]:g}")

    @property
    def burst(self) -> FloatArray:
        """(e,) units: the quota over all windows (KIP-599: B = Q * S * W), or ``burst_units``.

        inf without a quota.

        >>> Quotas.of([5.0], samples=100, window_ms=1000).burst.tolist()
        [500.0]
        >>> Quotas.of([0.0, 5.0, np.inf], burst_units=[100.0, 100.0, 100.0]).burst.tolist()
        [100.0, 100.0, inf]
        """
        if self.burst_units is not None:
            return np.where(np.isinf(self.rate_per_s), np.inf, self.burst_units)
        with np.errstate(invalid="ignore"):
            burst: FloatArray = self.samples * (self.window_ms / 1000.0) * self.rate_per_s
        return burst

    def take(self, entities: BoolArray | IntArray) -> Quotas:
        """The quotas of some entities."""
        return taken(self, entities)

    @classmethod
    def of(
        cls,
        rate_per_s: FloatArray | list[float],
        *,
        samples: int = 1,
        window_ms: int = 1000,
        hard: bool = False,
        burst_units: FloatArray | list[float] | None = None,
    ) -> Quotas:
        """Quotas with rates (e,) and bursts (e,), and otherwise the same values for all
        entities.
        """
        rates = np.asarray(rate_per_s, dtype=np.float64)
        return cls(
            rates,
            np.full(rates.shape, samples, np.int64),
            np.full(rates.shape, window_ms, np.int64),
            np.full(rates.shape, hard, np.bool_),
            None if burst_units is None else np.asarray(burst_units, dtype=np.float64),
        )
