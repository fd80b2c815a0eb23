"""Answers queries on the history with Spark: for histories that one machine can't read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from quotaplane.errors import InputError
from quotaplane.history.store import open_table, table_uri
from quotaplane.parsing.folders import spark_uri
from quotaplane.query.answer import Answer, distinct_names
from quotaplane.query.group_feed import GroupFeed
from quotaplane.query.sql_functions import FUNCTIONS
from quotaplane.query.sql_text import with_literals
from quotaplane.query.views import BEGINNING, seen_by, sources_of
from quotaplane.settings import History

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def ask(
    spark: SparkSession,
    history: History,
    sql: str,
    parameters: Mapping[str, float] | None = None,
    *,
    since: datetime = BEGINNING,
    until: datetime | None = None,
) -> DataFrame:
    """Answer a query as ``DuckDBEngine.ask`` does; the views stay in the session.

    Raises:
        HistoryError: a table is missing or has another schema.
    """
    register_views(spark, history, sql, since=since, until=until)
    times = {"since": since, "until": until or datetime.now(timezone.utc)}
    return spark.sql(with_literals(sql, {**(parameters or {}), **times}))


def register_views(
    spark: SparkSession,
    history: History,
    sql: str | None = None,
    *,
    since: datetime = BEGINNING,
    until: datetime | None = None,
) -> None:
    """Create views of the history as it is now: all, or those that ``sql`` reads.

    Raises:
        HistoryError: a table is missing or has another schema.
    """
    sources = sources_of(sql)
    for name, function in FUNCTIONS.items():
        spark.udf.register(name, function.call, "string")
    for name in sources.tables:
        open_table(history, name)
        rows = spark.read.format("delta").load(spark_uri(table_uri(history, name)))
        if until is not None and "round_at" in rows.columns:
            rows = rows.where(seen_by(until, name))
        rows.createOrReplaceTempView(name)
    for name, feed in GroupFeed(history).tables(sources.feeds, until).items():
        spark.createDataFrame(feed).createOrReplaceTempView(name)
    for view in sources.views:
        spark.sql(view.since(since)).createOrReplaceTempView(view.name)


def collected(rows: DataFrame) -> Answer:
    """Run a query, and collect its rows."""
    found = [tuple(map(_aware, row)) for row in rows.collect()]
    return Answer(distinct_names(rows.columns), found)


@contextmanager
def sql_errors() -> Iterator[None]:
    """Turn Spark's errors about a query into one line.

    Raises:
        InputError: the query is wrong.
    """
    from pyspark.errors import PySparkException

    try:
        yield
    except PySparkException as error:
        if error.getCondition() is None:  # an error of another kind: of the disk, of memory
            raise
        lines = (line.strip() for line in str(error).splitlines())
        raise InputError(f"SQL: {next(filter(None, lines))}") from None


def _aware(value: Any) -> Any:
    # Spark's times are in the zone of this process, without saying so.
    return value.astimezone(timezone.utc) if isinstance(value, datetime) else value
