"""Java's numbers and map orders, beside simple models of them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.stock.java import (
    ConcurrentMapOrder,
    HashMapOrder,
    percent_usage,
    spread,
    string_hashes,
    to_int,
    wrap_int,
)

NAMES = st.lists(st.text("abAB\0é€\U0001f600/_0", max_size=6), max_size=60, unique=True)


def hash_of(name: str) -> int:
    units = name.encode("utf-16-le")
    found = 0
    for at in range(0, len(units), 2):
        found = (31 * found + int.from_bytes(units[at : at + 2], "little")) % 2**32
    return found


class Table:
    """``ConcurrentHashMap`` key by key: buckets that are lists; Java's way to divide them."""

    def __init__(self) -> None:
        self.buckets: list[list[str]] = [[] for _ in range(16)]

    def listed(self) -> list[str]:
        return [name for bucket in self.buckets for name in bucket]

    def put(self, name: str) -> None:
        if name in self.listed():
            return
        self.buckets[self.mixed(name) % len(self.buckets)].append(name)
        while len(self.listed()) >= len(self.buckets) * 3 // 4:
            self.grow()

    def remove(self, name: str) -> None:
        self.buckets[self.mixed(name) % len(self.buckets)].remove(name)

    def mixed(self, name: str) -> int:
        return hash_of(name) ^ hash_of(name) >> 16

    def grow(self) -> None:
        size = len(self.buckets)
        grown: list[list[str]] = [[] for _ in range(2 * size)]
        for bucket in self.buckets:
            last_run = len(bucket)
            while (
                last_run and len({self.mixed(name) & size for name in bucket[last_run - 1 :]}) < 2
            ):
                last_run -= 1
            for name in bucket[last_run:]:
                grown[self.mixed(name) % (2 * size)].append(name)
            for name in bucket[:last_run]:
                grown[self.mixed(name) % (2 * size)].insert(0, name)
        self.buckets = grown


@given(NAMES)
def test_hashes_are_javas(names: list[str]) -> None:
    assert string_hashes(names).tolist() == [hash_of(name) for name in names]


@given(st.lists(NAMES, max_size=5), st.randoms())
def test_a_concurrent_map_lists_its_keys_in_the_models_order(
    rounds: list[list[str]], random: object
) -> None:
    ours, model = ConcurrentMapOrder(), Table()
    for names in rounds:
        order = ours.replace(tuple(names))
        for name in names:
            model.put(name)
        for name in model.listed():
            if name not in names:
                model.remove(name)
        assert [names[at] for at in order.tolist()] == model.listed()
        assert ours.spreads.tolist() == [model.mixed(name) for name in names]


def test_keys_are_inserted_in_the_order_that_is_asked_for() -> None:
    """Aa and BB have the same hash."""
    assert ConcurrentMapOrder().replace(("Aa", "BB")).tolist() == [0, 1]
    assert ConcurrentMapOrder().replace(("Aa", "BB"), np.array([1, 0])).tolist() == [1, 0]


def test_a_hash_map_keeps_the_table_that_it_once_needed() -> None:
    order = HashMapOrder()
    few = spread(string_hashes([f"b{at}" for at in range(5)]))
    many = spread(string_hashes([f"broker-{at}" for at in range(100)]))
    before = order.order(few).tolist()
    order.order(many)
    assert order.capacity == 256
    assert order.order(few).tolist() != before


@given(st.floats(allow_nan=False))
def test_a_float_becomes_the_nearest_int_towards_0(value: float) -> None:
    wanted = max(-(2**31), min(2**31 - 1, value))
    assert to_int(value) == int(wanted)


@given(st.integers(-(2**33), 2**33))
def test_a_sum_of_ints_wraps(value: int) -> None:
    assert wrap_int(value) == int(np.array(value, np.int64).astype(np.int32))


def test_percent_of_limits_that_are_odd() -> None:
    usage = np.array([50.0, 50.0, 0.0, 1e300, 1e-50])
    limit = np.array([0.0, -1.0, 1e-50, 1.0, 1e-50])
    percent = percent_usage(usage, limit)
    assert percent[:2].tolist() == [0, 0]
    assert np.isnan(percent[2])  # Java: 0f / 0f, as the limit is more than 0 only in 64 bits
    assert np.isinf(percent[3])
    assert np.isnan(percent[4])
