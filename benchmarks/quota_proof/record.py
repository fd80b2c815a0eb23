"""Measurements of one contender in one scenario, on seconds before and after the event."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from quotaplane.model import FloatArray

SLOTS_PER_S = 10


@dataclass(frozen=True)
class Record:
    """Rates in the quota's unit per second, for each tenth of a second; the event is at 0 s."""

    scenario: str
    contender: str
    from_s: float
    quota: tuple[float, ...]
    """In each slot."""
    demand: tuple[tuple[float, ...], ...]
    """Demand of each broker in each slot: that of the topics that it has then."""
    usage: tuple[tuple[float, ...], ...]
    """The same: acknowledged to its producers, or received from it."""
    mean_demand: tuple[tuple[float, ...], ...] | None = None
    """The same on average, where what is wanted is noisy; None: ``demand`` is that."""
    received: bool = False
    """``usage`` is what consumers received."""
    noticed_s: float = 0.0
    """When the cluster's list of brokers showed the event; 0 where it does not depend on that."""
    start: dict[str, float] = field(default_factory=dict)
    """Milestones of the contender's start, in seconds since its first program was started."""

    @property
    def times(self) -> FloatArray:
        """The slots' beginnings, shape (slots,)."""
        return self.from_s + np.arange(len(self.quota)) / SLOTS_PER_S


def by_broker(
    topics: Sequence[Sequence[float]], owners: Sequence[Sequence[int | None]], brokers: int
) -> tuple[tuple[float, ...], ...]:
    """Add up what topics have at the broker that owns them; what nobody owns is nobody's.

    Args:
        topics: For each topic its values, one a slot.
        owners: For each topic its broker in each slot, None while it has none.
        brokers: How many there are.

    >>> by_broker([[1.0, 1.0, 1.0], [5.0, 5.0, 5.0]], [[0, 0, 0], [1, None, 0]], 2)
    ((1.0, 1.0, 6.0), (5.0, 0.0, 0.0))
    """
    values = np.asarray(topics, dtype=np.float64)
    at = np.array([[-1 if o is None else o for o in row] for row in owners])
    return tuple(
        tuple(np.where(at == broker, values, 0.0).sum(axis=0).tolist()) for broker in range(brokers)
    )


def held(seen: Sequence[tuple[float, int | None]], times: Sequence[float]) -> list[int | None]:
    """Owner at each time: the one seen last, of ``seen`` times and owners.

    >>> held([(0.0, 1), (2.0, None)], [1.0, 2.5])
    [1, None]
    """
    at = np.searchsorted([when for when, _ in seen], times, side="right") - 1
    return [seen[place][1] for place in at.tolist()]
