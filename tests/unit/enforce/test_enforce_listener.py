"""Limits as they come from their topic: what can't be the quota job's is refused, one by one."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.enforce.agent import limits_listener as listening
from quotaplane.enforce.agent.limits_listener import LimitsListener
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.settings import History, parse_settings
from quotaplane.transport.base import Polled, Portion
from quotaplane.wire.limits import encode_limits
from quotaplane.wire.pb.quotaplane_pb2 import LimitsUpdate
from tests.job import write_round
from tests.unit.enforce.enforce_cluster import EPOCH, history_in

NOW_MS = 1_790_000_000_000
MAGIC = 0x314C5051


def message(broker: str = "b", limit: float = 10.0, **changes: Any) -> bytes:
    fields: dict[str, Any] = {
        "shard": 0,
        "epoch": EPOCH,
        "seq": 1,
        "issued_at_ms": NOW_MS,
        "lease_ms": 120_000,
        "groups": ["g"],
        "limits": np.array([[limit]]),
    }
    return encode_limits(broker=broker, **{**fields, **changes})


def beyond(**fields: int) -> bytes:
    """A message that no encoder of ours would write."""
    return LimitsUpdate(magic=MAGIC, broker="b", groups=["g"], **fields).SerializeToString()


class Rig:
    """A listener whose topic holds what is put into it, in portions of so many."""

    def __init__(self, folder: Path, portion: int = 10_000) -> None:
        self.history: History = history_in(folder)
        self.lines: list[str] = []
        self.waiting: list[bytes] = []
        self.portion, self.opened_with, self.handed_out = portion, 0, 0
        settings = parse_settings(
            {
                "transport": {"kind": "delta", "path": "x"},
                "history": {"path": self.history.path},
                "checkpoint": "c",
            }
        )
        self.table = QuotaTable(self.history, Conditions(self.lines.append))
        link: Any = self
        self.listener = LimitsListener(
            link, self.table, settings, Conditions(self.lines.append), lambda: NOW_MS
        )
        self.received = self.listener.received

    def poll_limits(self) -> Portion:
        took, self.waiting = self.waiting[: self.portion], self.waiting[self.portion :]
        first = self.handed_out
        self.handed_out += len(took)
        polled = [Polled("b", value, f"limits@{first + at}") for at, value in enumerate(took)]
        return Portion(polled, bool(self.waiting), self.handed_out >= self.opened_with)

    def hears(self, *values: bytes) -> None:
        self.waiting += values
        asyncio.run(self.listener.listen())

    def limit(self, broker: str = "b") -> float:
        one = np.zeros(1, np.int64)
        return float(self.received.in_force((broker,), ("g",), one, one, NOW_MS)[0, 0])


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    rig = Rig(tmp_path)
    rig.received.expect([f"b{n}" for n in range(1_000)], ["g"])
    return rig


POISON = [
    b"",
    b"noise",
    beyond(issued_at_ms=2**63 - 1, lease_ms=10_000),
    beyond(epoch=2**64 - 1),
    beyond(seq=2**63),
    beyond(broker_started_at_ms=2**64 - 1),
    message(limits=np.array([[np.inf]]), group_ids=[-5], groups=None),
]


def test_one_bad_message_costs_none_of_a_thousand_behind_it(rig: Rig) -> None:
    honest = [message(f"b{number}", float(number)) for number in range(1_000)]
    rig.hears(*POISON, *honest)
    assert [rig.limit(f"b{number}") for number in range(1_000)] == list(map(float, range(1_000)))
    assert rig.listener.refused == len(POISON)
    assert rig.lines == [
        "limits topic: limits@0: message for 'b' refused: not a LimitsUpdate: begins with nothing"
    ]


@pytest.mark.parametrize("where", ["decode_limits", "receive"])
def test_nor_does_one_that_finds_a_mistake_of_ours(
    rig: Rig, where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    at: Any = listening if where == "decode_limits" else rig.received
    real = getattr(at, where)

    def mistaken(*args: Any) -> Any:
        if b"unlucky" in (args[0] if where == "decode_limits" else args[0].broker.encode()):
            raise ZeroDivisionError("oops")
        return real(*args)

    monkeypatch.setattr(at, where, mistaken)
    rig.hears(message("unlucky"), message(limit=7.0))
    assert rig.limit() == 7
    assert rig.lines == ["limits topic: limits@0: message for 'b' refused: ZeroDivisionError: oops"]


YEAR_MS = 365 * 86_400_000
LEASE_MS = 120_000


def test_a_message_that_is_a_year_old_sets_no_safe_limit(rig: Rig) -> None:
    """Not even of an enforcer that knows no newer one; a signature of then is still valid."""
    rig.hears()
    safe = {"safe_limits": np.array([[500.0]])}
    for ago_ms in (YEAR_MS, 3_600_000 + LEASE_MS + 1):
        old = message("b1", 1_000.0, issued_at_ms=NOW_MS - ago_ms, **safe)
        rig.hears(old)
        assert np.isnan(rig.limit("b1"))
    assert rig.listener.refused == 2
    assert "its lease was over 31535880 s before the newest round in the history" in rig.lines[0]


def test_safe_limits_of_a_job_that_is_down_hold_however_long(rig: Rig) -> None:
    """The newest round is as old as the limits: nobody renewed them since."""
    asyncio.run(rig.table.look_at_epochs())
    rig.table.newest_round_ms = NOW_MS - YEAR_MS
    rig.hears(message("b1", issued_at_ms=NOW_MS - YEAR_MS, safe_limits=np.array([[5.0]])))
    assert rig.limit("b1") == 5.0
    assert not rig.lines


def test_what_a_topic_kept_for_years_is_passed_over_without_a_line(rig: Rig) -> None:
    old = [message(issued_at_ms=NOW_MS - YEAR_MS, seq=seq) for seq in range(5)]
    rig.opened_with = 6
    rig.hears(*old, message(limit=7.0, seq=9))
    assert rig.limit() == 7.0
    assert (rig.listener.refused, rig.lines) == (0, [])


def test_a_round_of_a_clock_that_was_ahead_makes_no_limit_outdated(rig: Rig) -> None:
    asyncio.run(rig.table.look_at_epochs())
    rig.table.newest_round_ms = NOW_MS + YEAR_MS
    rig.hears(message(limit=7.0))
    assert rig.limit() == 7.0


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"issued_at_ms": NOW_MS + 30_001}, "ahead of this host's clock"),
        ({"issued_at_ms": 2**63 - 2**32}, "ahead of this host's clock"),
        ({"lease_ms": 120_001}, "its lease is 120.001 s (limits.lease_s is 120)"),
        ({"lease_ms": 2**32 - 1}, "its lease is"),
        ({"epoch": EPOCH + 1}, "is later than that of every round in the history"),
        ({"epoch": 2**62}, "is later than that of every round in the history"),
    ],
)
def test_what_the_job_cant_have_told_is_refused(
    rig: Rig, changes: dict[str, int], why: str
) -> None:
    rig.hears(message(limit=1e9, **changes), message(limit=7.0, seq=0))
    assert rig.limit() == 7
    assert rig.listener.refused == 1
    assert why in rig.lines[0]


def test_a_clock_that_is_a_little_ahead_and_the_longest_lease_are_fine(rig: Rig) -> None:
    rig.hears(message(limit=7.0, issued_at_ms=NOW_MS + 30_000, lease_ms=120_000))
    assert (rig.limit(), rig.lines) == (7, [])


def test_a_new_job_is_obeyed_at_once_though_its_epoch_is_ahead_of_the_clock(rig: Rig) -> None:
    rig.hears(message(limit=7.0))
    ahead = NOW_MS // 1000 + 1_000_000
    write_round(rig.history, ahead)
    rig.hears(message(limit=8.0, epoch=ahead))
    assert (rig.limit(), rig.lines) == (8, [])


def test_invented_epochs_hold_up_nothing_of_the_epoch_that_is_known(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[float] = []
    rig.hears(message(limit=7.0))

    async def look() -> None:
        looks.append(rig.limit())

    monkeypatch.setattr(rig.table, "look_at_epochs", look)
    monkeypatch.setattr(listening, "_EPOCHS_EVERY_S", 0.0)
    rig.listener._epochs_from_s = 0.0
    invented = [message(limit=1e9, epoch=EPOCH + 1 + number) for number in range(100)]
    rig.hears(*invented, message(limit=8.0, seq=2))
    # Known epochs are taken first, and the history is asked once for all the others.
    assert looks == [8.0]
    assert rig.listener.refused == 100


def test_without_a_history_epochs_are_held_against_the_clock(rig: Rig) -> None:
    shutil.rmtree(rig.history.path)
    now_s = NOW_MS // 1000
    rig.hears(message(limit=1e9, epoch=now_s + 31), message(limit=7.0, epoch=now_s + 30))
    assert rig.limit() == 7
    assert "checked against the clock only" in rig.lines[0]
    assert "the history, which would show whether it is the job's, can't be read" in rig.lines[1]


def test_refusals_are_one_condition_and_counted(rig: Rig) -> None:
    for place in range(102):
        rig.listener._refuse(Polled("k" * 1_000, b"", f"t@{place}"), ValueError("no"))
    (line,) = rig.lines
    assert len(line) < 300
    assert rig.listener.refused == 102


def test_caught_up_is_who_read_what_was_there_when_the_link_was_opened(tmp_path: Path) -> None:
    rig = Rig(tmp_path, portion=2)
    rig.opened_with = 4
    # Neither a start without limits nor a message that seems to be of this moment says so.
    rig.waiting = [b"noise", message(issued_at_ms=NOW_MS + 29_000)]
    asyncio.run(rig.listener.listen())
    assert not rig.listener.caught_up
    rig.hears(message(), message())
    assert rig.listener.caught_up


def test_a_topic_without_an_end_lets_others_have_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listening, "_PORTIONS", 3)
    rig = Rig(tmp_path, portion=1)
    rig.hears(*[message(seq=seq) for seq in range(10)])
    assert len(rig.waiting) == 7


def test_a_message_from_the_future_does_not_hide_that_the_job_is_down(rig: Rig) -> None:
    rig.hears(message(issued_at_ms=NOW_MS + 30_000))
    assert rig.listener.age_ms() == 0
    rig.hears(message(issued_at_ms=2**62))
    assert rig.received.issued_at_ms == NOW_MS + 30_000
