"""``quotaplane run throttle --events``: applies quotas to recorded requests."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa
from delta.tables import DeltaTable
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from quotaplane.console.answers import add_answer_options, answer_text, json_of, table_text
from quotaplane.errors import InputError
from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.history.store import require_history
from quotaplane.model import DIMENSIONS, RATE_COLUMNS
from quotaplane.registry.group_input import read_groups
from quotaplane.registry.rows_after import checked, policy_after
from quotaplane.registry.table import list_groups
from quotaplane.settings import Settings
from quotaplane.streams.throttle.frames import Throttled, throttle_table, totals
from quotaplane.streams.throttle.job import bounds_of, open_topics, request_events
from quotaplane.texts import utc_text
from quotaplane.throttle.entities import begin, quotas_of
from quotaplane.throttle.requests import REASONS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "topic"
"""The value of ``--events`` that stands for the events topic."""

_TABLES: Final = ("decisions", "metrics", "rejected")

_OF_FILES: Final = ("FAILED_READ_FILE", "CANNOT_READ_FILE", "PARQUET")
"""Beginnings of Spark's conditions for files that are damaged, or no Parquet files."""

TOP: Final = 20
"""Number of entities shown: those with the most refused or delayed requests."""


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a dry run."""
    parser.add_argument(
        "--events",
        metavar="PATH",
        help="a dry run: a Delta table or Parquet files of recorded requests with the columns "
        "entity, at, units and optionally dimension; or the word topic, for the events that the "
        "events topic holds now. Without this option the job follows the topic",
    )
    parser.add_argument(
        "--quotas",
        metavar="FILE",
        help="quotas to try, .csv or .json in the format of `quotaplane groups put --file`, "
        "instead of those in the table resource_groups",
    )
    parser.add_argument(
        "--out", metavar="FOLDER", help="write the Delta tables decisions, metrics and rejected"
    )
    add_answer_options(parser)


def definitions_of(path: str) -> pa.Table:
    """Read definitions from a file, as ``quotaplane groups put --file`` would for new groups.

    Raises:
        InputError: the file or the group, and what is wrong with it.
    """
    given = checked(read_groups(path))
    nothing = {name: pa.nulls(len(given.names), kind) for name, kind in POLICY_COLUMNS.items()}
    policies, _ = policy_after(pa.table(nothing), given)
    rates = {
        name: pa.array(rate, mask=~(rate < float("inf")))
        for name, rate in zip(RATE_COLUMNS, given.quotas.T, strict=True)
    }
    return pa.table(
        {"group": given.names, **rates, **dict(zip(POLICY_COLUMNS, policies, strict=True))}
    )


def dry_run(
    spark: SparkSession, settings: Settings, definitions: pa.Table, args: argparse.Namespace
) -> str:
    """Apply quotas to all events; returns a summary; as CSV, its most affected entities.

    With ``--out`` the decisions, metrics and rejected events are also written as Delta tables.

    Raises:
        InputError: the events can't be read or lack columns, or ``--out`` has tables already.
    """
    for name in _TABLES if args.out else ():
        if DeltaTable.isDeltaTable(spark, f"{args.out}/{name}"):
            raise InputError(f"--out: {args.out}: has a table {name} already; use another folder")
    events = _recorded(spark, settings) if args.events == TOPIC else _read(spark, args.events)
    throttled = throttle_table(events, definitions, bounds_of(settings.throttle))
    outputs = throttled.outputs.persist()
    throttled = throttled.of(outputs)
    entities = totals(throttled.metrics()).persist()
    if args.out:
        for name, rows in zip(
            _TABLES, (throttled.decisions(), entities, throttled.rejected()), strict=True
        ):
            rows.write.format("delta").save(f"{args.out}/{name}")
    summary, most = _summary(throttled, entities, begin(definitions).definitions)
    text = answer_text(
        args,
        lambda: json_of({**summary, "most": most}),
        lambda: "\n".join(_lines(summary, most)),
        lambda: (_SHOWN, [tuple(row[name] for name in _SHOWN) for row in most]),
    )
    outputs.unpersist()
    return text


def run_dry(
    settings: Settings, args: argparse.Namespace, session: Callable[[], SparkSession]
) -> None:
    """Check what needs no Spark, then start Spark, run the dry run and print its summary.

    Raises:
        QuotaplaneError: as ``dry_run``, or the quotas are wrong.
    """
    if args.quotas:
        definitions = definitions_of(args.quotas)
    else:
        require_history(settings.history, "or give the quotas to try with --quotas")
        definitions = list_groups(settings.history)
    spark = session()
    try:
        print(dry_run(spark, settings, definitions, args))
    except PySparkException as error:
        # Spark looks at one file first, and at the others when it reads their rows.
        if (error.getCondition() or "").startswith(_OF_FILES):
            raise _unreadable(args.events, error) from None
        raise


def _recorded(spark: SparkSession, settings: Settings) -> DataFrame:
    transport = open_topics(settings)
    try:
        transport.check()
        return request_events(transport.read_recorded(spark))
    finally:
        transport.close()


def _read(spark: SparkSession, path: str) -> DataFrame:
    try:
        form = "delta" if DeltaTable.isDeltaTable(spark, path) else "parquet"
        return spark.read.format(form).load(path)
    except PySparkException as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: PySparkException) -> InputError:
    why = " ".join(str(error).splitlines()[0].split())
    if "TIMESTAMP(NANOS" in why:
        why += " (write microseconds; pandas: to_parquet(..., coerce_timestamps='us'))"
    return InputError(f"--events: {path}: can't be read: {why}")


def _summary(
    throttled: Throttled, entities: DataFrame, definitions: pa.Table
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """The summary, and the entities that the quotas affect most, with the columns ``_SHOWN``."""
    counts = {name: F.coalesce(F.sum(name), F.lit(0)) for name in _COUNTS}
    overall = entities.agg(
        F.count("*").alias("entities"),
        # As milliseconds: Spark would return timestamps in this machine's time zone.
        F.unix_millis(F.min("since")).alias("since"),
        F.unix_millis(F.max("until")).alias("until"),
        *(column.alias(name) for name, column in counts.items()),
    ).collect()[0]
    reasons = throttled.rejected().groupBy("reason").count().orderBy("reason").collect()
    summary: dict[str, Any] = {**overall.asDict(), "rejected": dict(map(tuple, reasons))}
    for name in ("since", "until"):
        summary[name] = None if summary[name] is None else _utc(summary[name])
    summary["units_refused"] = summary["units_asked"] - summary.pop("units_admitted")

    span_s = 1.0
    if summary["events"]:
        span_s = max((overall["until"] - overall["since"]) / 1000.0, span_s)
    refused = F.col("units_asked") - F.col("units_admitted")
    most_affected = (
        entities.where("refused + delayed > 0")
        .withColumn("units_refused", refused)
        .withColumn("asked_per_s", F.round(F.col("units_asked") / span_s, 3))
        .orderBy(F.desc(F.col("refused") + F.col("delayed")), "entity", "dimension")
        .limit(TOP)
        .select(*_SHOWN[:-1])
    )
    rows = [row.asDict() for row in most_affected.collect()]
    names = pa.array([row["entity"] for row in rows], pa.string())
    codes = np.array([DIMENSIONS.index(row["dimension"]) for row in rows], np.int64)
    _, quotas = quotas_of(definitions, names, codes)
    for row, rate in zip(rows, quotas.rate_per_s.tolist(), strict=True):
        row["quota_per_s"] = rate
    return summary, rows


def _utc(at_ms: int) -> str:
    """Epoch milliseconds as text.

    >>> _utc(1_690_000_000_125)
    '2023-07-22T04:26:40.125000Z'
    """
    at = datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(milliseconds=at_ms)
    return utc_text(at, "microseconds")


_COUNTS: Final = ("events", "refused", "delayed", "units_asked", "units_admitted")
_SHOWN: Final = (
    *("entity", "dimension", "asked_per_s", "events", "refused", "delayed"),
    *("units_asked", "units_refused", "quota_per_s"),
)


def _lines(summary: dict[str, Any], rows: list[dict[str, Any]]) -> Iterator[str]:
    r"""The lines of the summary.

    >>> summary = {"events": 4, "entities": 2, "since": "A", "until": "B", "refused": 1,
    ...     "delayed": 2, "units_asked": 8.0, "units_refused": 2.0, "rejected": {"no_time": 3}}
    >>> print("\n".join(_lines(summary, [])))
    4 events of 2 entities, from A to B
    refused: 1 events (25 %), with 25 % of the units; delayed: 2 events (50 %)
    not used: 3 events: the time is missing, or before 1970
    """
    share = 100.0 / max(summary["events"], 1)
    units = 100.0 / max(summary["units_asked"], 1e-300)
    yield (
        f"{summary['events']} events of {summary['entities']} entities, "
        f"from {summary['since']} to {summary['until']}"
    )
    yield (
        f"refused: {summary['refused']} events ({summary['refused'] * share:.3g} %), with "
        f"{summary['units_refused'] * units:.3g} % of the units; "
        f"delayed: {summary['delayed']} events ({summary['delayed'] * share:.3g} %)"
    )
    for reason, count in summary["rejected"].items():
        yield f"not used: {count} events: {REASONS[reason]}"
    if rows:
        yield table_text(_SHOWN, [tuple(row[name] for name in _SHOWN) for row in rows])
