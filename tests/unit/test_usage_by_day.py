"""The usage of whole days: amounts from rates, also where a rate was not reported again."""

from __future__ import annotations

from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from quotaplane.cli.main import main
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.query.usage_by_day import roll_up
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.history_cases import DAY_MS, NAN, NOON_MS, read, rounds, usage

DAY = date(2026, 3, 1)
NEXT = datetime(2026, 3, 2, 0, 30, tzinfo=timezone.utc)


@pytest.fixture
def history(tmp_path: Path) -> History:
    history = History(path=str(tmp_path / "history"))
    make_history(history)
    return history


def write(history: History, reports: list[tuple[int, float, float | None]]) -> None:
    """Reports of b1 on acme/g, each of a window of 10 s: (second after noon, rate, refused)."""
    with HistoryWriter(history, "checkpoint-1") as writer:
        for seq, (second, rate, refused) in enumerate(reports):
            at_ms = NOON_MS + 1000 * second
            rows = usage([("b1", "acme/g", rate)], published_at_ms=at_ms)
            count = len(rows)
            rows = rows.append_column("window_ms", [[10_000] * count])
            rows = rows.append_column("throttled_publish_messages_per_s", [[refused] * count])
            writer.append_round(Round(1, seq, at_ms), {"usage": rows, "rounds": rounds()})


def daily(history: History) -> list[dict[str, Any]]:
    return read(history, "usage_daily").to_pylist()


def test_rates_become_amounts(history: History) -> None:
    write(history, [(0, 5.0, 1.0), (10, 7.0, None), (20, 0.0, 2.0)])
    assert roll_up(history, NEXT) == [DAY]
    (row,) = daily(history)
    assert (row["date"], row["tenant"], row["resource_group"]) == (DAY, "acme", "acme/g")
    assert (row["broker"], row["reports"]) == ("b1", 3)
    assert row["publish_messages"] == pytest.approx(10 * (5 + 7 + 0))
    assert row["throttled_publish_messages"] == pytest.approx(10 * (1 + 2))
    assert row["peak_publish_messages_per_s"] == 7.0
    assert row["publish_bytes"] is None


def test_a_rate_that_is_not_reported_again_counts_for_five_windows(history: History) -> None:
    write(history, [(0, 5.0, None), (30, NAN, None), (100, 1.0, None), (1000, 0.0, None)])
    roll_up(history, NEXT)
    (row,) = daily(history)
    # From -10 to 20; unchanged from 20 to 30, and 50 s more; from 90 to 100, and 50 s more.
    assert row["publish_messages"] == pytest.approx(5 * 30 + 5 * 60 + 1 * 60)


def test_each_day_is_rolled_up_once_and_today_not_yet(history: History) -> None:
    write(history, [(0, 5.0, None), (DAY_MS // 1000, 6.0, None)])
    assert roll_up(history, NEXT) == [DAY]
    assert roll_up(history, NEXT) == []
    assert roll_up(history, NEXT + timedelta(days=1)) == [DAY + timedelta(days=1)]
    assert sorted(row["publish_messages"] for row in daily(history)) == [50.0, 60.0]


def test_maintain_keeps_the_days_when_the_usage_expires(history: History) -> None:
    write(history, [(0, 5.0, None)])
    assert main(["maintain", "--keep-days", "1", "--history", history.path]) == 0
    assert len(read(history, "usage")) == 0
    assert [row["publish_messages"] for row in daily(history)] == [50.0]


def late(history: History, recorded: datetime, seconds: list[int]) -> None:
    """Reports of b1 at a rate of 3, recorded later than they were published, as not counted."""
    with HistoryWriter(history, "checkpoint-1") as writer:
        at_ms = int(recorded.timestamp() * 1000)
        for number, second in enumerate(seconds):
            rows = usage([("b1", "acme/g", 3.0)], NOON_MS + 1000 * second, window_ms=10_000)
            rows = rows.append_column("counted", [[False] * len(rows)])
            writer.append("usage", rows, Round(1, 100 + at_ms % 1000 + number, at_ms))


def test_a_day_is_made_again_when_more_of_it_was_recorded_and_has_what_was_published_on_it(
    history: History,
) -> None:
    """The job was down around midnight, and records those reports on the next day."""
    write(history, [(0, 5.0, None)])
    assert roll_up(history, NEXT) == [DAY]
    midnight_s = 12 * 3600
    late(history, NEXT, [10, midnight_s - 10, midnight_s + 60])
    assert roll_up(history, NEXT + timedelta(minutes=1)) == [DAY]
    assert roll_up(history, NEXT + timedelta(minutes=2)) == []
    (row,) = daily(history)
    assert (row["date"], row["reports"]) == (DAY, 3)
    assert row["publish_messages"] == pytest.approx(10 * 5 + 3 * 60 + 3 * 10)
    assert roll_up(history, NEXT + timedelta(days=1)) == [DAY + timedelta(days=1)]
    assert [row["publish_messages"] for row in daily(history) if row["date"] != DAY] == [30.0]


def test_a_day_whose_usage_expired_is_not_made_again_of_what_is_left(history: History) -> None:
    write(history, [(0, 5.0, None), (DAY_MS // 1000, 6.0, None)])
    roll_up(history, NEXT + timedelta(days=1))
    assert main(["maintain", "--keep-days", "1", "--history", history.path]) == 0
    late(history, NEXT + timedelta(days=2), [10])
    assert roll_up(history, NEXT + timedelta(days=3)) == []
    assert sorted(row["publish_messages"] for row in daily(history)) == [50.0, 60.0]
