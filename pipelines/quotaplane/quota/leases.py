"""What a shard knows of each (group, broker): usage, demand, and the limit with its lease.

Arrays over the dimensions have shape (d, n): one contiguous vector per dimension, which is also how
Arrow stores them. d counts only the dimensions that matter (``dimensions_in_use``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from quotaplane.arrays import to_single
from quotaplane.model import BASIC, PARTS, BoolArray, FloatArray, IntArray

_BASIC = tuple(range(BASIC))


@dataclass(frozen=True)
class Leases:
    """The n pairs of a group and a broker, sorted by group, then broker.

    Arrays have shape (d, n) where they hold rates per second, else (n,).
    """

    dimensions: tuple[int, ...]
    """The d dimensions, as ascending indexes in ``model.DIMENSIONS``; others limit nobody."""
    group: IntArray
    """Index of the group."""
    broker: IntArray
    """Index of the broker."""
    usage: FloatArray
    """(d, n) as reported last."""
    demand: FloatArray
    """(d, n) as estimated (``demand.Track``); inf = saturated: how much more is not known."""
    noise: FloatArray
    """(d, n) of the demand, see ``demand.Track``."""
    last_deviation: FloatArray
    """(d, n) from the demand, see ``demand.Track``."""
    distrust: IntArray
    """(d, n) of the broker's claims, see ``demand.Track``."""
    reports_refused: BoolArray
    """The broker counts what it refuses or delays."""
    limit: FloatArray
    """(d, n) issued last; inf = unlimited. Before the first: inf, or one of an earlier control
    plane that the broker reported."""
    previous_limit: FloatArray
    """(d, n) the limit that ``limit`` replaced, while it is young; else equal to it."""
    max_in_force: FloatArray
    """(d, n) the highest limit that the broker may still hold to, while ``limit`` is young; else
    equal to it, as where it is not enforced."""
    has_limit: BoolArray
    """A limit was issued or taken over."""
    enforced: BoolArray
    """The broker is held to ``limit``; else it is only computed."""
    notified: BoolArray
    """The broker was ever sent a limit of the group."""
    issued_at_ms: IntArray
    """When a young limit was issued; -1 once it is old."""
    issued_seq: IntArray
    """Round in which a young limit was issued; -1 once it is old."""
    seen_at_ms: IntArray
    """When the last report that names the group was published."""

    def __len__(self) -> int:
        return len(self.group)

    def take(self, chosen: BoolArray | IntArray) -> Leases:
        """The rows that ``chosen`` (a mask, or positions in order) picks."""
        return self.each(lambda _, array: array[..., chosen])

    def each(self, change: Callable[[str, npt.NDArray[Any]], npt.NDArray[Any]]) -> Leases:
        """With every array changed, by name."""
        arrays: dict[str, Any] = {name: change(name, getattr(self, name)) for name in _ARRAYS}
        return replace(self, **arrays)

    def merged(self, others: Leases) -> Leases:
        """With others of the same dimensions, none of which is here."""
        joined = self.each(lambda name, own: np.concatenate([own, getattr(others, name)], axis=-1))
        pair = joined.group * (joined.broker.max(initial=0) + 1) + joined.broker
        return joined.take(np.argsort(pair, kind="stable"))

    def carrying(self, dimensions: Iterable[int]) -> Leases:
        """The same rows with other dimensions.

        What is new begins as if it had been there, and nobody limited in it: a total with the sum
        of what its parts use, anything else with no use.
        """
        wanted = tuple(dimensions)
        if wanted == self.dimensions:
            return self
        kept = {dimension: place for place, dimension in enumerate(self.dimensions)}
        blank = fresh_leases(self.group, self.broker, wanted)

        def of_those(name: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
            if array.ndim < 2:
                return array
            new: npt.NDArray[Any] = getattr(blank, name).copy()
            for place, dimension in enumerate(wanted):
                if dimension in kept:
                    new[place] = array[kept[dimension]]
                elif dimension in PARTS and name in ("usage", "demand"):
                    new[place] = to_single(self.usage[list(PARTS[dimension])].sum(axis=0))
            return new

        return replace(self.each(of_those), dimensions=wanted)


_ARRAYS: Final = tuple(field.name for field in fields(Leases) if field.name != "dimensions")


def fresh_leases(group: IntArray, broker: IntArray, dimensions: tuple[int, ...] = _BASIC) -> Leases:
    """Rows for pairs that were never heard of: no use yet, never limited."""
    n, shape = len(group), (len(dimensions), len(group))
    nothing, never, no_time = np.zeros(shape), np.full(shape, np.inf), np.full(n, -1, np.int64)
    return Leases(
        dimensions=dimensions,
        group=group,
        broker=broker,
        usage=np.zeros(shape),
        demand=nothing,
        noise=nothing,
        last_deviation=nothing,
        distrust=np.zeros(shape, np.int64),
        reports_refused=np.zeros(n, bool),
        limit=never,
        previous_limit=never,
        max_in_force=never,
        has_limit=np.zeros(n, bool),
        enforced=np.ones(n, bool),
        notified=np.zeros(n, bool),
        issued_at_ms=no_time,
        issued_seq=no_time,
        seen_at_ms=no_time,
    )
