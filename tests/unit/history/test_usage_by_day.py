"""The usage of whole days: amounts from rates, also where a rate was not reported again."""

from __future__ import annotations

import itertools
from datetime import date, datetime, timedelta, timezone
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

from quotaplane.cli.main import main
from quotaplane.history.stamped_rows import stamped
from quotaplane.history.store import table_uri
from quotaplane.history.tables import ROUNDS, TIMESTAMP, USAGE
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.query.usage_by_day import roll_up
from quotaplane.settings import History
from tests.unit.history.history_cases import DAY_MS, NAN, NOON_MS, brokers, read, rounds, usage

pytestmark = pytest.mark.usefixtures("tables")
DAY = date(2026, 3, 1)
MIDNIGHT_MS = NOON_MS - DAY_MS // 2
NEXT = datetime(2026, 3, 2, 0, 30, tzinfo=timezone.utc)


def write(history: History, reports: list[tuple[int, float, float | None]]) -> None:
    """Reports of b1 on acme/g, each of a window of 10 s: (second after noon, rate, refused)."""
    with HistoryWriter(history, "checkpoint-1") as writer:
        for seq, (second, rate, refused) in enumerate(reports):
            at_ms = NOON_MS + 1000 * second
            rows = usage([("b1", "acme/g", rate)], at_ms, throttled=refused, window_ms=10_000)
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


def counted(
    times_ms: np.ndarray[Any, Any], started_ms: int, begin_ms: int, rng: np.random.Generator
) -> tuple[pa.Table, np.ndarray[Any, Any]]:
    """Reports of one incarnation with counters, and what each of their windows (n, 2) used.

    Two dimensions are counted; their total has a rate and no counter, as a quota's on totals.
    """
    window_ms = np.diff(times_ms, prepend=begin_ms)
    used = rng.integers(0, 2**36, (len(times_ms), 2)).astype(float)
    rates, counters = used / window_ms[:, None] * 1000, used.cumsum(axis=0)
    rows = usage([("b1", "acme/g", NAN)] * len(times_ms))
    given = {
        "published_at_ms": times_ms,
        "window_ms": window_ms,
        "broker_started_at_ms": np.full(len(times_ms), started_ms),
        "publish_messages_per_s": rates[:, 0],
        "dispatch_messages_per_s": rates[:, 1],
        "total_messages_per_s": rates.sum(axis=1),
        "counter_publish_messages": counters[:, 0],
        "counter_dispatch_messages": counters[:, 1],
    }
    for name, values in given.items():
        if name in rows.column_names:
            rows = rows.drop_columns(name)
        rows = rows.append_column(name, pa.array(values))
    return rows, used


def test_counters_give_exact_amounts_though_half_of_all_reports_are_lost(history: History) -> None:
    rng = np.random.default_rng(3)
    edges = [MIDNIGHT_MS - 5 * 3_600_000, NOON_MS - 7_000_000, NOON_MS + 9_000_000]
    edges.append(MIDNIGHT_MS + DAY_MS)
    before, of_day, truth = [], [], np.zeros(2)
    for started_ms, end_ms in itertools.pairwise(edges):  # two restarts
        times_ms = np.arange(started_ms + 10_000, end_ms, 10_000)
        rows, used = counted(times_ms, started_ms, started_ms, rng)
        arrives = rng.random(len(times_ms)) < 0.5
        arrives[-1] = True
        arrives[np.abs(times_ms - (MIDNIGHT_MS - 60_000)) < 10_000] = True  # the last of its day
        is_before = times_ms <= MIDNIGHT_MS - 60_000
        truth += used[~is_before].sum(axis=0)
        before.append(rows.filter(pa.array(arrives & is_before)))
        of_day.append(rows.filter(pa.array(arrives & (times_ms > MIDNIGHT_MS))))
    with HistoryWriter(history, "checkpoint-1") as writer:
        writer.append_round(Round(1, 0, edges[0]), {"rounds": rounds()})
        for seq, (at_ms, rows) in enumerate(((MIDNIGHT_MS - 1, before), (NOON_MS, of_day)), 1):
            tables = {"usage": pa.concat_tables(rows), "rounds": rounds()}
            writer.append_round(Round(1, seq, at_ms), tables)
    roll_up(history, NEXT)
    (row,) = (row for row in daily(history) if row["date"] == DAY)
    assert row["by_counters"]
    assert (row["publish_messages"], row["dispatch_messages"]) == tuple(truth)
    assert row["total_messages"] == truth.sum()
    assert row["publish_bytes"] is None


