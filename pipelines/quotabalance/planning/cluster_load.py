"""The load of a cluster at one time, in columns: what every strategy gets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np

from quotaplane.errors import InputError
from quotaplane.model import FloatArray, IntArray

RESOURCES: Final = ("cpu", "memory", "directMemory", "bandwidthIn", "bandwidthOut")
"""Resources of a broker's machine, by Pulsar's names; columns of ``usage`` and ``limit``."""

RATES: Final = ("throughput_in", "throughput_out", "messages_in", "messages_out")
"""The measurements of a bundle: bytes per second in and out, messages per second in and out;
columns of ``rates``."""

BYTES: Final = slice(0, 2)
"""The columns of ``RATES`` that are bytes per second."""


@dataclass(frozen=True)
class ClusterLoad:
    """The load of brokers and bundles at one time. B brokers, N bundles; names are unique.

    >>> load = ClusterLoad(
    ...     brokers=("b1", "b2"),
    ...     usage=np.array([[50.0, 1, 1, 10, 10], [10, 1, 1, 2, 2]]),
    ...     limit=np.full((2, 5), 100.0),
    ...     bundles=("acme/orders/0x00000000_0xffffffff",),
    ...     owner=np.array([0]),
    ...     rates=np.array([[1e6, 2e6, 10.0, 20.0]]),
    ... )
    >>> load.throughput_of_brokers().tolist()
    [3000000.0, 0.0]
    >>> load.max_by_mean()
    2.0
    """

    brokers: Sequence[str]
    usage: FloatArray
    """Shape (B, 5): use of each resource, in the unit of its limit. Columns: ``RESOURCES``."""
    limit: FloatArray
    """Shape (B, 5): what the machine has of each resource; 0 = not known."""
    bundles: Sequence[str]
    owner: IntArray
    """Shape (N,): index of the broker that serves the bundle."""
    rates: FloatArray
    """Shape (N, 4): what is measured of each bundle. Columns: ``RATES``."""
    topics: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Shape (N,), or empty if not known: topics in the bundle."""
    sessions: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    """Shape (N,), or empty if not known: producers and consumers of the bundle."""

    def check(self) -> None:
        """Check shapes and values.

        Raises:
            InputError: the first broker or bundle with an unusable value, and which it is.
        """
        brokers, bundles = len(self.brokers), len(self.bundles)
        for name, shape in (
            ("usage", (brokers, len(RESOURCES))),
            ("limit", (brokers, len(RESOURCES))),
            ("owner", (bundles,)),
            ("rates", (bundles, len(RATES))),
        ):
            if getattr(self, name).shape != shape:
                raise InputError(f"{name}: has shape {getattr(self, name).shape}, not {shape}")
        for name in ("topics", "sessions"):
            if getattr(self, name).shape not in ((bundles,), (0,)):
                raise InputError(f"{name}: must have one number for each bundle, or be empty")
        _check_unique("broker", self.brokers)
        _check_unique("bundle", self.bundles)
        if bundles and not (self.owner.min() >= 0 and self.owner.max() < brokers):
            raise InputError("owner: a bundle belongs to a broker that is not listed")
        _check_amounts("broker", self.brokers, self.usage, RESOURCES, "usage")
        _check_amounts("broker", self.brokers, self.limit, RESOURCES, "limit")
        _check_amounts("bundle", self.bundles, self.rates, RATES, "rate")
        for name in ("topics", "sessions"):
            counts = getattr(self, name)
            if len(counts) and counts.min() < 0:
                raise InputError(f"bundle {self.bundles[int(counts.argmin())]}: {name} < 0")

    def throughput(self) -> FloatArray:
        """Bytes per second of each bundle, in and out together; shape (N,)."""
        total: FloatArray = self.rates[:, 0] + self.rates[:, 1]
        return total

    def throughput_of_brokers(self) -> FloatArray:
        """Bytes per second of each broker's bundles; shape (B,)."""
        total = np.bincount(self.owner, self.throughput(), len(self.brokers))
        return total.astype(np.float64)  # numpy counts no bundles in integers

    def max_by_mean(self) -> float:
        """The imbalance: bytes per second of the most loaded broker, divided by the brokers' mean;
        1 if no bundle carries anything.
        """
        carried = self.throughput_of_brokers()
        mean = float(carried.mean()) if len(carried) else 0.0
        return float(carried.max()) / mean if mean > 0 else 1.0


def _check_unique(kind: str, names: Sequence[str]) -> None:
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(name for name in names if name in seen or seen.add(name))  # type: ignore[func-returns-value]
        raise InputError(f"{kind} {twice}: is listed twice")


def _check_amounts(
    kind: str, names: Sequence[str], amounts: FloatArray, columns: Sequence[str], what: str
) -> None:
    bad = ~np.isfinite(amounts) | (amounts < 0)
    if bad.any():
        row, column = (int(place[0]) for place in np.nonzero(bad))
        raise InputError(
            f"{kind} {names[row]}: {what} of {columns[column]} is {amounts[row, column]:g};"
            " expected a finite number of at least 0"
        )
