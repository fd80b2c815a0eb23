"""The brokers that report to a shard."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from quotaplane.arrays import map_arrays, taken
from quotaplane.model import BoolArray, IntArray

U64 = npt.NDArray[np.uint64]


KNOWN: Final = 64
"""The number of bits in ``Brokers.known``: one for each of a broker's latest sequence numbers."""

STOCK_UNIT_MS: Final = 1000
"""Stock reports have no start (0), and are numbered by the time at which they were published. They
differ by seconds, so that it is known of a minute which were recorded."""


@dataclass(frozen=True)
class Brokers:
    """The b brokers in order of appearance; arrays have shape (b,)."""

    names: tuple[str, ...]
    started_at_ms: IntArray
    """When the broker started, from its newest report; a later report counts only if its pair
    (start, sequence) is greater."""
    sequence: IntArray
    """Sequence number of the newest report."""
    seen_at_ms: IntArray
    """When the newest report was published, by the clock that stamps reports; -1: none has counted
    yet."""
    read_at_ms: IntArray
    """The time of the round that read the newest report, from which silence counts; -1: none."""
    stale: BoolArray
    """No report for ``brokers.stale_after_intervals``."""
    uses_ids: BoolArray
    """The broker names groups by id."""
    known: U64
    """The reports of this start that were used or recorded: bit k stands for the one with the
    number ``sequence - k``, of stock reports those of the second that is k before."""
    reported_at_ms: IntArray
    """The time of the round that read the newest report of the broker's own; -1: none."""
    disputed_at_ms: IntArray
    """When the first refused report of another incarnation was published, or the newest one that
    had counted, if that is later; -1: none was refused."""
    leaves_out_ms: IntArray
    """For how long reports may leave out a group in which nothing changed; 0: each names all."""

    def knows(
        self, broker: IntArray, started: IntArray, sequence: IntArray
    ) -> tuple[BoolArray, BoolArray]:
        """(m,) reports that ``known`` has a bit of; (m,) those whose bit is set."""
        within, back = self._back(broker, started, sequence)
        bit = self.known[broker] >> back.astype(np.uint64)
        return within, within & (bit & np.uint64(1)).astype(bool)

    def with_known(
        self, before: Brokers, broker: IntArray, started: IntArray, sequence: IntArray
    ) -> Brokers:
        """The same with ``known`` of m reports, beside what it was ``before`` them."""
        kept, ahead = self._back(np.arange(len(self)), before.started_at_ms, before.sequence)
        known = np.where(kept, before.known << ahead.astype(np.uint64), np.uint64(0))
        within, back = self._back(broker, started, sequence)
        bits = np.uint64(1) << back[within].astype(np.uint64)
        np.bitwise_or.at(known, broker[within], bits)
        return replace(self, known=known)

    def _back(
        self, broker: IntArray, started: IntArray, sequence: IntArray
    ) -> tuple[BoolArray, IntArray]:
        """(m,) reports that ``known`` has a bit of; (m,) which one, 0 for the others."""
        unit = np.where(started == 0, STOCK_UNIT_MS, 1)
        back = self.sequence[broker] // unit - sequence // unit
        within = (started == self.started_at_ms[broker]) & (back >= 0) & (back < KNOWN)
        return within, np.where(within, back, 0)

    def __len__(self) -> int:
        return len(self.names)

    def with_names(self, new: Sequence[str]) -> Brokers:
        """The brokers and new ones, which are stale until their first report counts."""
        both = map_arrays(lambda *arrays: np.concatenate(arrays), self, fresh_brokers(new))
        return replace(both, names=(*self.names, *new))

    def without(self, gone: BoolArray) -> tuple[Brokers, IntArray]:
        """The brokers that stay, and the new index of each (b,)."""
        kept = ~gone
        names = tuple(np.array(self.names, dtype=object)[kept])
        return replace(taken(self, kept), names=names), np.cumsum(kept) - 1


def fresh_brokers(names: Sequence[str]) -> Brokers:
    """Brokers of which no report has counted yet: they are stale."""
    never, yes = np.full(len(names), -1, np.int64), np.ones(len(names), bool)
    return Brokers(
        names=tuple(names),
        started_at_ms=never,
        sequence=never,
        seen_at_ms=never,
        read_at_ms=never,
        stale=yes,
        uses_ids=~yes,
        known=np.zeros(len(names), np.uint64),
        reported_at_ms=never,
        disputed_at_ms=never,
        leaves_out_ms=np.zeros(len(names), np.int64),
    )