def test_the_part_of_a_day_that_reports_cover(history: History) -> None:
    """b1 reports all day, b2 from noon on; b3 was silent for 01:40; b4 had no groups from noon on.

    The job did not run from 22:00 to 22:30; later it read what b1 and b2 had reported then.
    """
    pause = MIDNIGHT_MS + 79_200_000, MIDNIGHT_MS + 81_000_000
    silent = NOON_MS + 3_600_000, NOON_MS + 3_600_000 + 6_000_000
    times_ms = np.arange(MIDNIGHT_MS - 60_000, MIDNIGHT_MS + DAY_MS + 60_000, 30_000)
    runs = (times_ms <= pause[0]) | (times_ms >= pause[1])
    is_silent = (times_ms > silent[0]) & (times_ms < silent[1])
    reports = {
        "b1": np.ones(len(times_ms), bool),
        "b2": times_ms > NOON_MS,
        "b3": runs & ~is_silent,
        "b4": runs & (times_ms < NOON_MS),
    }
    statuses = [
        [(name, "live", MIDNIGHT_MS - 60_000) for name in ("b1", "b3", "b4")],
        [("b2", "live", NOON_MS)],
        [("b3", "stale", silent[0])],
        [("b3", "live", silent[1])],
    ]
    changed_ms = [MIDNIGHT_MS - 60_000, NOON_MS, silent[0] + 65_000, silent[1]]
    with HistoryWriter(history, "checkpoint-1") as writer:
        for seq, (at_ms, rows) in enumerate(zip(changed_ms, statuses, strict=True)):
            writer.append_round(Round(1, seq, at_ms), {"brokers": brokers(rows)})
    stamp = stamped(ROUNDS, rounds(), Round(1, 0, NOON_MS)).take(pa.array([0] * int(runs.sum())))
    at = pa.array(times_ms[runs] * 1000, TIMESTAMP)
    place = stamp.column_names.index("round_at")
    write_deltalake(
        table_uri(history, ROUNDS.name), stamp.set_column(place, "round_at", at), mode="append"
    )
    tables = []
    for name, there in reports.items():
        rows = usage([(name, "acme/g", 1.0)] * int(there.sum()), window_ms=30_000)
        tables.append(
            rows.drop_columns("published_at_ms").append_column(
                "published_at_ms", pa.array(times_ms[there])
            )
        )
    at_noon = stamped(USAGE, pa.concat_tables(tables), Round(1, 0, NOON_MS))
    write_deltalake(table_uri(history, USAGE.name), at_noon, mode="append")

    roll_up(history, NEXT)
    covered = {row["broker"]: row["covered"] for row in daily(history) if row["date"] == DAY}
    half_an_hour = 1_800_000 / DAY_MS
    assert covered == {
        "b1": 1.0,
        "b2": 0.5,
        # Its first reports after what is missing have windows of 30 s.
        "b3": pytest.approx(1 - 5_970_000 / DAY_MS - half_an_hour + 30_000 / DAY_MS),
        "b4": pytest.approx(1 - half_an_hour),
    }


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
    assert row["publish_messages"] == pytest.approx(10 * 5 + 3 * 60 + 3 * 60)
    assert roll_up(history, NEXT + timedelta(days=1)) == [DAY + timedelta(days=1)]
    assert [row["publish_messages"] for row in daily(history) if row["date"] != DAY] == [30.0]


def test_a_day_whose_usage_expired_is_not_made_again_of_what_is_left(history: History) -> None:
    write(history, [(0, 5.0, None), (DAY_MS // 1000, 6.0, None)])
    roll_up(history, NEXT + timedelta(days=1))
    assert main(["maintain", "--keep-days", "1", "--history", history.path]) == 0
    late(history, NEXT + timedelta(days=2), [10])
    assert roll_up(history, NEXT + timedelta(days=3)) == []
    assert sorted(row["publish_messages"] for row in daily(history)) == [50.0, 60.0]
