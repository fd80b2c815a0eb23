"""Queries on the history with DuckDB: what they see, what they read, and what they can't do."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from quotaplane.errors import HistoryError, InputError, QueryTimeoutError
from quotaplane.history.ddl import sql_type
from quotaplane.history.maintenance import maintain
from quotaplane.history.store import open_table
from quotaplane.history.tables import TABLES
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import DIMENSIONS, RATE_COLUMNS, Round
from quotaplane.query import duckdb_engine
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.group_feed import FEEDS
from quotaplane.query.live_files import live_files
from quotaplane.query.views import VIEWS
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import History
from tests.histories import ENDLESS, make_history
from tests.unit.history.history_cases import DAY_MS, INF, NAN, NOON_MS, rounds, usage
from tests.unit.query.audit_cases import change, given, used, write
from tests.unit.sim.recorded_history import at


@pytest.fixture
def made(history: History) -> History:
    """Two brokers in three rounds of a day and one of the next."""
    write(
        history,
        {
            0: given(("b1", "g", 50.0), ("b2", "g", 25.5)),
            10: used(10, ("b1", "g", 40.0), ("b2", "g", 20.0)),
            20: used(20, ("b1", "g", NAN), ("b2", "g", 30.0)),
            DAY_MS / 1000: used(DAY_MS / 1000, ("b1", "g", 10.0)),
        },
    )
    return history


def ask(history: History, sql: str, **more: Any) -> list[tuple[Any, ...]]:
    with DuckDBEngine(history) as engine:
        return engine.ask(sql, **more).rows


def test_a_query_sees_the_tables(made: History) -> None:
    sql = "SELECT broker, publish_messages_per_s, date FROM usage WHERE round_at > :since"
    noon, day = datetime(2026, 3, 1).date(), datetime(2026, 3, 2).date()
    wanted = [("b1", None, noon), ("b1", 10.0, day), ("b2", 30.0, noon)]
    assert ask(made, f"{sql} ORDER BY 1, 3", since=at(10)) == wanted
    (row,) = ask(made, "SELECT max(round_at), count(*) FROM rounds")
    assert row == (at(DAY_MS / 1000), 4)


def test_every_table_and_view_is_there_even_if_nothing_was_recorded(history: History) -> None:
    make_history(history)
    of_duckdb = {"STRING": "VARCHAR", "BINARY": "BLOB", "INT": "INTEGER"}
    of_duckdb["TIMESTAMP"] = "TIMESTAMP WITH TIME ZONE"

    def type_of(field: pa.Field) -> str:
        name = sql_type(field.type)
        item = name.removeprefix("ARRAY<").removesuffix(">")
        return of_duckdb.get(item, item) + ("[]" if item != name else "")

    with DuckDBEngine(history) as engine:
        for name in (*TABLES, *VIEWS, *FEEDS):
            assert engine.ask(f"SELECT * FROM {name}").rows == [], name
        for name, table in TABLES.items():
            found = [(row[0], row[1]) for row in engine.ask(f"DESCRIBE {name}").rows]
            assert found == [(field.name, type_of(field)) for field in table.schema], name


def test_usage_values_repeat_what_did_not_change(made: History) -> None:
    sql = "SELECT broker, reported_at, used_per_s FROM usage_values ORDER BY 1, 2"
    day = DAY_MS / 1000
    wanted = [
        ("b1", at(10), 40.0),
        ("b1", at(20), 40.0),
        ("b1", at(day), 10.0),
        ("b2", at(10), 20.0),
        ("b2", at(20), 30.0),
    ]
    assert ask(made, sql) == wanted
    # from an hour before on
    assert ask(made, sql, since=at(day)) == [("b1", at(day), 10.0)]
    assert ask(made, sql, since=at(3_600)) == wanted


def test_limit_values_have_a_row_for_each_dimension(made: History) -> None:
    sql = "SELECT dimension, limit_per_s, enforced, reason FROM limit_values WHERE broker = 'b2'"
    rows = {row[0]: row[1:] for row in ask(made, sql)}
    assert set(rows) == set(DIMENSIONS)
    assert rows["publish_messages"] == (25.5, True, "saturated: fair share")
    assert rows["total_bytes"] == (INF, True, "unlimited: the group has no quota here")


def test_a_query_sees_the_history_as_it_was(made: History) -> None:
    change(made, 5, "ann", "g", 100.0)
    change(made, 15, "bob", "g", 200.0)
    seen = "SELECT (SELECT count(*) FROM usage), (SELECT max(to_per_s) FROM quota_changes)"
    assert ask(made, seen) == [(5, 200.0)]
    assert ask(made, seen, until=at(10)) == [(2, 100.0)]
    assert ask(made, "SELECT :until", until=at(10)) == [(at(10),)]


def test_the_change_feed_says_who_when_from_what_to_what(history: History) -> None:
    change(history, 0, "ann", "g", 1000.0)
    change(history, 10, "bob", "g", 2000.0)
    change(history, 20, "zed", "g", None)
    sql = "SELECT version, changed_at, changed_by, created, deleted, from_per_s, to_per_s"
    sql += " FROM quota_changes WHERE dimension = 'publish_messages' ORDER BY version"
    assert ask(history, sql) == [
        (1, at(0), "ann", True, False, None, 1000.0),
        (2, at(10), "bob", False, False, 1000.0, 2000.0),
        (3, at(20), "zed", False, True, 2000.0, None),
    ]


def test_rows_of_compacted_and_deleted_files_are_seen_once(made: History) -> None:
    with DuckDBEngine(made) as engine:
        before = engine.ask("SELECT * FROM usage ORDER BY ALL").rows
        maintain(made, at(0), keep_days=30)
        assert engine.ask("SELECT * FROM usage ORDER BY ALL").rows == before
        maintain(made, at(2 * DAY_MS / 1000), keep_days=1.5)
        assert engine.ask("SELECT broker FROM usage").rows == [("b1",)]


def test_files_of_other_days_and_rounds_are_not_read(made: History) -> None:
    """They are broken here, so reading them would be an error."""
    table = open_table(made, "usage")
    folder = Path(made.path, "usage")
    later = at(DAY_MS / 1000)
    wanted = live_files(table, folder, since=later)
    assert len(wanted) == 1
    assert live_files(table, folder, until=at(5)) == []
    assert len(live_files(table, folder, since=at(15), until=at(25))) == 1
    for path in set(live_files(table, folder)) - set(wanted):
        Path(path).write_bytes(b"PAR1 broken PAR1")
    assert ask(made, "SELECT count(*) FROM usage", read_since=later) == [(1,)]
    assert ask(made, "SELECT count(*) FROM usage_values", since=later) == [(1,)]
    with pytest.raises(HistoryError, match=r"^history at .*parquet"):
        ask(made, "SELECT count(*) FROM usage")


def test_a_missing_file_is_one_line(made: History) -> None:
    next(Path(made.path, "usage").glob("*/*.parquet")).unlink()
    with pytest.raises(HistoryError, match=rf"^history at {made.path}: .*usage") as refused:
        ask(made, "SELECT * FROM usage")
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("name", ["date=2020-01-01/broker=b9", "it's é (1) ;x", "a#b&c+d"])
def test_the_folder_may_have_any_name(tmp_path: Path, name: str) -> None:
    history = History(path=str(tmp_path / name / "history"))
    write(history, {0: used(0, ("b", "g", 1.0))})
    (row,) = ask(history, "SELECT broker, date FROM usage")
    assert row == ("b", datetime(2026, 3, 1).date())


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("SELEC 1", r"^SQL: .*syntax error at or near \"SELEC\" \(line 1: SELEC 1\)$"),
        ("SELECT\n nothing FROM usage", r"^SQL: .*\"nothing\" not found.*\(line 2:  nothing FROM"),
        ("SELECT * FROM nowhere", r"^SQL: .*nowhere does not exist"),
        ("SELECT CAST('x' AS INT)", r"^SQL: .*Could not convert"),
        ("SELECT :nothing", r"^SQL: .*nothing"),
        ("SELECT 1; SELECT 2", r"^a query must be one SELECT"),
        ("CREATE TABLE x (a INT)", r"^a query must be one SELECT"),
        ("-- nothing", r"^a query must be one SELECT"),
        ("SELECT * FROM read_text('/etc/passwd')", r"^SQL: .*disabled by configuration"),
        ("SELECT * FROM '/etc/passwd'", r"^SQL: .*"),
        ("SELECT st_point(1, 2)", r"^SQL: .*st_point"),
    ],
)
def test_what_is_no_query_is_refused(made: History, sql: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem) as refused:
        ask(made, sql)
    assert "\n" not in str(refused.value)


def test_a_query_that_needs_too_much_memory_is_refused(made: History) -> None:
    lists = "SELECT list(a.i || '-' || b.i) AS l FROM range(2000) a(i), range(1000) b(i)"
    hungry = f"SELECT max(len(l)) FROM ({lists})"
    with DuckDBEngine(made, memory="20MB", threads=1) as engine:
        with pytest.raises(InputError, match=r"^the query needs more memory than it may have: "):
            engine.ask(hungry)
        assert engine.ask("SELECT count(*) FROM usage").rows == [(5,)]


def test_what_does_not_fit_into_memory_goes_to_the_disk_and_is_removed(
    made: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "spill"))
    (tmp_path / "spill").mkdir()
    rows = "SELECT hash(i) AS h, i || repeat('x', 20) FROM range(2000000) r(i) ORDER BY h"
    large = f"SELECT count(*) FROM ({rows})"
    with DuckDBEngine(made, memory="60MB", threads=1) as engine:
        assert engine.ask(large).rows == [(2_000_000,)]
    assert list((tmp_path / "spill").iterdir()) == []


def test_a_folder_that_can_t_be_made_is_one_line(
    made: History, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    with pytest.raises(HistoryError, match=r"missing/quotaplane-spill-\w+ can't be made: No such"):
        DuckDBEngine(made)


def test_nothing_is_written(made: History) -> None:
    before = sorted(map(str, Path(made.path).rglob("*")))
    for name in VIEWS:
        ask(made, f"SELECT * FROM {name}")
    assert sorted(map(str, Path(made.path).rglob("*"))) == before


def test_queries_of_several_threads_do_not_disturb_each_other(made: History) -> None:
    barrier = threading.Barrier(4)

    def count(until: float) -> int:
        barrier.wait()
        found: int = engine.ask("SELECT count(*) FROM usage", until=at(until)).rows[0][0]
        return found

    with DuckDBEngine(made) as engine, ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            assert list(pool.map(count, (5, 15, 25, DAY_MS))) == [0, 2, 4, 5]


def test_spark_s_way_of_writing_is_understood(made: History) -> None:
    sql = """
    SELECT
      broker, last_value(publish_messages_per_s) IGNORE NULLS OVER (
        PARTITION BY `broker` ORDER BY round_at
      ) AS rate,
      unix_millis(round_at), to_date(round_at), date_sub(date, 1), timestamp_millis(1000)
    FROM usage WHERE `resource_group` = 'g' AND round_at = :at
    """
    rows = ask(made, sql, parameters={"at": at(20), "unused": 1})
    noon = datetime(2026, 3, 1).date()
    earlier = datetime(2026, 2, 28).date()
    second = datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)
    assert sorted(rows, key=str)[1] == ("b2", 30.0, NOON_MS + 20_000, noon, earlier, second)


def test_times_are_in_utc_whatever_the_machine_s_zone(made: History) -> None:
    sql = (
        "SELECT CAST(min(round_at) AS STRING), min(date), min(CAST(round_at AS DATE)), "
        "date_trunc('day', min(round_at)) FROM usage"
    )
    done = run_alone(made, f"print(*engine.ask({sql!r}).rows[0], sep='|')", TZ="Pacific/Kiritimati")
    noon, midnight = "2026-03-01 12:00:10+00", "2026-03-01 00:00:00+00:00"
    assert done == f"{noon}|2026-03-01|2026-03-01|{midnight}"


@pytest.mark.parametrize("ask", ["ask", "columns"])
def test_a_deadline_ends_a_query_and_those_after_it(made: History, ask: str) -> None:
    with DuckDBEngine(made) as engine:
        query = ENDLESS if ask == "ask" else [ENDLESS]
        with engine.within(0.2):
            for _ in range(2):
                with pytest.raises(QueryTimeoutError, match="took too long and was ended"):
                    getattr(engine, ask)(query)
            with ThreadPoolExecutor(1) as pool:
                other = pool.submit(engine.ask, "SELECT count(*) FROM usage")
                assert other.result().rows == [(5,)]
        assert engine.ask("SELECT count(*) FROM usage").rows == [(5,)]


def test_closing_ends_the_queries_that_run(made: History) -> None:
    engine = DuckDBEngine(made)
    with ThreadPoolExecutor(2) as pool:
        running = [pool.submit(engine.ask, ENDLESS) for _ in range(2)]
        until = time.monotonic() + 30
        while len(engine._sessions._open) < 2 and time.monotonic() < until:
            time.sleep(0.01)
        engine.close()
        for query in running:
            with pytest.raises(HistoryError):
                query.result(timeout=30)


def test_ctrl_c_ends_a_query(made: History) -> None:
    use = f"""
    import os, signal, threading
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        engine.ask({ENDLESS!r})
    except KeyboardInterrupt:
        print('ended', engine.ask('SELECT count(*) FROM usage').rows)
    """
    assert run_alone(made, use) == "ended [(5,)]"


def run_alone(history: History, use: str, **variables: str) -> str:
    """Use an engine in a process of its own; returns what it prints."""
    code = (
        "import sys\nfrom quotaplane.query.duckdb_engine import DuckDBEngine\n"
        "from quotaplane.settings import History\n"
        f"with DuckDBEngine(History(path=sys.argv[1])) as engine:\n    {use}\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, history.path],
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.strip()


@pytest.mark.parametrize("reason", ["object store", "deletion vectors"])
def test_tables_that_duckdb_can_t_read_itself_are_read_by_deltalake(
    made: History, monkeypatch: pytest.MonkeyPatch, reason: str
) -> None:
    questions = [
        "SELECT * FROM usage ORDER BY ALL",
        "SELECT * EXCLUDE (reason_numbers) FROM limit_values ORDER BY ALL",
        "SELECT a.broker FROM usage a JOIN usage b USING (broker) ORDER BY ALL",
        "SELECT * FROM usage_values WHERE reported_at >= :since ORDER BY ALL",
        "SELECT count(*) FROM attachments",
    ]
    with DuckDBEngine(made) as engine:
        wanted = [engine.ask(sql, since=at(15), until=at(25)) for sql in questions]
    if reason == "object store":
        monkeypatch.setattr(duckdb_engine, "local_folder", lambda path: None)
    else:
        monkeypatch.setattr(duckdb_engine, "is_plain", lambda table: False)
    with DuckDBEngine(made) as engine:
        for sql, answer in zip(questions, wanted, strict=True):
            assert engine.ask(sql, since=at(15), until=at(25)) == answer


def test_a_table_of_a_later_delta_version_is_not_read_file_by_file(made: History) -> None:
    assert duckdb_engine.is_plain(open_table(made, "usage"))
    folder = Path(made.path, "rounds")
    shutil.rmtree(folder)
    DeltaTable.create(
        str(folder),
        pa.schema([pa.field("epoch", pa.int64())]),
        configuration={"delta.enableDeletionVectors": "true"},
    )
    write_deltalake(str(folder), pa.table({"epoch": [1]}), mode="append")
    assert not duckdb_engine.is_plain(DeltaTable(str(folder)))


def test_groups_of_a_tree_have_those_above_them(history: History) -> None:
    make_history(history)
    names = ["a", "a::b", "a::b::c", "x::y"]
    put_groups(history, names, np.full((4, len(RATE_COLUMNS)), 5.0), "ann")
    delete_groups(history, ["a::b"], "ann")
    sql = "SELECT ancestor FROM group_tree WHERE resource_group = 'a::b::c' ORDER BY 1"
    assert ask(history, sql) == [("a",), ("a::b",), ("a::b::c",)]
    sql = "SELECT ancestor FROM group_tree WHERE resource_group = 'x::y'"
    assert ask(history, sql) == [("x::y",)]


@pytest.mark.nightly
def test_rounds_are_written_meanwhile(history: History) -> None:
    """A reader sees whole commits of a table that grows and is compacted."""
    make_history(history)
    stop = threading.Event()

    def write_on() -> None:
        with HistoryWriter(history, "x") as writer:
            for seq in range(60):
                tables = {"usage": usage([("b1", "g", 1.0), ("b2", "g", 1.0)]), "rounds": rounds()}
                writer.append_round(Round(1, seq, NOON_MS + seq * 1000), tables)
                if seq % 20 == 19:
                    maintain(history, at(0), keep_days=30)
        stop.set()

    with ThreadPoolExecutor(1) as pool, DuckDBEngine(history) as engine:
        writing = pool.submit(write_on)
        counts = [0]
        while not stop.is_set() and not writing.done():
            counts += [row[0] for row in engine.ask("SELECT count(*) FROM usage").rows]
        writing.result()
        counts += [row[0] for row in engine.ask("SELECT count(*) FROM usage").rows]
    assert counts == sorted(counts)
    assert counts[-1] == 120
    assert all(count % 2 == 0 for count in counts)
