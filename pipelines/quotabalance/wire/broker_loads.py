"""The load of one broker in its load report: the common form of all formats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import pyarrow as pa

from quotabalance.planning.cluster_load import RATES, RESOURCES
from quotaplane.model import FloatArray, IntArray
from quotaplane.wire.reasons import (
    ABSURD,
    LENGTH_MISMATCH,
    NEGATIVE,
    NOT_FINITE,
    UnusableReportError,
    check_broker,
)

SIGNED_LIMIT: Final = 2**63
"""Java reads a number from here on as negative."""
_MOST_AMOUNT: Final = 1e18
"""No machine has more of a resource, in any unit."""
_LEAST_LIMIT: Final = 1e-6
"""A smaller limit that is not 0 is noise; what is used by it would be infinite."""


@dataclass(frozen=True)
class BrokerLoad:
    """One broker's load report, of n bundles.

    >>> load = BrokerLoad("b1:8080", 1, 7, 5_000, np.array([50.0, 1, 1, 2, 2]), np.full(5, 100.0))
    >>> load.check()
    """

    broker: str
    started_at_ms: int
    sequence: int
    """Number of the report since the broker's start."""
    measured_at_ms: int
    usage: FloatArray
    """Shape (5,): use of each of ``RESOURCES``, in the unit of its limit."""
    limit: FloatArray
    """Shape (5,): what the machine has; 0 = not known."""
    bundles: Sequence[str] = ()
    """Names (n) of the bundles that the broker serves."""
    rates: FloatArray = field(default_factory=lambda: np.zeros((0, len(RATES))))
    """Shape (n, 4): columns ``RATES``."""
    topics: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Shape (n,), or empty if not known."""
    sessions: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Shape (n,), or empty if not known: producers and consumers."""
    draining: bool = False
    """The administrator takes this broker out."""

    def check(self) -> None:
        """Check all but the bundles' names and rates.

        Raises:
            UnusableReportError: the whole report can't be used.
        """
        check_broker(self.broker)
        for name in ("started_at_ms", "sequence", "measured_at_ms"):
            if not 0 <= getattr(self, name) < SIGNED_LIMIT:
                raise UnusableReportError(ABSURD, f"{name} is {getattr(self, name)}")
        count = len(self.bundles)
        if self.rates.shape != (count, len(RATES)):
            raise UnusableReportError(
                LENGTH_MISMATCH, f"rates have shape {self.rates.shape} for {count} bundles"
            )
        for name in ("topics", "sessions"):
            if len(getattr(self, name)) not in (0, count):
                length = len(getattr(self, name))
                raise UnusableReportError(
                    LENGTH_MISMATCH, f"{name} has {length} values for {count} bundles"
                )
        for name in ("usage", "limit"):
            _check_amounts(name, getattr(self, name))

    def take(self, chosen: IntArray) -> BrokerLoad:
        """The report with only some of its bundles."""
        return BrokerLoad(
            self.broker,
            self.started_at_ms,
            self.sequence,
            self.measured_at_ms,
            self.usage,
            self.limit,
            [self.bundles[place] for place in chosen.tolist()],
            self.rates[chosen],
            self.topics[chosen] if len(self.topics) else self.topics,
            self.sessions[chosen] if len(self.sessions) else self.sessions,
            self.draining,
        )

    def names(self) -> pa.StringArray:
        """The bundles' names as an Arrow array."""
        return pa.array(self.bundles, pa.string())


def _check_amounts(name: str, amounts: FloatArray) -> None:
    if len(amounts) != len(RESOURCES):
        raise UnusableReportError(
            LENGTH_MISMATCH, f"{name} has {len(amounts)} values; expected {len(RESOURCES)}"
        )
    for resource, amount in zip(RESOURCES, amounts.tolist(), strict=True):
        what = f"{name} of {resource} is {amount:g}"
        if not np.isfinite(amount):
            raise UnusableReportError(NOT_FINITE, what)
        if amount < 0:
            raise UnusableReportError(NEGATIVE, what)
        if amount > _MOST_AMOUNT or (name == "limit" and 0 < amount < _LEAST_LIMIT):
            raise UnusableReportError(ABSURD, what)
