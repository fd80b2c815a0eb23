"""Short and long averages of each bundle's load, as Pulsar's leader keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.stock.name_places import name_places, same_names
from quotaplane.model import FloatArray, IntArray

SHORT_SAMPLES: Final = 10
"""``NUM_SHORT_SAMPLES``."""

LONG_SAMPLES: Final = 1000
"""``NUM_LONG_SAMPLES``."""

DEFAULT_RATES: Final = (50_000.0, 50_000.0, 50.0, 50.0)
"""The load that Pulsar assumes of a bundle before its first sample; columns: ``RATES``."""


class Averages(NamedTuple):
    """After a round; N bundles, as its load lists them."""

    short_term: FloatArray
    """Shape (N, 4), as ``rates``."""
    long_term: FloatArray
    """Shape (N, 4), as ``rates``."""
    samples: IntArray
    """Shape (N,): samples in ``long_term``, 1 to 1000."""


class BundleAverages:
    """Keeps the averages from round to round: ``BundleData`` of every bundle.

    A sample x makes of an average v of n samples ((n - 1) v + x) / n, where n has been counted up
    first, to at most 10 or 1000. A bundle that no broker reports is forgotten.

    >>> def load_of(size: float) -> ClusterLoad:
    ...     return ClusterLoad(
    ...         brokers=("b1",), usage=np.zeros((1, 5)), limit=np.zeros((1, 5)),
    ...         bundles=("acme/orders/0x00000000_0xffffffff",), owner=np.array([0]),
    ...         rates=np.array([[size, 0.0, 0.0, 0.0]]),
    ...     )
    >>> averages = BundleAverages()
    >>> [averages.update(load_of(size)).short_term[0, 0].item() for size in (8.0, 4.0, 3.0)]
    [8.0, 6.0, 5.0]
    """

    def __init__(self) -> None:
        self._names: Sequence[str] = ()
        self._last = Averages(np.zeros((0, 4)), np.zeros((0, 4)), np.zeros(0, np.int64))

    def update(self, load: ClusterLoad) -> Averages:
        """Add one sample of every bundle."""
        last = self._aligned(load.bundles)
        samples = np.minimum(last.samples + 1, LONG_SAMPLES)
        self._last = Averages(
            averaged(last.short_term, load.rates, np.minimum(samples, SHORT_SAMPLES)),
            averaged(last.long_term, load.rates, samples),
            samples,
        )
        self._names = load.bundles
        return self._last

    def _aligned(self, names: Sequence[str]) -> Averages:
        """The last averages in the order of these names, defaults for new ones."""
        if same_names(names, self._names):
            return self._last
        unknown = np.tile(np.array(DEFAULT_RATES), (len(names), 1))
        fresh = Averages(unknown, unknown.copy(), np.zeros(len(names), np.int64))
        found = name_places(names, self._names)
        known = found >= 0
        for new, old in zip(fresh, self._last, strict=True):
            new[known] = old[found[known]]
        return fresh


def averaged(before: FloatArray, sample: FloatArray, count: IntArray) -> FloatArray:
    """Averages of ``count`` samples, shape (N,), of which the last is this; shapes (N, 4)."""
    counted = count[:, None]
    with np.errstate(over="ignore"):
        after: FloatArray = ((counted - 1) * before + sample) / counted
    return after
