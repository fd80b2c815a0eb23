"""Loads of new bundles that a split made of an old one, until they are measured."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np

from quotaplane.errors import InputError
from quotaplane.model import FloatArray, IntArray
from quotaplane.topics.bundle_names import BundleName, parse_bundle

BELIEVED: Final = 0.5
"""Parts that together carry less than this part of what the old bundle carried were not measured
for a whole period."""


def children_of(gone: Sequence[str], new: Sequence[str]) -> Mapping[str, Sequence[int]]:
    """Which new bundles are parts of which old one.

    Args:
        gone: names of bundles that are no longer reported.
        new: names of bundles that were not reported before.

    Returns:
        From the old bundle to the places of its parts in ``new``; only of those that have some.

    >>> children_of(["a/b/0x00000000_0x00000008"], ["a/b/0x00000009_0x0000000a"])
    {}
    >>> children_of(["a/b/0x00000000_0x00000008"], ["a/b/0x00000000_0x00000004"])
    {'a/b/0x00000000_0x00000008': [0]}
    """
    fresh: dict[str, list[tuple[BundleName, int]]] = defaultdict(list)
    for place, name in enumerate(new):
        parsed = _parsed(name)
        if parsed:
            fresh[parsed.namespace].append((parsed, place))
    found: dict[str, Sequence[int]] = {}
    for name in gone:
        if name.rpartition("/")[0] not in fresh:
            continue
        old = _parsed(name)
        parts = [
            place
            for part, place in fresh[name.rpartition("/")[0]]
            if old and old.low <= part.low and part.high <= old.high
        ]
        if parts:
            found[name] = parts
    return found


def guessed_loads(
    carried: float, sizes: FloatArray, parts: Sequence[str], topics: IntArray, old: str
) -> FloatArray | None:
    """Loads of parts that were not measured for a whole period; None = they were.

    Args:
        carried: bytes per second of the old bundle.
        sizes: of the parts as measured, shape (P,).
        parts: their names.
        topics: shape (P,), or empty if not known.
        old: name of the old bundle.

    Returns:
        Shape (P,): its load, divided by the parts' topics, or else by the width of their ranges.

    >>> halves = ["a/b/0x00000000_0x00000004", "a/b/0x00000004_0x00000008"]
    >>> none = np.zeros(0, np.int64)
    >>> guessed_loads(8.0, np.array([0.0, 1.0]), halves, none, "a/b/0x00000000_0x00000008").tolist()
    [4.0, 4.0]
    >>> guessed_loads(8.0, np.array([1.0, 6.0]), halves, none, "a/b/0x00000000_0x00000008")
    """
    whole = parse_bundle(old)
    width = np.array([one.high - one.low for one in map(parse_bundle, parts)], np.float64)
    covered = min(float(width.sum()) / (whole.high - whole.low), 1.0)
    if sizes.sum() >= BELIEVED * covered * carried:
        return None
    weight = topics.astype(np.float64) if len(topics) and topics.sum() > 0 else width
    loads: FloatArray = covered * carried * weight / weight.sum()
    return loads


def _parsed(name: str) -> BundleName | None:
    try:
        return parse_bundle(name)
    except InputError:
        return None
