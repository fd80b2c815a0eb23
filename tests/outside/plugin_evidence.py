"""The evidence of a run with the plugin: what producers got, what was published and disturbed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from quotaplane.model import FloatArray
from tests.outside.journal import PutRun

SLOT_MS: Final = 100
Seat: TypeAlias = tuple[str, str]
"""A group and a broker."""


class Disturbance(NamedTuple):
    """A fault, until what it happened to works again."""

    target: str
    """``job``, ``network of job``, a broker, or ``plugin of`` a broker: its clients' network."""
    from_ms: int
    to_ms: int


class Wait(NamedTuple):
    """A time in which messages of a place waited, and none was acknowledged."""

    seat: Seat
    from_ms: int
    to_ms: int


@dataclass(kw_only=True)
class PluginEvidence(PutRun):
    """Everything that was seen of a run."""

    begun_ms: int
    """Beginning of the first slot."""
    fallback: float
    """Bytes per second that a broker allows a group as long as it knows no limit."""
    wanted: dict[Seat, FloatArray]
    """Bytes in each slot; of clients without a quota, too."""
    used: dict[Seat, FloatArray]
    """Bytes that were acknowledged in each slot."""
    waits: list[Wait]
    disturbed: list[Disturbance]

    @property
    def groups(self) -> list[str]:
        """Groups with a quota."""
        return [*self.quotas]

    @property
    def brokers(self) -> list[str]:
        return sorted({broker for _, broker in self.used})

    def slot(self, t_ms: float) -> int:
        """The slot at a time, or the first or the last one."""
        slots = (self.end_ms - self.begun_ms) // SLOT_MS
        return int(np.clip((t_ms - self.begun_ms) // SLOT_MS, 0, slots))

    def of_broker(self, broker: str) -> list[Disturbance]:
        """Disturbances of a broker, or of its plugin's network; by beginning."""
        targets = (broker, f"plugin of {broker}")
        return sorted(each for each in self.disturbed if each.target in targets)


def waits_of(rows: Iterable[tuple[float, int, float]], seats: list[Seat]) -> Iterator[Wait]:
    """Waits by rows of a time, a place, and the seconds since which it waits.

    >>> [*waits_of([(10.0, 0, 0.5), (10.2, 0, 0.7), (20.0, 0, 1.0)], [("g", "broker-1")])]
    ... # doctest: +NORMALIZE_WHITESPACE
    [Wait(seat=('g', 'broker-1'), from_ms=9500, to_ms=10200),
     Wait(seat=('g', 'broker-1'), from_ms=19000, to_ms=20000)]
    """
    last: dict[int, Wait] = {}
    for seen_s, place, waited_s in rows:
        begun_ms = round(1000 * (seen_s - waited_s))
        before = last.get(place)
        if before is not None and begun_ms < before.to_ms:
            last[place] = before._replace(to_ms=round(1000 * seen_s))
            continue
        if before is not None:
            yield before
        last[place] = Wait(seats[place], begun_ms, round(1000 * seen_s))
    yield from last.values()
