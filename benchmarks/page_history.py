"""Makes the history that ``page_speed`` asks: 100,000 groups on 5 of 100 brokers each, for 7 days.

The model: the group of rank r (ranks are spread over the names at random) wants 50,000 / r^0.8
messages a second, follows a daily wave, and is active in an hour with probability min(1, 700 / r).
While it is active, each of its brokers reports it once a minute, but for reports that Pulsar's rule
suppresses (a change below 5 %, for at most 5 rounds): 55 % remain. A third of the reports change
the broker's limit. The job makes a round every 10 seconds.

Days are sorted and today's hours compacted as ``quotaplane maintain`` leaves them; the rounds of
the last 30 minutes, the mean between two of its hourly runs, are appended one by one, as the job
does.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake

from quotaplane.history.group_order import FILE_BYTES, SORTED, SORTED_FILES, UNSORTED_FILES
from quotaplane.history.stamped_rows import stamped
from quotaplane.history.store import ensure_tables
from quotaplane.history.table_parts import replacing
from quotaplane.history.tables import LIMITS, RATE_COLUMNS, ROUNDS, STAMP_COLUMNS, USAGE, Table
from quotaplane.history.writer import HistoryWriter
from quotaplane.laws import Reason
from quotaplane.model import COUNTER_COLUMNS, DIMENSIONS, Round
from quotaplane.registry.table import put_groups
from quotaplane.settings import History

DAYS: Final = 7
BROKERS: Final = 100
BROKERS_OF_GROUP: Final = 5
ROUND_MS: Final = 10_000
HOUR_MS: Final = 3_600_000
UNSORTED_MS: Final = 30 * 60_000
"""Rounds as the job appended them; the same at each minute of an hour, so that results compare."""
SHARDS: Final = 8

_MACROS: Final = """
CREATE MACRO chance(a, b, c) AS hash(hash(a, b, c)) / 18446744073709551616.0;
CREATE MACRO instant(ms) AS CAST(epoch_ms(CAST(ms AS BIGINT)) AS TIMESTAMPTZ);
CREATE TABLE groups AS
SELECT
  idx, format('tenant-{:04d}/orders-{:06d}', idx // 100, idx) AS name, rank,
  50000 / pow(rank, 0.8) AS rate, round(55000 / pow(rank, 0.8), 1) + 1 AS quota
FROM (
  SELECT idx, row_number() OVER (ORDER BY hash(idx)) AS rank FROM range({groups}) AS all_of (idx)
);
"""

_REPORTS: Final = """
SELECT
  *, published_ms // {round_ms} + 1 AS seq, (published_ms // {round_ms} + 1) * {round_ms} AS now_ms
FROM (
  SELECT
    *,
    minute * 60000 + broker_no * 480 + CAST(50 * chance(broker_no, minute, 3) AS BIGINT)
      AS published_ms,
    round(60 * rate * (0.1 + 0.05 * k) * (1 + 0.4 * sin(minute * 6.2832 / 1440 + idx))
      * (0.85 + 0.3 * chance(pair, minute, 4))) / 60 AS messages
  FROM (
    SELECT
      active.*, k, idx * 5 + k AS pair, hour * 60 + m AS minute,
      (idx * 7 + k * 19) % {brokers} AS broker_no
    FROM (
      SELECT * FROM groups, range({hours}) AS hours (hour)
      WHERE idx >= {first} AND idx < {end} AND chance(idx, hour, 1) < 700 / rank
    ) AS active, range(5) AS ks (k), range(60) AS minutes (m)
  )
  WHERE chance(pair, minute, 2) < 0.55
)
"""

_RATES: Final = {
    "publish_messages": "messages",
    "publish_bytes": "round(messages * (900 + idx % 300))",
    "dispatch_messages": "messages * 2",
    "dispatch_bytes": "round(messages * 2 * (900 + idx % 300))",
}
_LIMITED: Final = ("publish_messages", "publish_bytes")
_LIMIT: Final = {
    "publish_messages": "quota * (0.1 + 0.05 * k) * (0.9 + 0.2 * chance(pair, minute, 5))",
    "publish_bytes": "1200 * quota * (0.1 + 0.05 * k) * (0.9 + 0.2 * chance(pair, minute, 5))",
}


def _usage(name: str) -> str:
    if name.startswith("throttled_"):
        if name == "throttled_publish_messages_per_s":
            return "CASE WHEN chance(pair, minute, 6) < 0.05 THEN messages / 20 ELSE 0 END"
        return "CAST(NULL AS DOUBLE)"
    if name.endswith("_per_s"):
        return _RATES.get(name.removesuffix("_per_s"), "CAST(NULL AS DOUBLE)")
    return {
        "published_at": "instant(published_ms)",
        "position": "'reports:' || broker_no % 12 || ':' || minute * 100 + broker_no",
        "window_ms": "CAST(60000 AS BIGINT)",
        "counted": "true",
        "named_every": "CAST(NULL AS BIGINT)",
        # Stock brokers' reports have neither.
        "broker_started_at": "CAST(NULL AS TIMESTAMPTZ)",
        **dict.fromkeys(COUNTER_COLUMNS, "CAST(NULL AS DOUBLE)"),
    }[name]


def _limits(name: str) -> str:
    for dimension in DIMENSIONS:
        limited = dimension in _LIMITED
        mine = {
            f"{dimension}_per_s": _LIMIT.get(dimension),
            f"demand_{dimension}_per_s": _RATES.get(dimension),
            f"quota_{dimension}_per_s": "quota" if dimension == _LIMITED[0] else "1200 * quota",
        }
        if name in mine:
            return str(mine[name]) if limited else "CAST(NULL AS DOUBLE)"
        if name == f"{dimension}_reason_code":
            return f"CAST({int(Reason.FAIR_SHARE if limited else Reason.UNLIMITED)} AS INTEGER)"
        if name == f"{dimension}_reason_numbers":
            return "[round(quota * 0.8), 3, 2]" if limited else "CAST([] AS DOUBLE[])"
    return {
        "lease_ms": "CAST(300000 AS BIGINT)",
        "ended": "false",
        "enforced": "true",
        "ended_because": "CAST(NULL AS VARCHAR)",
    }[name]


def _query(
    table: Table, hours: range, groups: range, rounds_ms: range, *, with_stamp: bool = True
) -> str:
    """The rows of a table, in hours since 1970, of some groups and of rounds at these times.

    For the writer without stamp.
    """
    rows = _REPORTS.format(
        round_ms=ROUND_MS,
        brokers=BROKERS,
        hours=f"{hours.start}, {hours.stop}",
        first=groups.start,
        end=groups.stop,
    )
    made = {
        "epoch": "CAST(1 AS BIGINT)",
        "seq": "CAST(seq AS BIGINT)",
        "round_at": "instant(now_ms)",
        "broker": "format('broker-{:03d}', broker_no)",
        "resource_group": "name",
    }
    columns = []
    for name in table.schema.names:
        if name == "date" or (name in STAMP_COLUMNS and not with_stamp):
            continue
        make = _usage if table is USAGE else _limits
        what = made.get(name) or make(name)
        if name == "published_at" and not with_stamp:
            what, name = "CAST(published_ms AS BIGINT)", "published_at_ms"
        elif name == "broker_started_at" and not with_stamp:
            what, name = "CAST(NULL AS BIGINT)", "broker_started_at_ms"
        columns.append(f"{what} AS {name}")
    if not with_stamp:
        columns += ["CAST(seq AS BIGINT) AS of_seq", "CAST(now_ms AS BIGINT) AS of_ms"]
    where = f"now_ms >= {rounds_ms.start} AND now_ms < {rounds_ms.stop}"
    if table is not USAGE:
        where += " AND chance(pair, minute, 7) < 0.33"
    return f"SELECT {', '.join(columns)} FROM ({rows}) WHERE {where}"


def make_history(folder: Path, now: datetime, groups: int, *, threads: int = 1) -> dict[str, Any]:
    """Write the history; returns what there is of it, for the page."""
    begun = time.monotonic()
    history = History(path=str(folder))
    ensure_tables(history)
    database = duckdb.connect(config={"threads": threads, "memory_limit": "3GB"})
    database.execute("SET TimeZone = 'UTC'")
    database.execute(_MACROS.replace("{groups}", str(groups)))
    _put_quotas(history, database)
    now_ms = int(now.timestamp() * 1000)
    sorted_ms = (now_ms - UNSORTED_MS) // 60_000 * 60_000
    until = -(-sorted_ms // HOUR_MS)
    hours = range(until - DAYS * 24, until)
    counts = {USAGE.name: 0, LIMITS.name: 0}
    for table in (USAGE, LIMITS):
        for day in _days(hours):
            _write_day(database, folder / table.name, table, day, sorted_ms, groups)
        listed = pa.table(DeltaTable(folder / table.name).get_add_actions())
        counts[table.name] += pc.sum(listed["num_records"]).as_py()
        DeltaTable(folder / table.name).create_checkpoint()
    rounds = _append_rounds_of(history, database, range(sorted_ms, now_ms + 1), groups, counts)
    _append_rest(history, database, hours, now)
    database.close()
    return {
        "groups": groups,
        "rows": counts,
        "unsorted_rounds": rounds,
        "bytes": {
            table.name: sum(f.stat().st_size for f in (folder / table.name).rglob("*.parquet"))
            for table in (USAGE, LIMITS)
        },
        "files": {n: len(DeltaTable(folder / n).file_uris()) for n in counts},
        "seconds": time.monotonic() - begun,
    }


def _days(hours: range) -> Iterator[range]:
    at = hours.start
    while at < hours.stop:
        yield range(at, min((at // 24 + 1) * 24, hours.stop))
        at = (at // 24 + 1) * 24


def _write_day(
    database: duckdb.DuckDBPyConnection,
    folder: Path,
    table: Table,
    hours: range,
    before_ms: int,
    groups: int,
) -> None:
    """A day that is over by group, in parts that fit into memory; today's hours as they came."""
    date = datetime.fromtimestamp(hours.start * 3600, timezone.utc).date()
    is_over = hours.stop % 24 == 0
    hourly = [range(hour, hour + 1) for hour in hours]
    parts = [range(part * groups // 8, (part + 1) * groups // 8) for part in range(8)]
    pieces = [(hours, part) for part in parts] if is_over else [(h, range(groups)) for h in hourly]
    for of_hours, of_groups in pieces:
        query = _query(table, of_hours, of_groups, range(before_ms))
        order = ", ".join(SORTED) if is_over else "epoch, seq, broker"
        rows = database.sql(f"SELECT *, DATE '{date}' AS date FROM ({query}) ORDER BY {order}")
        write_deltalake(
            folder,
            rows.to_arrow_reader(100_000),
            mode="append",
            target_file_size=FILE_BYTES if is_over else None,
            writer_properties=SORTED_FILES if is_over else UNSORTED_FILES,
        )


def _append_rounds_of(
    history: History,
    database: duckdb.DuckDBPyConnection,
    rounds_ms: range,
    groups: int,
    counts: dict[str, int],
) -> int:
    rows = {}
    hours = range(rounds_ms.start // HOUR_MS, rounds_ms.stop // HOUR_MS + 1)
    for table in (USAGE, LIMITS):
        query = _query(table, hours, range(groups), rounds_ms, with_stamp=False)
        rows[table.name] = database.sql(f"{query} ORDER BY of_seq, broker").to_arrow_table()
        counts[table.name] += rows[table.name].num_rows
    seqs = np.unique(rows[USAGE.name]["of_seq"].to_numpy())
    with HistoryWriter(history, "benchmark") as writer:
        for seq in seqs.tolist():
            stamp = Round(1, seq, seq * ROUND_MS)
            for name, all_rows in rows.items():
                column = all_rows["of_seq"].to_numpy()
                begin, end = np.searchsorted(column, [seq, seq + 1]).tolist()
                of_round = all_rows.slice(begin, end - begin).drop_columns(["of_seq", "of_ms"])
                writer.append(name, of_round, stamp)
    return len(seqs)


def _put_quotas(history: History, database: duckdb.DuckDBPyConnection) -> None:
    found = database.execute("SELECT name, quota FROM groups ORDER BY idx").fetchnumpy()
    quotas = np.full((len(found["quota"]), len(RATE_COLUMNS)), np.inf)
    quotas[:, 0], quotas[:, 1] = found["quota"], 1200 * found["quota"]
    names = found["name"].tolist()
    put_groups(history, names, quotas, "admin")
    for part in range(20):  # changes of single groups
        put_groups(history, names[part : part + 1], quotas[part : part + 1] * 1.5, "operator")


def _append_rest(
    history: History, database: duckdb.DuckDBPyConnection, hours: range, now: datetime
) -> None:
    last = Round(1, int(now.timestamp() * 1000) // ROUND_MS, int(now.timestamp() * 1000))
    leases = database.sql(
        f"""
        SELECT
          CAST(idx % {SHARDS} AS BIGINT) AS shard,
          format('broker-{{:03d}}', (idx * 7 + k * 19) % {BROKERS}) AS broker,
          name AS resource_group, 'live' AS broker_status,
          CAST({last.now_ms - 5000} AS BIGINT) AS seen_at_ms, true AS has_limit, true AS enforced,
          rate * (0.1 + 0.05 * k) AS used_publish_messages_per_s,
          rate * (0.11 + 0.05 * k) AS demand_publish_messages_per_s,
          quota * (0.1 + 0.05 * k) AS limit_publish_messages_per_s,
          1000 * rate * (0.1 + 0.05 * k) AS used_publish_bytes_per_s,
          1000 * rate * (0.1 + 0.05 * k) AS demand_publish_bytes_per_s,
          1200 * quota * (0.1 + 0.05 * k) AS limit_publish_bytes_per_s
        FROM groups, range(5) AS ks (k) ORDER BY shard
        """
    ).to_arrow_table()
    names = [f"broker-{place:03d}" for place in range(BROKERS)]
    first_ms = hours.start * HOUR_MS
    rejected = 1000 * DAYS
    with HistoryWriter(history, "benchmark-rest") as writer:
        writer.append("leases", replacing(leases, range(SHARDS)), last)
        known = {"broker": names, "status": ["live"] * BROKERS, "last_seen_at_ms": [0] * BROKERS}
        writer.append("brokers", pa.table(known), last)
        for day in range(DAYS):
            stamp = Round(1, day, first_ms + (day + 1) * 24 * HOUR_MS - 60_000)
            writer.append("rejected_reports", _letters(rejected // DAYS, stamp.now_ms), stamp)
    _append_rounds(history, first_ms, last)


def _letters(count: int, at_ms: int) -> pa.Table:
    reasons = ("truncated", "stale", "duplicate_broker", "unknown_field")
    return pa.table(
        {
            "position": [f"reports:0:{place}" for place in range(count)],
            "published_at_ms": pa.array([at_ms] * count, pa.int64()),
            "reason": [reasons[place % 4] for place in range(count)],
            "detail": [f"byte {place}" for place in range(count)],
            "counts_as_bad": [True] * count,
            "raw": [b"\xff" * 200] * count,
            "reports": pa.array([1] * count, pa.int64()),
            "sender": [f"broker-{place * 7 % BROKERS:03d}" for place in range(count)],
        }
    )


def _append_rounds(history: History, first_ms: int, last: Round) -> None:
    """All rounds in one append: only their stamps differ."""
    n = (last.now_ms - first_ms) // ROUND_MS
    counts = [f.name for f in ROUNDS.schema if f.type == pa.int64() and f.name not in STAMP_COLUMNS]
    rows = {name: pa.array(np.full(n, 100), pa.int64()) for name in counts}
    texts = {"positions": ["{}"] * n, "law": ["max_min"] * n}
    made = stamped(ROUNDS, pa.table({**rows, **texts}), last)
    at_ms = first_ms + ROUND_MS * np.arange(1, n + 1)
    at = pa.array(at_ms).cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("us", tz="UTC"))
    seq = pa.array(at_ms // ROUND_MS)
    for name, values in (("round_at", at), ("seq", seq)):
        made = made.set_column(made.schema.get_field_index(name), name, values)
    write_deltalake(DeltaTable(Path(history.path) / ROUNDS.name), made, mode="append")


def ranked(groups: int, *ranks: int) -> list[str]:
    """The names of the groups of these ranks."""
    with duckdb.connect() as database:
        database.execute(_MACROS.replace("{groups}", str(groups)))
        names = dict(database.execute("SELECT rank, name FROM groups").fetchall())
    return [names[rank] for rank in ranks]
