"""What brokers were told: the newest holds, within its lease; then the safe limit."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from quotaplane.enforce.book import Book
from quotaplane.model import group_id
from quotaplane.wire.limits import decode_limits, encode_limits

T0 = 1_700_000_000_000


def told(
    book: Book,
    broker: str = "b1",
    groups: Sequence[str] = ("g",),
    limits: Sequence[float] = (100.0,),
    *,
    safe: Sequence[float] | None = None,
    seq: int = 1,
    epoch: int = 1,
    at_ms: int = T0,
    lease_ms: int = 10_000,
    **other: Any,
) -> int:
    """Publish messages alone are limited."""
    other.setdefault("groups", groups)
    if other["groups"] is None:
        del other["groups"]
    return book.receive(
        decode_limits(
            encode_limits(
                broker=broker,
                shard=0,
                epoch=epoch,
                seq=seq,
                issued_at_ms=at_ms,
                lease_ms=lease_ms,
                limits=np.array(limits).reshape(-1, 1),
                safe_limits=None if safe is None else np.array(safe).reshape(-1, 1),
                **other,
            )
        )
    )


def holds(book: Book, broker: str = "b1", group: str = "g", now_ms: float = T0) -> float:
    one = np.zeros(1, np.int64)
    limits = book.in_force((broker,), (group,), one, one, now_ms)
    assert limits.shape == (1, 4)
    return float(limits[0, 0])


def test_who_was_never_told_is_left_alone() -> None:
    book = Book()
    assert np.isnan(holds(book))
    told(book, "b1", ["g"])
    assert np.isnan(holds(book, "b2"))
    assert np.isnan(holds(book, "b1", "other"))
    assert holds(book) == 100


def test_a_lease_ends_in_the_safe_limit() -> None:
    book = Book()
    told(book, safe=[40.0])
    assert holds(book, now_ms=T0 + 10_000) == 100
    assert holds(book, now_ms=T0 + 10_001) == 40
    told(book, limits=[80.0], seq=2, at_ms=T0 + 20_000)  # the safe limit is as told before
    assert holds(book, now_ms=T0 + 20_000) == 80
    assert holds(book, now_ms=np.inf) == 40


def test_without_a_safe_limit_told_an_ended_lease_leaves_alone() -> None:
    book = Book()
    told(book)
    assert np.isnan(holds(book, now_ms=T0 + 10_001))


@pytest.mark.parametrize("order", list(itertools.permutations(range(4))))
def test_the_newest_holds_whatever_the_order(order: Sequence[int]) -> None:
    book = Book()
    messages = [(1, 7, 10.0), (1, 9, 20.0), (2, 1, 30.0), (2, 0, 40.0)]
    for index in order:
        epoch, seq, limit = messages[index]
        told(book, limits=[limit], epoch=epoch, seq=seq)
    assert holds(book) == 30
    assert told(book, limits=[50.0], epoch=2, seq=1) == 0  # twice is once
    assert holds(book) == 30


def test_names_and_ids_are_the_same_groups() -> None:
    book = Book()
    told(book, groups=None, group_ids=[group_id("g")], limits=[10.0])
    assert holds(book) == 10
    told(book, limits=[20.0], seq=2)
    assert holds(book) == 20


@pytest.mark.parametrize("by_id", [False, True])
def test_a_removed_group_is_unlimited_for_good_until_it_is_told_anew(by_id: bool) -> None:
    book = Book()
    told(book, safe=[40.0], seq=5)
    gone: dict[str, Any] = (
        {"removed_group_ids": [group_id("g")]} if by_id else {"removed_groups": ["g"]}
    )
    told(book, groups=[], limits=[], seq=4, **gone)  # older than the limit: came too late
    assert holds(book) == 100
    told(book, groups=[], limits=[], seq=6, **gone)
    assert holds(book) == np.inf
    assert holds(book, now_ms=np.inf) == np.inf
    told(book, limits=[30.0], seq=7)
    assert holds(book) == 30


def test_a_removed_group_is_left_alone_where_its_rates_are_to_stay() -> None:
    book = Book()
    told(book, groups=["g", "h"], limits=[1.0, 2.0], safe=[40.0, 40.0])
    told(book, "b2", groups=["g", "h"], limits=[1.0, 2.0])
    told(book, groups=[], limits=[], seq=2, removed_groups=["g"])
    brokers, groups = ("b2", "b1", "new"), ("new", "h", "g")
    broker, group = np.repeat(np.arange(3), 3), np.tile(np.arange(3), 3)
    for now_ms, safe in ((T0, 2.0), (np.inf, 40.0)):
        limits = book.in_force(brokers, groups, broker, group, now_ms, keep_removed=True)
        told_b1 = limits[3:6, 0]
        assert np.array_equal(told_b1, [np.nan, safe, np.nan], equal_nan=True)
        assert np.isnan(limits[5]).all()
    assert book.removed(brokers, groups) == ["g"]
    assert book.removed(("b2", "new"), groups) == []
    told(book, limits=[30.0], seq=3)
    assert book.removed(brokers, groups) == []
    assert Book().removed(brokers, groups) == []


def test_a_message_for_an_incarnation_is_not_for_a_stock_broker() -> None:
    book = Book()
    assert told(book, broker_started_at_ms=1234) == 0
    assert np.isnan(holds(book))


def test_what_can_not_be_enforced_is_noticed() -> None:
    book = Book()
    told(book)
    assert book.not_enforced == 0
    told(book, throttles=['{"*":{"mode":"hard"}}'], safe=[1.0], seq=2)
    message = encode_limits(
        broker="b1",
        shard=0,
        epoch=1,
        seq=3,
        issued_at_ms=T0,
        lease_ms=1,
        groups=["g"],
        limits=np.full((1, 7), 5.0),
    )
    book.receive(decode_limits(message))
    assert book.not_enforced == 2


def test_many_brokers_and_groups_at_once() -> None:
    book = Book()
    groups = [f"g{i}" for i in range(50)]
    for b in range(9):
        told(book, f"b{b}", groups[: 5 * b], np.arange(5.0 * b) + 100 * b, at_ms=T0 + b)
    assert book.issued_at_ms == T0 + 8
    names = tuple(f"b{b}" for b in reversed(range(9)))
    broker, group = np.repeat(np.arange(9), 50), np.tile(np.arange(50), 9)
    limits = book.in_force(names, groups, broker, group, T0)[:, 0].reshape(9, 50)
    for at, b in enumerate(reversed(range(9))):
        assert limits[at, : 5 * b].tolist() == (np.arange(5.0 * b) + 100 * b).tolist()
        assert np.isnan(limits[at, 5 * b :]).all()
