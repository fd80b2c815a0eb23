"""Positions at which a bundle is split."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.planning.split_positions import split_positions
from quotaplane.errors import InputError
from quotaplane.topics.bundle_names import FULL_RANGE, BundleName

WHOLE = BundleName("acme/orders", 0, FULL_RANGE)
TOPICS = st.lists(
    st.tuples(st.integers(0, FULL_RANGE - 1), st.floats(0.0, 1e9)), min_size=0, max_size=40
)


def columns(topics: list[tuple[int, float]]) -> tuple[np.ndarray, np.ndarray]:
    return (
        np.array([hashed for hashed, _ in topics], np.int64),
        np.array([weight for _, weight in topics], np.float64),
    )


def part_weights(
    boundaries: tuple[int, ...], hashes: np.ndarray, weights: np.ndarray
) -> np.ndarray:
    """The weight of each new bundle; shape (len(boundaries) + 1,)."""
    part = np.searchsorted(np.asarray(boundaries, np.int64), hashes, side="right")
    return np.bincount(part, weights, len(boundaries) + 1).astype(np.float64)


@given(TOPICS)
def test_boundaries_are_usable(topics: list[tuple[int, float]]) -> None:
    hashes, weights = columns(topics)
    found = split_positions(WHOLE, hashes, weights)
    assert all(0 < boundary < FULL_RANGE for boundary in found)
    assert len(found) <= 1
    # Every part has a topic, and there is a cut where there are two hashes to divide.
    assert (part_weights(found, hashes, np.ones(len(hashes))) > 0).all() or not len(hashes)
    assert bool(found) == (len(set(hashes.tolist())) > 1)


@given(TOPICS)
def test_no_other_single_cut_is_more_even(topics: list[tuple[int, float]]) -> None:
    hashes, weights = columns(topics)
    if len(set(hashes[weights > 0].tolist())) < 2:
        return
    found = split_positions(WHOLE, hashes, weights)
    best = min(
        part_weights((int(cut),), hashes, weights).max() for cut in sorted(set(hashes.tolist()))[1:]
    )
    assert part_weights(found, hashes, weights).max() == pytest.approx(best, rel=1e-9)


def test_a_lone_busy_topic_is_separated_from_idle_ones() -> None:
    hashes = np.array([10, 20, 30, 40])
    assert split_positions(WHOLE, hashes, np.array([0.0, 0.0, 0.0, 5.0])) == (36,)
    assert split_positions(WHOLE, hashes, np.array([5.0, 0.0, 0.0, 0.0])) == (16,)
    assert split_positions(WHOLE, hashes, np.zeros(4)) == (26,)


def test_bad_input_is_refused() -> None:
    bundle = BundleName("acme/orders", 100, 200)
    with pytest.raises(InputError, match="outside its range"):
        split_positions(bundle, np.array([50]), np.array([1.0]))
    with pytest.raises(InputError, match="not finite"):
        split_positions(bundle, np.array([150]), np.array([np.nan]))
    with pytest.raises(InputError, match="2 weights"):
        split_positions(bundle, np.array([150]), np.array([1.0, 2.0]))


def test_a_large_bundle_is_quick() -> None:
    generator = np.random.default_rng(1)
    hashes = generator.integers(0, FULL_RANGE, 100_000)
    weights = generator.lognormal(size=100_000)
    parts = part_weights(split_positions(WHOLE, hashes, weights), hashes, weights)
    assert parts.max() / parts.mean() < 1.01
