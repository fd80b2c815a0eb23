"""Answers of ``/readyz``; a look in the background ends before the process does."""

from __future__ import annotations

import shutil
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from quotaplane.agents.conditions import Conditions
from quotaplane.history.store import open_table
from quotaplane.server.readiness import HANGS_AFTER_S, Readiness
from quotaplane.settings import History
from tests.histories import make_history

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


class Clocks:
    """The two clocks of ``Readiness``; ``said`` are its lines."""

    def __init__(self, history: History) -> None:
        self.now, self.ticks, self.said = NOON, 0.0, list[str]()
        self.readiness = Readiness(
            history,
            120.0,
            Conditions(self.said.append),
            clock=lambda: self.ticks,
            now=lambda: self.now,
        )

    def states(self) -> list[str]:
        return [check.state for check in self.readiness.checks()]


@pytest.fixture
def history(tmp_path: Path) -> History:
    history = History(path=str(tmp_path / "history"))
    make_history(history)
    return history


def add_round(history: History, at: datetime) -> None:
    table = open_table(history, "rounds")
    schema = pa.schema(table.schema().to_arrow())
    row = {
        field.name: 0 if pa.types.is_integer(field.type) else None
        for field in schema
        if not field.nullable
    }
    row |= {"round_at": at, "positions": "{}"}
    rows = pa.Table.from_pylist([row], schema)
    write_deltalake(table, rows, mode="append")


def test_the_job_is_as_old_as_its_last_recorded_round(history: History) -> None:
    clocks = Clocks(history)
    assert clocks.states() == ["not looked yet", "no round is recorded"]
    clocks.readiness.check_once()
    assert clocks.states() == ["ok", "no round is recorded"]
    for minutes in (0, 3, 1):
        add_round(history, NOON + timedelta(minutes=minutes))
    clocks.now = NOON + timedelta(minutes=5)
    clocks.readiness.check_once()
    history_check, job = clocks.readiness.checks()
    assert (history_check.ok, job) == (True, ("job", True, "ok", 120.0))
    clocks.now += timedelta(seconds=1)
    assert clocks.states()[1] == "the last recorded round is older than 120 s"


def test_a_job_whose_clock_was_ahead_is_not_alive_for_that_long(history: History) -> None:
    clocks = Clocks(history)
    add_round(history, NOON + timedelta(hours=1))
    clocks.readiness.check_once()
    assert clocks.states()[1] == "ok"
    (line,) = clocks.said
    assert line.startswith(
        "clock of the job: the newest round is 3600 s ahead of this host's clock"
    )
    clocks.ticks, clocks.now = 121.0, NOON + timedelta(seconds=121)
    clocks.readiness.check_once()
    assert clocks.states()[1] == "the last recorded round is older than 120 s"
    add_round(history, NOON + timedelta(hours=1, minutes=2))  # it goes on
    clocks.readiness.check_once()
    assert clocks.states()[1] == "ok"
    clocks.ticks += 121.0
    add_round(history, NOON + timedelta(minutes=4))  # its clock was put right
    clocks.readiness.check_once()
    assert clocks.states()[1] == "ok"
    assert clocks.said == [line]


def test_a_history_that_can_not_be_read_is_said_once(history: History) -> None:
    clocks = Clocks(history)
    away = Path(f"{history.path}-away")
    clocks.readiness.check_once()
    Path(history.path).rename(away)
    for _ in range(3):
        clocks.readiness.check_once()
        assert clocks.states()[0] == "can't be read"
    shutil.move(away, history.path)
    clocks.readiness.check_once()
    assert clocks.states()[0] == "ok"
    first, second = clocks.said
    assert history.path in first
    assert second == "history: over after 0 s"


def test_a_look_that_hangs_is_a_disk_that_does_not_answer(history: History) -> None:
    clocks = Clocks(history)
    clocks.readiness.check_once()
    clocks.ticks = HANGS_AFTER_S
    assert clocks.states()[0] == "ok"
    clocks.ticks += 0.1
    assert clocks.states()[0] == "the disk does not answer"


def test_the_end_waits_for_a_look_that_is_under_way(
    history: History, monkeypatch: pytest.MonkeyPatch
) -> None:
    readiness = Readiness(history, 120.0, Conditions(print))
    looking, disk = threading.Event(), threading.Event()

    def hangs() -> None:
        looking.set()
        disk.wait(30)

    monkeypatch.setattr(readiness, "check_once", hangs)
    assert readiness.close(within_s=60)
    readiness.start()
    assert looking.wait(60)
    assert not readiness.close(within_s=0.05)
    disk.set()
    assert readiness.close(within_s=60)
