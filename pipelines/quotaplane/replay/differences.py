"""The effect of other limits on recorded usage: how much less and how much more, by broker."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from quotaplane.groups.standing import AT_LIMIT
from quotaplane.model import DIMENSIONS, FloatArray, IntArray


def less_and_more(
    used: FloatArray, limit: FloatArray, changed: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """The part of the usage that a changed limit does not allow, and the further usage it allows.

    All arrays have one shape. Usage above both limits counts as less only as far as the recorded
    limit allowed it. Only brokers that used their recorded limit may have used more.

    >>> used, limit = np.array([80.0, 50.0, 10.0]), np.array([100.0, 50.0, 50.0])
    >>> less_and_more(used, limit, np.array([60.0, 70.0, 70.0]))
    (array([20.,  0.,  0.]), array([ 0., 20.,  0.]))
    """
    less = np.maximum(np.minimum(used, limit) - changed, 0.0)
    with np.errstate(invalid="ignore"):  # unlimited both before and after
        higher = np.maximum(changed - limit, 0.0)
    more = np.where((used >= AT_LIMIT * limit) & np.isfinite(higher), higher, 0.0)
    return less, more


class Totals(NamedTuple):
    """Sums over time of n pairs of a group and a broker, by dimension: arrays (d, n)."""

    less: FloatArray
    """Units used above the changed limit."""
    less_ms: FloatArray
    more: FloatArray
    """Further units that the changed limit would have allowed."""
    more_ms: FloatArray
    first_ms: FloatArray
    """Time of the first usage above the changed limit; NaN: never."""
    last_ms: FloatArray
    limit_ms: FloatArray
    """Recorded limit times duration, while both limits are finite."""
    changed_ms: FloatArray
    """Changed limit times duration, while both limits are finite."""
    both_ms: FloatArray
    """Duration during which both limits are finite."""


def differences(groups: Sequence[str], brokers: Sequence[str], totals: Totals) -> pa.Table:
    """A row for each pair and dimension in which anything differs, the greatest loss first.

    ``groups`` and ``brokers`` (n,) are the names of the pairs; ``quota_what_if.what_if`` describes
    the columns.
    """
    differs = (totals.less > 0) | (totals.more > 0)
    differs |= np.abs(totals.limit_ms - totals.changed_ms) > 1e-9 * totals.limit_ms
    dimension, pair = np.nonzero(differs)
    order = np.lexsort((-totals.more[dimension, pair], -totals.less[dimension, pair]))
    dimension, pair = dimension[order], pair[order]

    def at(array: FloatArray) -> FloatArray:
        values: FloatArray = array[dimension, pair]
        return values

    both = np.maximum(at(totals.both_ms), 1e-9)
    never = at(totals.both_ms) == 0
    return pa.table(
        {
            "group": _named(groups, pair),
            "broker": _named(brokers, pair),
            "dimension": _named(DIMENSIONS, dimension),
            "limit_per_s": pa.array(at(totals.limit_ms) / both, mask=never),
            "changed_limit_per_s": pa.array(at(totals.changed_ms) / both, mask=never),
            "less_units": at(totals.less),
            "less_s": at(totals.less_ms) / 1000.0,
            "first_less_at": _times(at(totals.first_ms)),
            "last_less_at": _times(at(totals.last_ms)),
            "more_units": at(totals.more),
            "more_s": at(totals.more_ms) / 1000.0,
        }
    )


def _named(names: Iterable[str], index: IntArray) -> pa.Array:
    return pa.array(list(names), pa.string()).take(pa.array(index))


def _times(ms: FloatArray) -> pa.Array:
    return pa.array(ms, from_pandas=True).cast(pa.int64()).cast(pa.timestamp("ms", "UTC"))
