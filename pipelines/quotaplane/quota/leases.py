"""What a shard knows of each (group, broker): usage, demand, and the limit with its lease.

Arrays over the dimensions have shape (d, n): one contiguous vector per dimension, which is also how
Arrow stores them. d counts only the dimensions that matter (``dimensions_in_use``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quotaplane.arrays import to_single
from quotaplane.model import BASIC, PARTS, BoolArray, FloatArray, IntArray
from quotaplane.quota.demand import Track

_BASIC = tuple(range(BASIC))


@dataclass(frozen=True)
class Leases:
    """One row per (group, broker), sorted by group, then broker; both are indexes.

    ``usage`` is what was reported last; ``demand``, ``noise``, ``swing`` and ``doubt`` are what is
    known of the demand (``demand.Track``; +inf where nobody knows how much more is wanted), and
    ``tells`` whether the broker counts what it refuses. ``limit`` is what it was told last (+inf:
    never limited) and ``issued`` whether it has one yet; until then ``limit`` may be one of an
    earlier control plane. ``enforced`` is False where its broker is not limited and that is only
    what it would be, ``told`` whether its broker was told at all. While a limit is young,
    ``before`` is the one it replaced, ``held`` the highest one that may still be in force instead,
    and ``issued_at_ms`` and ``issued_seq`` say when; later both equal ``limit`` and the times are
    -1. Where it is not enforced, ``held`` is ``limit``. ``seen_at_ms``: a report named the group
    last.

    ``dimensions`` are indexes in ``model.DIMENSIONS``, ascending: d of them, of which the arrays of
    shape (d, n) are. In the others nobody is limited.
    """

    dimensions: tuple[int, ...]
    group: IntArray
    broker: IntArray
    usage: FloatArray
    demand: FloatArray
    noise: FloatArray
    swing: FloatArray
    doubt: IntArray
    tells: BoolArray
    limit: FloatArray
    before: FloatArray
    held: FloatArray
    issued: BoolArray
    enforced: BoolArray
    told: BoolArray
    issued_at_ms: IntArray
    issued_seq: IntArray
    seen_at_ms: IntArray

    def __len__(self) -> int:
        return len(self.group)

    def take(self, chosen: BoolArray | IntArray) -> Leases:
        """The rows that ``chosen`` (a mask, or positions in order) picks."""
        return self.each(lambda _, array: array[..., chosen])

    def each(self, change: Callable[[str, npt.NDArray[Any]], npt.NDArray[Any]]) -> Leases:
        """With every array changed, by name."""
        arrays: dict[str, Any] = {
            name: change(name, array) for name, array in vars(self).items() if name != "dimensions"
        }
        return replace(self, **arrays)

    def carrying(self, dimensions: Iterable[int]) -> Leases:
        """The same rows with other dimensions.

        What is new begins as if it had been there, and nobody limited in it: a total with the sum
        of what its parts use, anything else with no use.
        """
        wanted = tuple(dimensions)
        if wanted == self.dimensions:
            return self
        kept = {dimension: place for place, dimension in enumerate(self.dimensions)}
        blank = fresh_rows(self.group, self.broker, wanted)

        def of_those(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
            if array.ndim < 2:
                return array
            new: npt.NDArray[Any] = vars(blank)[name].copy()
            for place, dimension in enumerate(wanted):
                if dimension in kept:
                    new[place] = array[kept[dimension]]
                elif dimension in PARTS and name in ("usage", "demand"):
                    new[place] = to_single(self.usage[list(PARTS[dimension])].sum(axis=0))
            return new

        return replace(self.each(of_those), dimensions=wanted)


def fresh_rows(group: IntArray, broker: IntArray, dimensions: tuple[int, ...] = _BASIC) -> Leases:
    """Rows for pairs that were never heard of: no use yet, never limited."""
    n, shape = len(group), (len(dimensions), len(group))
    nothing, never, no_time = np.zeros(shape), np.full(shape, np.inf), np.full(n, -1, np.int64)
    return Leases(
        dimensions=dimensions,
        group=group,
        broker=broker,
        usage=nothing,
        **vars(Track.blank(shape)),
        tells=np.zeros(n, bool),
        limit=never,
        before=never,
        held=never,
        issued=np.zeros(n, bool),
        enforced=np.ones(n, bool),
        told=np.zeros(n, bool),
        issued_at_ms=no_time,
        issued_seq=no_time,
        seen_at_ms=no_time,
    )
