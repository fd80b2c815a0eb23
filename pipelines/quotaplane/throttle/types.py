"""The words of throttling: laws, modes, requests and answers to them.

Arrays, so that a batch of requests of many entities is answered in one call. An entity is
whatever has a quota of its own: a group at a broker, a user, a client. Entities are numbered.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import numpy as np

from quotaplane.errors import InputError
from quotaplane.model import BoolArray, FloatArray, IntArray


class ThrottleLaw(str, Enum):
    """How requests are measured against a quota."""

    TOKEN_BUCKET = "token_bucket"
    """KIP-599: tokens come in at the quota's rate, up to the burst; a request may overdraw them."""
    WINDOWED_RATE = "windowed_rate"
    """Kafka's: the mean rate over the last windows, as each of them was begun by a request."""
    AMENDED_RATE = "amended_rate"
    """KIP-599's other proposal: a burst is written down to the earlier windows, up to the quota."""
    SLIDING_WINDOW = "sliding_window"
    """ZooKeeper's: what the slots of the last window add up to."""


class ThrottleMode(str, Enum):
    """What becomes of a request above the quota."""

    HARD = "hard"
    """Refused, with a time to come back after; it counts for nothing (KIP-599: strict)."""
    SOFT = "soft"
    """Admitted and counted, and the client is delayed (KIP-599: permissive)."""


class Requests(NamedTuple):
    """n requests in the order of time: ``at_ms`` never falls within an entity."""

    entity: IntArray
    """(n,) whose: 0 to the number of entities - 1."""
    at_ms: IntArray
    """(n,) epoch milliseconds."""
    units: FloatArray
    """(n,) what it asks for: messages, bytes, mutations; 0 or more, and finite."""


class Answers(NamedTuple):
    """The answers to n requests, in their order."""

    admitted: BoolArray
    """(n,) False: refused, and counts for nothing. Never False where the mode is soft."""
    throttle_ms: FloatArray
    """(n,) soft: for how long the client is to be delayed; hard: when to come back, of what was
    refused. Whole milliseconds; inf: never."""
    balance: FloatArray
    """(n,) what is left afterwards, in units; below 0 the quota is exceeded."""


@dataclass(frozen=True)
class Quotas:
    """What each of e entities is held to.

    ``rate_per_s`` 0 or more, inf is no quota at all; ``samples`` windows of ``window_ms`` make up
    the time over which the rate is measured. They make up the burst, too, unless a token bucket's
    is told in units.
    """

    rate_per_s: FloatArray
    """(e,)"""
    samples: IntArray
    """(e,)"""
    window_ms: IntArray
    """(e,)"""
    hard: BoolArray
    """(e,) the mode."""
    burst_units: FloatArray | None = None
    """(e,) the burst of a token bucket, finite; None: by the windows. Other laws have none."""

    def __post_init__(self) -> None:
        """Refuse what no law could hold anybody to.

        Raises:
            InputError: a rate is negative or no number, or there is no window.
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
        """(e,) in units: the quota over all windows (KIP-599: B = Q * S * W), or as told; inf
        without a quota.

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
        """Those of some entities."""
        return Quotas(
            self.rate_per_s[entities],
            self.samples[entities],
            self.window_ms[entities],
            self.hard[entities],
            None if self.burst_units is None else self.burst_units[entities],
        )

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
        """The same terms for all entities, at rates (e,) and bursts (e,) of their own."""
        rates = np.asarray(rate_per_s, dtype=np.float64)
        return cls(
            rates,
            np.full(rates.shape, samples, np.int64),
            np.full(rates.shape, window_ms, np.int64),
            np.full(rates.shape, hard, np.bool_),
            None if burst_units is None else np.asarray(burst_units, dtype=np.float64),
        )
