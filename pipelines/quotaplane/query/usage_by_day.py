"""The usage of whole days as amounts: rows of the table ``usage_daily``.

The rows of a day are made when it is over, and again if reports of that day were recorded since.
"""

from __future__ import annotations

from datetime import date, datetime, time, timedelta, timezone
from typing import Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.durable import COMMIT_ONLY, Synced, checkpoint
from quotaplane.errors import HistoryError
from quotaplane.history.store import ensure_tables, keep, one_line, open_table, table_uri, writing
from quotaplane.history.tables import CHECKPOINT_INTERVAL, USAGE_DAILY
from quotaplane.model import DIMENSIONS
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.settings import History

_APP: Final = "quotaplane-usage-of-"
"""Delta's application of the commit with a day's rows, with the day; its version is the number of
report entries that the rows are made of."""
# A day whose usage is expiring may have had further rows, which were counted.
_DAYS: Final = """
SELECT day, entries
FROM (
  SELECT to_date(coalesce(published_at, round_at)) AS day, count(*) AS entries
  FROM usage
  GROUP BY to_date(coalesce(published_at, round_at))
) AS days
WHERE day < CAST(:until AS DATE) AND day >= (SELECT min(date) FROM usage)
ORDER BY day
"""

_LOOK_BACK: Final = timedelta(hours=6)
"""Time before midnight in which a broker's counter is searched: usage missed over midnight for no
longer than that is in the next day."""
_NEXT_REPORTS: Final = timedelta(minutes=10)
"""The next day's first reports end the rates of its last ones, and show that brokers went on."""

_AMOUNTS: Final = f"""
SELECT
  date, regexp_extract(resource_group, '^([^/:]*)', 1) AS tenant, resource_group, broker,
  max(reports) AS reports, max(covered) AS covered, bool_and(by_counters) AS by_counters,
  {
    ", ".join(
        f"max(used) FILTER (WHERE dimension = '{name}') AS {name}, "
        f"max(throttled) FILTER (WHERE dimension = '{name}') AS throttled_{name}, "
        f"max(peak) FILTER (WHERE dimension = '{name}') AS peak_{name}_per_s"
        for name in DIMENSIONS
    )
}
FROM (
  SELECT
    date, resource_group, broker, dimension, count(*) AS reports,
    sum(used) AS used, sum(throttled) AS throttled, max(used_per_s) AS peak,
    bool_and(by_counter OR used = 0) AS by_counters
  FROM usage_amounts
  WHERE date = CAST(:begin AS DATE)
  GROUP BY date, resource_group, broker, dimension
) AS by_dimension
LEFT JOIN (
  SELECT
    broker,
    sum(unix_millis(least(until_at, :end)) - unix_millis(greatest(from_at, :begin))) / 86400000
      AS covered
  FROM covered_stretches
  WHERE from_at < :end AND until_at > :begin
  GROUP BY broker
) AS covered_parts USING (broker)
GROUP BY date, resource_group, broker
ORDER BY resource_group, broker
"""


def roll_up(history: History, now: datetime) -> list[date]:
    """Make the rows of all days that are over, if they have none, or are made of fewer reports than
    ``usage`` has of the day by now; returns these days.

    Amounts are those of the view ``usage_amounts``; ``covered`` is by ``covered_stretches``.

    Raises:
        HistoryError: the usage can't be read, or the rows can't be written.
    """
    ensure_tables(history)
    uri = table_uri(history, USAGE_DAILY.name)
    done = []
    with writing(history), DuckDBEngine(history) as engine:
        table = open_table(history, USAGE_DAILY.name)
        today = now.astimezone(timezone.utc).date()
        for day, entries in engine.ask(_DAYS, until=_begin(today)).rows:
            if entries > (table.transaction_version(f"{_APP}{day}") or 0):
                _replace(table, uri, _rows(engine, day), day, entries)
                table = open_table(history, USAGE_DAILY.name)
                done.append(day)
    return done


def _rows(engine: DuckDBEngine, day: date) -> pa.Table:
    schema = pa.schema([field.remove_metadata() for field in USAGE_DAILY.schema])
    begin, end = _begin(day), _begin(day + timedelta(days=1))
    answer = engine.ask(
        _AMOUNTS, {"begin": begin, "end": end}, since=begin - _LOOK_BACK, until=end + _NEXT_REPORTS
    )
    columns = dict(zip(answer.columns, zip(*answer.rows, strict=True), strict=False))
    return pa.table(
        {field.name: pa.array(columns.get(field.name, ()), field.type) for field in schema}, schema
    )


def _replace(table: DeltaTable, uri: str, rows: pa.Table, day: date, entries: int) -> None:
    before = table.version()
    commit = CommitProperties(app_transactions=[Transaction(f"{_APP}{day}", entries)])
    synced = Synced(uri)
    try:
        write_deltalake(
            table,
            rows,
            mode="overwrite",
            predicate=f"date = '{day}'",
            commit_properties=commit,
            post_commithook_properties=COMMIT_ONLY,
        )
    except (DeltaError, OSError) as error:
        raise HistoryError(f"history table {USAGE_DAILY.name}: {one_line(error)}") from None
    keep(synced, table, USAGE_DAILY.name, before=before)
    if table.version() // CHECKPOINT_INTERVAL > before // CHECKPOINT_INTERVAL:
        checkpoint(table, uri)


def _begin(day: date) -> datetime:
    return datetime.combine(day, time(), timezone.utc)
