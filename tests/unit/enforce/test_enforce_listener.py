"""Limits as they come from their topic: what can't be the quota job's is refused, one by one."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quotaplane.enforce.agent import limits_listener as listening
from quotaplane.transport.base import Polled
from quotaplane.wire.pb.quotaplane_pb2 import LimitsUpdate
from tests.job import write_round
from tests.unit.enforce.enforce_cluster import EPOCH
from tests.unit.enforce.listener_rig import LEASE_S, T0, ListenerRig, message

MAGIC = 0x314C5051
YEAR_MS = 365 * 86_400_000


def beyond(**fields: int) -> bytes:
    """A message that no encoder of ours would write."""
    return LimitsUpdate(magic=MAGIC, broker="b", groups=["g"], **fields).SerializeToString()


@pytest.fixture
def rig(tmp_path: Path) -> ListenerRig:
    return ListenerRig(tmp_path)


POISON = [
    b"",
    b"noise",
    beyond(issued_at_ms=2**63 - 1, lease_ms=10_000),
    beyond(epoch=2**64 - 1),
    beyond(seq=2**63),
    beyond(broker_started_at_ms=2**64 - 1),
    message(limits=np.array([[np.inf]]), group_ids=[-5], groups=None),
]


async def test_one_bad_message_costs_none_of_a_thousand_behind_it(rig: ListenerRig) -> None:
    honest = [message(f"b{number}", float(number)) for number in range(1_000)]
    await rig.hears(*POISON, *honest)
    assert [rig.limit(f"b{number}") for number in range(1_000)] == list(map(float, range(1_000)))
    assert rig.listener.refused == len(POISON)
    assert rig.lines == [
        "limits topic: limits@0: message for 'b' refused: not a LimitsUpdate: begins with nothing"
    ]


@pytest.mark.parametrize("where", ["decode_limits", "receive"])
async def test_nor_does_a_mistake_of_ours(
    rig: ListenerRig, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at: Any = listening if where == "decode_limits" else rig.received
    real = getattr(at, where)

    def mistaken(*args: Any) -> Any:
        if b"unlucky" in (args[0] if where == "decode_limits" else args[0].broker.encode()):
            raise ZeroDivisionError("oops")
        return real(*args)

    monkeypatch.setattr(at, where, mistaken)
    await rig.hears(message("unlucky"), message(limit=7.0))
    assert rig.limit() == 7
    assert rig.lines == ["limits topic: limits@0: message for 'b' refused: ZeroDivisionError: oops"]


async def test_a_message_that_is_a_year_old_sets_no_safe_limit(rig: ListenerRig) -> None:
    """Not even of an enforcer that knows no newer one; a signature of then is still valid."""
    await rig.hears()
    safe = {"safe_limits": np.array([[500.0]])}
    for ago_ms in (YEAR_MS, 3_600_000 + LEASE_S * 1000 + 1):
        old = message("b1", 1_000.0, issued_at_ms=T0 - ago_ms, **safe)
        await rig.hears(old)
        assert np.isnan(rig.limit("b1"))
    assert rig.listener.refused == 2
    assert "its lease was over 31535880 s before the newest round in the history" in rig.lines[0]


async def test_safe_limits_of_a_job_that_is_down_hold_however_long(rig: ListenerRig) -> None:
    """The newest round is as old as the limits: nobody renewed them since."""
    await rig.table.look_at_epochs()
    rig.table.newest_round_ms = T0 - YEAR_MS
    await rig.hears(message("b1", issued_at_ms=T0 - YEAR_MS, safe_limits=np.array([[5.0]])))
    assert rig.limit("b1") == 5.0
    assert not rig.lines


async def test_what_a_topic_kept_for_years_is_passed_over_without_a_line(rig: ListenerRig) -> None:
    old = [message(issued_at_ms=T0 - YEAR_MS, seq=seq) for seq in range(5)]
    rig.opened_with = 6
    await rig.hears(*old, message(limit=7.0, seq=9))
    assert rig.limit() == 7.0
    assert (rig.listener.refused, rig.lines) == (0, [])


async def test_a_round_of_a_clock_that_was_ahead_makes_no_limit_outdated(rig: ListenerRig) -> None:
    await rig.table.look_at_epochs()
    rig.table.newest_round_ms = T0 + YEAR_MS
    await rig.hears(message(limit=7.0))
    assert rig.limit() == 7.0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"issued_at_ms": T0 + 30_001}, "ahead of this host's clock"),
        ({"issued_at_ms": 2**63 - 2**32}, "ahead of this host's clock"),
        ({"lease_ms": 120_001}, "its lease is 120.001 s (limits.lease_s is 120)"),
        ({"lease_ms": 2**32 - 1}, "its lease is"),
        ({"epoch": EPOCH + 1}, "is later than that of every round in the history"),
        ({"epoch": 2**62}, "is later than that of every round in the history"),
    ],
)
async def test_refused_limits(rig: ListenerRig, changes: dict[str, int], why: str) -> None:
    await rig.hears(message(limit=1e9, **changes), message(limit=7.0, seq=0))
    assert rig.limit() == 7
    assert rig.listener.refused == 1
    assert why in rig.lines[0]


async def test_a_new_job_is_obeyed_though_its_epoch_is_ahead(rig: ListenerRig) -> None:
    await rig.hears(message(limit=7.0))
    ahead = T0 // 1000 + 1_000_000
    write_round(rig.history, ahead)
    await rig.hears(message(limit=8.0, epoch=ahead))
    assert (rig.limit(), rig.lines) == (8, [])


async def test_invented_epochs_hold_up_no_known_one(
    rig: ListenerRig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    await rig.hears(message(limit=7.0))

    async def look() -> None:
        looks.append(rig.limit())

    monkeypatch.setattr(rig.table, "look_at_epochs", look)
    invented = [message(limit=1e9, epoch=EPOCH + 1 + number) for number in range(100)]
    await rig.hears(*invented, message(limit=8.0, seq=2))
    # Known epochs are taken first, and the history is asked once for all the others.
    assert looks == [8.0]
    assert rig.listener.refused == 100


async def test_without_a_history_epochs_are_held_against_the_clock(rig: ListenerRig) -> None:
    shutil.rmtree(rig.history.path)
    now_s = T0 // 1000
    await rig.hears(message(limit=1e9, epoch=now_s + 31), message(limit=7.0, epoch=now_s + 30))
    assert rig.limit() == 7
    assert "checked against the clock only" in rig.lines[0]
    assert "the history, which would show whether it is the job's, can't be read" in rig.lines[1]


def test_refusals_are_one_condition_and_counted(rig: ListenerRig) -> None:
    for place in range(102):
        rig.listener._refuse(Polled("k" * 1_000, b"", f"t@{place}"), ValueError("no"))
    (line,) = rig.lines
    assert len(line) < 300
    assert rig.listener.refused == 102


async def test_caught_up_is_who_read_what_was_there_at_the_start(tmp_path: Path) -> None:
    rig = ListenerRig(tmp_path, portion=2)
    rig.opened_with = 4
    # Neither a start without limits nor a message that seems to be of this moment says so.
    rig.waiting = [b"noise", message(issued_at_ms=T0 + 29_000)]
    await rig.listener.listen()
    assert not rig.listener.caught_up
    await rig.hears(message(), message())
    assert rig.listener.caught_up


async def test_a_topic_without_an_end_lets_others_have_their_turn(tmp_path: Path) -> None:
    rig = ListenerRig(tmp_path, portion=1)
    await rig.hears(*[message(seq=seq) for seq in range(100)])
    assert 0 < len(rig.waiting) < 100


def test_other_work_goes_on_between_messages(rig: ListenerRig) -> None:
    turns, seen = [0], []
    receive = rig.received.receive

    def noted(message: Any, now_ms: float, wall_ms: float) -> int:
        seen.append(turns[0])
        return receive(message, now_ms, wall_ms)

    rig.received.receive = noted  # type: ignore[method-assign]

    async def scene() -> None:
        async def others() -> None:
            while True:
                turns[0] += 1
                await asyncio.sleep(0)

        beside = asyncio.create_task(others())
        await rig.hears(*[message(seq=seq) for seq in range(3)])
        beside.cancel()

    asyncio.run(scene())  # virtual time would not pass: there is always something to do
    assert len(set(seen)) == 3


async def test_a_message_from_the_future_hides_no_job_that_is_down(rig: ListenerRig) -> None:
    # A clock that is a little ahead and the longest lease are fine.
    await rig.hears(message(issued_at_ms=T0 + 30_000, lease_ms=120_000))
    assert (rig.limit(), rig.lines) == (10, [])
    assert rig.listener.age_ms() == 0
    await rig.hears(message(issued_at_ms=2**62))
    assert rig.received.issued_at_ms == T0 + 30_000
