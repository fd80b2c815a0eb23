"""The leases of a shard: for each (group, broker) its usage, estimated demand and limit.

Arrays over the dimensions have shape (d, n): one contiguous vector per dimension, which is also how
Arrow stores them. d counts only the dimensions that are in use (``shard``).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from quotaplane.arrays import map_arrays, taken, to_single
from quotaplane.model import BASIC, PARTS, BoolArray, FloatArray, IntArray
from quotaplane.quota.estimate.demand_estimates import Estimates

_BASIC = tuple(range(BASIC))


@dataclass(frozen=True)
class Leases:
    """The n pairs of a group and a broker, sorted by group, then broker.

    Arrays over the dimensions have shape (d, n), rates are per second; the others have shape (n,).
    """

    dimensions: tuple[int, ...]
    """The d dimensions, as ascending indexes in ``model.DIMENSIONS``."""
    group: IntArray
    """Index of the group."""
    broker: IntArray
    """Index of the broker."""
    usage: FloatArray
    """(d, n) in the newest report."""
    estimates: Estimates
    """(d, n) what is known of the demand."""
    reports_refused: BoolArray
    """The broker reports what it refuses or delays."""
    limit: FloatArray
    """(d, n) issued last; inf = unlimited. Before the first: inf, or what the broker reports of an
    earlier control plane."""
    previous_limit: FloatArray
    """(d, n) the limit before ``limit``, while that is young; else equal to it."""
    max_in_force: FloatArray
    """(d, n) the highest limit that the broker may still apply, while ``limit`` is young; else, and
    where limits are not enforced, equal to ``limit``."""
    has_limit: BoolArray
    """A limit was issued, or taken over from an earlier control plane."""
    enforced: BoolArray
    """The broker must obey ``limit``; else it is only computed."""
    notified: BoolArray
    """A limit of the group was sent to the broker at some time."""
    issued_at_ms: IntArray
    """When the limit was issued; -1 once it is old: no report can cover the time before it."""
    issued_seq: IntArray
    """``Round.seq`` in which the limit was issued; -1 once it is old."""
    seen_at_ms: IntArray
    """When the newest report that names the group was published."""

    def __len__(self) -> int:
        return len(self.group)

    def take(self, chosen: BoolArray | IntArray) -> Leases:
        """The leases that ``chosen`` (a mask, or ascending indexes) selects."""
        return taken(self, chosen)

    def merged(self, others: Leases) -> Leases:
        """These and ``others``, which are other pairs in the same dimensions."""
        joined = map_arrays(lambda *arrays: np.concatenate(arrays, axis=-1), self, others)
        pair = joined.group * (joined.broker.max(initial=0) + 1) + joined.broker
        return joined.take(np.argsort(pair, kind="stable"))

    def in_dimensions(self, dimensions: Iterable[int]) -> Leases:
        """The same leases in other dimensions.

        A new dimension starts unlimited: a total with the summed usage of its parts, any other with
        no usage.
        """
        wanted = tuple(dimensions)
        if wanted == self.dimensions:
            return self
        kept = [place for place, each in enumerate(wanted) if each in self.dimensions]
        own = [self.dimensions.index(wanted[place]) for place in kept]

        def selected(array: npt.NDArray[Any], blank: npt.NDArray[Any]) -> npt.NDArray[Any]:
            if array.ndim < 2:
                return array
            new = blank.copy()
            new[kept] = array[own]
            return new

        blank = fresh_leases(self.group, self.broker, wanted)
        leases = replace(map_arrays(selected, self, blank), dimensions=wanted)
        for place, dimension in enumerate(wanted):
            if dimension in PARTS and dimension not in self.dimensions:
                total = to_single(self.usage[list(PARTS[dimension])].sum(axis=0))
                leases.usage[place] = leases.estimates.demand[place] = total
        return leases


def fresh_leases(group: IntArray, broker: IntArray, dimensions: tuple[int, ...] = _BASIC) -> Leases:
    """Leases of pairs that no report has named yet: no usage, no limit."""
    n, shape = len(group), (len(dimensions), len(group))
    unlimited, never = np.full(shape, np.inf), np.full(n, -1, np.int64)
    return Leases(
        dimensions=dimensions,
        group=group,
        broker=broker,
        usage=np.zeros(shape),
        estimates=Estimates.blank(shape),
        reports_refused=np.zeros(n, bool),
        limit=unlimited,
        previous_limit=unlimited,
        max_in_force=unlimited,
        has_limit=np.zeros(n, bool),
        enforced=np.ones(n, bool),
        notified=np.zeros(n, bool),
        issued_at_ms=never,
        issued_seq=never,
        seen_at_ms=never,
    )
