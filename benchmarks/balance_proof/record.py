"""The record of one contender in one scene: measurements of each second after the event."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from quotaplane.model import FloatArray


@dataclass(frozen=True)
class OwnerChange:
    """A bundle has come to another broker."""

    second: float
    """After the event."""
    bundle: str
    source: int
    target: int
    bytes_per_s: float
    """The traffic that its topics wanted then, in and out together."""


@dataclass(frozen=True)
class SceneRecord:
    """The seconds of a scene."""

    contender: str
    scene: str
    wanted: tuple[tuple[float, ...], ...]
    """For each second, by broker: bytes per second in and out that its topics wanted. A topic that
    changes hands counts with its last broker until the next one has it."""
    longest_ms: tuple[float, ...]
    """The longest publish that was acknowledged in the second."""
    p99_ms: tuple[float, ...]
    published: tuple[int, ...]
    """Messages that were acknowledged."""
    lost: tuple[int, ...]
    """Messages that did not fit a producer's queue, or failed."""
    changes: tuple[OwnerChange, ...]
    bundles: int
    """At the end: 33 at the start, more after splits."""
    shares: tuple[float, ...]
    """The part of all that each broker should carry."""

    def max_mean(self) -> FloatArray:
        """The busiest broker's load by its mean, for each second."""
        wanted = np.asarray(self.wanted)
        means = wanted.sum(axis=1, keepdims=True) * np.asarray(self.shares)
        busiest: FloatArray = (wanted / np.maximum(means, 1e-9)).max(axis=1)
        return busiest


def changes_in(
    seen: Sequence[tuple[float, Mapping[str, tuple[int, str]]]], bytes_of: Mapping[str, float]
) -> list[OwnerChange]:
    """The changes of owners in what was seen: times, and by topic its broker and bundle.

    >>> seen = [(0.0, {"t": (0, "x")}), (1.0, {}), (2.0, {"t": (1, "x")})]
    >>> changes_in(seen, {"t": 5.0})
    [OwnerChange(second=2.0, bundle='x', source=0, target=1, bytes_per_s=5.0)]
    """
    last: dict[str, int] = {}
    found: list[OwnerChange] = []
    for second, owners in seen:
        moved: dict[tuple[str, int, int], float] = {}
        for topic, (broker, bundle) in owners.items():
            before = last.get(topic, broker)
            if before != broker:
                key = (bundle, before, broker)
                moved[key] = moved.get(key, 0.0) + bytes_of[topic]
            last[topic] = broker
        found += [OwnerChange(second, *key, size) for key, size in moved.items()]
    return found
