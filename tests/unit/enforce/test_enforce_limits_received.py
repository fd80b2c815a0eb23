"""Limits received: the newest holds, within its lease; then the safe limit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.enforce.limits_received import (
    FORGET_AFTER_MS,
    MOST_UNLISTED_BROKERS,
    MOST_UNLISTED_GROUPS,
    ClusterLimits,
)
from quotaplane.model import DIMENSIONS, FloatArray, group_id
from quotaplane.wire.limits import decode_limits, encode_limits

T0 = 1_700_000_000_000
LEASE_MS = 10_000


def receive(
    received: ClusterLimits,
    broker: str = "b1",
    groups: Sequence[str] | None = ("g",),
    limits: Sequence[float] | FloatArray = (100.0,),
    *,
    safe: Sequence[float] | None = None,
    at_ms: int = T0,
    now_ms: float = T0,
    **changes: Any,
) -> int:
    """A list of limits is of publish messages alone."""
    rows = np.asarray(limits)
    safe_rows = None if safe is None else np.array(safe)[:, None]
    changes = {"epoch": 1, "seq": 1, "lease_ms": LEASE_MS, "groups": groups} | changes
    message = encode_limits(
        broker=broker,
        shard=0,
        issued_at_ms=at_ms,
        safe_limits=safe_rows,
        limits=rows if rows.ndim == 2 else rows[:, None],
        **changes,
    )
    return received.receive(decode_limits(message), now_ms)


def holds(
    received: ClusterLimits, broker: str = "b1", group: str = "g", now_ms: float = T0
) -> float:
    one = np.zeros(1, np.int64)
    limits = received.in_force((broker,), (group,), one, one, now_ms)
    assert limits.shape == (1, 4)
    return float(limits[0, 0])


def test_a_lease_ends_in_the_safe_limit() -> None:
    received = ClusterLimits()
    receive(received, safe=[40.0])
    assert holds(received, now_ms=T0 + 10_000) == 100
    assert holds(received, now_ms=T0 + 10_001) == 40
    # the safe limit is as before
    receive(received, limits=[80.0], seq=2, at_ms=T0 + 20_000, now_ms=T0 + 20_000)
    assert holds(received, now_ms=T0 + 20_000) == 80
    assert holds(received, now_ms=np.inf) == 40


def test_names_and_ids_are_the_same_groups() -> None:
    received = ClusterLimits()
    receive(received, groups=None, group_ids=[group_id("g")], limits=[10.0])
    assert holds(received) == 10
    receive(received, limits=[20.0], seq=2)
    assert holds(received) == 20
    assert receive(received, limits=[50.0], seq=2) == 0  # twice is once
    assert holds(received) == 20


@pytest.mark.parametrize("by_id", [False, True])
def test_a_removed_group_is_unlimited_for_good_until_a_new_limit_comes(by_id: bool) -> None:
    received = ClusterLimits()
    receive(received, safe=[40.0], seq=5)
    gone = {"removed_group_ids": [group_id("g")]} if by_id else {"removed_groups": ["g"]}
    receive(received, groups=[], limits=[], seq=4, **gone)  # older than the limit: came too late
    assert holds(received) == 100
    receive(received, groups=[], limits=[], seq=6, **gone)
    assert holds(received) == np.inf
    assert holds(received, now_ms=np.inf) == np.inf
    receive(received, limits=[30.0], seq=7)
    assert holds(received) == 30


def test_a_group_is_known_once_a_message_had_it_a_removal_too() -> None:
    received = ClusterLimits()
    receive(received, groups=["g"], limits=[1.0])
    receive(received, "b2", groups=[], limits=[], removed_groups=["h"])
    assert received.is_known(["new", "h", "g"]).tolist() == [False, True, True]
    assert received.is_known([]).tolist() == []
    assert ClusterLimits().is_known(["g"]).tolist() == [False]


def test_a_message_for_an_incarnation_is_not_for_a_stock_broker() -> None:
    received = ClusterLimits()
    assert receive(received, broker_started_at_ms=1234) == 0
    assert np.isnan(holds(received))


def test_what_can_not_be_enforced_is_noticed() -> None:
    received = ClusterLimits()
    receive(received)
    assert received.not_enforced == 0
    receive(received, throttles=['{"*":{"mode":"hard"}}'], safe=[1.0], seq=2)
    receive(received, limits=np.full((1, len(DIMENSIONS)), 5.0), seq=3)
    assert received.not_enforced == 2


def test_many_brokers_and_groups_at_once() -> None:
    received = ClusterLimits()
    groups = [f"g{i}" for i in range(50)]
    for b in range(9):
        receive(received, f"b{b}", groups[: 5 * b], np.arange(5.0 * b) + 100 * b, at_ms=T0 + b)
    assert received.issued_at_ms == T0 + 8
    names = tuple(f"b{b}" for b in reversed(range(9)))
    broker, group = np.repeat(np.arange(9), 50), np.tile(np.arange(50), 9)
    limits = received.in_force(names, groups, broker, group, T0)[:, 0].reshape(9, 50)
    for at, b in enumerate(reversed(range(9))):
        assert limits[at, : 5 * b].tolist() == (np.arange(5.0 * b) + 100 * b).tolist()
        assert np.isnan(limits[at, 5 * b :]).all()


versions = st.tuples(st.integers(0, 3), st.integers(0, 3))
ages_ms = st.sampled_from([0, 4_000, 12_000, 20_000])


@given(st.lists(st.tuples(versions, ages_ms), min_size=1, max_size=6, unique_by=lambda m: m[0]))
def test_the_newest_within_its_lease_holds(messages: list[tuple[tuple[int, int], int]]) -> None:
    received = ClusterLimits()
    limit_of = {}
    for place, ((epoch, seq), age_ms) in enumerate(messages):
        limit_of[epoch, seq] = 10.0 + place
        receive(received, limits=[10.0 + place], epoch=epoch, seq=seq, at_ms=T0 - age_ms)
    live = [version for version, age_ms in messages if age_ms <= LEASE_MS]
    expected = limit_of[max(live)] if live else np.nan  # no safe limit came
    np.testing.assert_equal(holds(received), expected)


@pytest.mark.parametrize("removed", [False, True])
def test_an_invented_version_shuts_the_job_out_for_a_lease_and_no_longer(removed: bool) -> None:
    received = ClusterLimits()
    receive(received, safe=[40.0])
    invented: dict[str, Any] = {"epoch": 2**62, "seq": 2**62}
    if removed:
        receive(received, groups=[], limits=[], removed_groups=["g"], **invented)
    else:
        receive(received, limits=[1e9], **invented)
    honest_ms = T0 + 5_000
    receive(received, limits=[30.0], seq=2, at_ms=honest_ms, now_ms=honest_ms)
    assert holds(received, now_ms=honest_ms) > 1e8
    honest_ms = T0 + LEASE_MS + 1
    receive(received, limits=[30.0], seq=3, safe=[40.0], at_ms=honest_ms, now_ms=honest_ms)
    assert holds(received, now_ms=honest_ms) == 30
    assert holds(received, now_ms=np.inf) == 40


def test_a_duplicate_of_an_ended_lease_is_not_obeyed_after_a_removal() -> None:
    received = ClusterLimits()
    receive(received, groups=[], limits=[], removed_groups=["g"], seq=6)
    receive(received, limits=[99.0], seq=5, at_ms=T0 - 1, now_ms=T0 + LEASE_MS)
    assert holds(received, now_ms=T0 + LEASE_MS) == np.inf


@pytest.mark.nightly
def test_invented_brokers_and_groups_take_a_bounded_room() -> None:
    received = ClusterLimits()
    received.expect(["b1"], ["g"])
    groups = [f"invented-{i}" for i in range(1_000)]
    for number in range(4_000):
        receive(received, f"nobody-{number}", groups, np.ones(1_000))
    for number in range(20):
        receive(received, "b1", [f"more-{number}-{i}" for i in range(1_000)], np.ones(1_000))
    rows, columns = received.room
    assert rows <= 2 * (MOST_UNLISTED_BROKERS + 1)
    assert columns <= 2 * (MOST_UNLISTED_GROUPS + 1)
    assert received.ignored >= 4_000 - MOST_UNLISTED_BROKERS
    # A broker and a group that the cluster lists have their room.
    assert receive(received, "b1", ["g"]) == 1
    assert holds(received) == 100


def test_what_is_not_listed_is_forgotten_long_after_its_lease() -> None:
    received = ClusterLimits()
    received.expect(["b1"], ["g"])
    receive(received, "b1", ["g", "other"], [100.0, 50.0], safe=[10.0, 5.0])
    receive(received, "gone", ["g"], [70.0], safe=[7.0])
    late_ms = T0 + LEASE_MS + FORGET_AFTER_MS
    received.forget(late_ms)
    assert holds(received, "gone", now_ms=late_ms) == 7
    received.forget(late_ms + 1)
    assert np.isnan(holds(received, "gone", now_ms=late_ms))
    assert np.isnan(holds(received, "b1", "other", now_ms=late_ms))
    assert holds(received, now_ms=late_ms) == 10
    assert received.decided_ms(["g", "other"]).tolist() == [T0, -np.inf]
    # And goes on as before.
    receive(received, "gone", ["g", "other"], [60.0, 6.0], at_ms=late_ms, now_ms=late_ms)
    assert holds(received, "gone", now_ms=late_ms) == 60
    assert holds(received, "gone", "other", now_ms=late_ms) == 6


def test_names_that_can_be_no_groups_are_ignored() -> None:
    received = ClusterLimits()
    receive(received, groups=["", "g", "a\nb"], limits=[1.0, 2.0, 3.0])
    assert holds(received) == 2
