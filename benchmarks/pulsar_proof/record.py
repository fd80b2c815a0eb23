"""What was measured of one contender in one scenario, on seconds before and after the event."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from quotaplane.model import FloatArray

SLOTS_PER_S = 10


@dataclass(frozen=True)
class Record:
    """Rates in messages per second, for each tenth of a second; the event is at 0 s."""

    scenario: str
    contender: str
    from_s: float
    quota: tuple[float, ...]
    """In each slot."""
    demand: tuple[tuple[float, ...], ...]
    """Of each broker, in each slot: what the topics that it has then want."""
    usage: tuple[tuple[float, ...], ...]
    """The same: acknowledged to its producers, or received from it."""

    @property
    def times(self) -> FloatArray:
        """The slots' beginnings, shape (slots,)."""
        return self.from_s + np.arange(len(self.quota)) / SLOTS_PER_S


def write_records(path: Path, records: Sequence[Record]) -> None:
    """Write them as JSON, a line each."""
    path.write_text("".join(json.dumps(asdict(record)) + "\n" for record in records))


def read_records(path: Path) -> list[Record]:
    """The opposite of ``write_records``."""
    return [
        Record(**{name: _tuples(value) for name, value in json.loads(line).items()})
        for line in path.read_text().splitlines()
    ]


def _tuples(value: object) -> object:
    return tuple(map(_tuples, value)) if isinstance(value, list) else value


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
