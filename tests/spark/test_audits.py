"""Each audit on a small history made by hand, with the exact answer."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from quotaplane.cli import audit as answers
from quotaplane.history.audit import BEGINNING, ask, list_audits, load_audit, register_views
from quotaplane.history.ddl import render
from quotaplane.history.tables import TABLES
from quotaplane.laws import REASON_TEXTS, Reason
from quotaplane.model import BASIC, DIMENSIONS
from quotaplane.settings import History
from tests.spark.audit_cases import at, check, write
from tests.unit.history_cases import (
    INF,
    NAN,
    NOON_MS,
    brokers,
    limits,
    old_groups,
    old_table,
    usage,
)

Ask = Callable[..., DataFrame]
FAIR, STEP = (REASON_TEXTS[reason] for reason in (Reason.FAIR_SHARE, Reason.STEP))


@pytest.fixture
def asked(spark: SparkSession, history: History) -> Ask:
    """Asks an audit of the history as it is by then."""

    def asked(name: str, since: datetime = BEGINNING, **parameters: float) -> DataFrame:
        audit = load_audit(name)
        register_views(spark, history, audit.sql)
        return ask(spark, audit, since, parameters)

    return asked


def used(second: float, *rows: tuple[str, str, float], **options: Any) -> dict[str, Any]:
    return {"usage": usage(rows, published_at_ms=NOON_MS + int(second * 1000), **options)}


EXCEEDED = (
    "broker string, resource_group string, dimension string, "
    "first_at timestamp, last_at timestamp, "
    "reports long not null, limit_per_s double, worst_used_per_s double, reason string, "
    "enforced boolean"
)


def test_exceeded_finds_unbroken_runs(spark: SparkSession, history: History, asked: Ask) -> None:
    happened: dict[float, dict[str, Any]] = {
        0: {"limits": limits([("b1", "g", 50.0), ("b2", "g", 50.0)])}
    }
    for second, b1, b2 in ((10, 50, 52), (15, 60, 20), (20, 80, 20), (25, 40, 20), (30, 90, 20)):
        happened[second + 0.1] = used(second, ("b1", "g", b1), ("b2", "g", b2))
    write(history, happened)

    check(
        spark,
        asked("exceeded"),
        [
            # 52 of 50 is within the tolerance
            ("b1", "g", "publish_messages", at(15), at(20), 2, 50.0, 80.0, FAIR, True),
            ("b1", "g", "publish_messages", at(30), at(30), 1, 50.0, 90.0, FAIR, True),
        ],
        EXCEEDED,
    )
    check(
        spark,
        asked("exceeded", since=at(12), tolerance=0.7),
        [("b1", "g", "publish_messages", at(30), at(30), 1, 50.0, 90.0, FAIR, True)],
        EXCEEDED,
    )
    check(
        spark,
        asked("exceeded", tolerance=0.0).where("broker = 'b2'"),
        [("b2", "g", "publish_messages", at(10), at(10), 1, 50.0, 52.0, FAIR, True)],
        EXCEEDED,
    )


@pytest.mark.parametrize("dimension", DIMENSIONS[BASIC:])
def test_exceeded_knows_every_dimension(
    spark: SparkSession, history: History, asked: Ask, dimension: str
) -> None:
    write(
        history,
        {
            0: {"limits": limits([("b", "g", 50.0)], dimension=dimension)},
            10: used(10, ("b", "g", 60.0), dimension=dimension),
        },
    )
    found = ("b", "g", dimension, at(10), at(10), 1, 50.0, 60.0, FAIR, True)
    check(spark, asked("exceeded"), [found], EXCEEDED)


def test_tables_of_an_earlier_version_can_be_asked_as_they_are(
    spark: SparkSession, history: History, asked: Ask
) -> None:
    old_table(history, "limits", limits([("b", "g", 10.0)]))
    old_table(history, "usage", usage([("b", "g", 40.0)], published_at_ms=NOON_MS + 9_000))
    old_groups(history, "g")
    found = ("b", "g", "publish_messages", at(9), at(9), 1, 10.0, 40.0, "", True)
    check(spark, asked("exceeded"), [found], EXCEEDED)
    changes = asked("propagation").select("dimension", "to_per_s").collect()
    assert sorted(map(tuple, changes)) == [(name, 5.0) for name in sorted(DIMENSIONS[:BASIC])]


def test_exceeded_takes_the_limit_then(spark: SparkSession, history: History, asked: Ask) -> None:
    write(
        history,
        {
            0: {"limits": limits([("b", "g", 50.0)], reason=Reason.EVEN)},
            20: {"limits": limits([("b", "g", 10.0)], reason=Reason.STEP)},
            20.5: used(19.0, ("b", "g", 40.0)),  # published before the cut
            24: used(23.5, ("b", "g", 41.0)),  # 3.5 s after it: the old limit still excuses
            30: used(29.0, ("b", "g", 42.0)),
            40: {"limits": limits([("b", "g", 100.0)], reason=Reason.EVEN)},
            41: used(40.5, ("b", "g", 43.0)),
        },
    )
    late = (
        "b",
        "g",
        "publish_messages",
        at(29),
        at(29),
        1,
        10.0,
        42.0,
        REASON_TEXTS[Reason.STEP],
        True,
    )
    check(spark, asked("exceeded"), [late], EXCEEDED)
    early = (
        "b",
        "g",
        "publish_messages",
        at(23.5),
        at(29),
        2,
        10.0,
        42.0,
        REASON_TEXTS[Reason.STEP],
        True,
    )
    check(spark, asked("exceeded", settle_s=0), [early], EXCEEDED)


def test_exceeded_repeats_unchanged_rates_and_knows_no_limit(
    spark: SparkSession, history: History, asked: Ask
) -> None:
    write(
        history,
        {
            1: used(1, ("b", "free", 70.0), ("b", "g", 70.0)),  # nothing limits either yet
            2: {"limits": limits([("b", "g", 50.0)])},
            3: {"limits": limits([("b", "free", INF)])},
            10: used(10, ("b", "free", 70.0), ("b", "g", NAN)),
            15: used(15, ("b", "g", NAN)),
            16: {"limits": limits([("b", "g", NAN)], ended_because="silent")},
            30: used(30, ("b", "g", 90.0)),
        },
    )
    row = ("b", "g", "publish_messages", at(10), at(15), 2, 50.0, 70.0, FAIR, True)
    check(spark, asked("exceeded"), [row], EXCEEDED)


def test_exceeded_on_an_empty_history(spark: SparkSession, history: History, asked: Ask) -> None:
    for audit in list_audits():
        assert asked(audit.name).collect() == [], audit.name


SILENT = (
    "broker string, last_seen_at timestamp, stale_at timestamp, gone_at timestamp, "
    "back_at timestamp, state string, silent_s double"
)


def test_silent_tells_who_came_back(spark: SparkSession, history: History, asked: Ask) -> None:
    def changed(*rows: tuple[str, str, float]) -> dict[str, Any]:
        return {"brokers": brokers([(b, s, NOON_MS + int(t * 1000)) for b, s, t in rows])}

    write(
        history,
        {
            0: changed(
                ("back", "live", 0), ("gone", "live", 0), ("late", "live", 0), ("ok", "live", 0)
            ),
            30: changed(("back", "stale", 20), ("gone", "stale", 20)),
            35: changed(("back", "gone", 20), ("gone", "gone", 20)),
            50: changed(("back", "live", 49.5)),
            70: changed(("back", "stale", 60)),
            71: changed(("back", "live", 71)),
            95: changed(("late", "stale", 85)),
            100: {},
        },
    )
    rows = [
        ("back", at(20), at(30), at(35), at(50), "back", 30.0),
        ("gone", at(20), at(30), at(35), None, "gone", 80.0),
        ("back", at(60), at(70), None, at(71), "back", 11.0),
        ("late", at(85), at(95), None, None, "stale", 15.0),
    ]
    check(spark, asked("silent"), rows, SILENT)
    check(spark, asked("silent", since=at(60)), rows[2:], SILENT)


def test_the_tables_spark_would_make_from_the_ddl_are_those_we_make(
    spark: SparkSession, history: History
) -> None:
    spark.sql("CREATE DATABASE quotaplane_ddl")
    try:
        spark.sql("USE quotaplane_ddl")
        for table in TABLES.values():
            spark.sql(render(table).rstrip().rstrip(";"))
            pair = f"quotaplane_ddl.{table.name}", f"delta.`{history.path}/{table.name}`"
            theirs, ours = (spark.table(name).schema for name in pair)
            assert theirs == ours
            made = spark.sql(f"DESCRIBE DETAIL {pair[0]}").first()
            assert made.partitionColumns == list(table.partition_by)
            assert made.description == table.comment
            assert made.properties.items() >= table.properties.items()
    finally:
        spark.sql("USE default")
        spark.sql("DROP DATABASE quotaplane_ddl CASCADE")


def test_the_job_prints_an_answer(
    spark: SparkSession, history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    write(history, {0: {"limits": limits([("b", "g", 50.0)])}, 10: used(9, ("b", "g", 70.0))})
    where = ["--history", history.path]
    assert answers.main(["exceeded", *where, "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row == {
        "broker": "b",
        "resource_group": "g",
        "dimension": "publish_messages",
        "first_at": "2026-03-01T12:00:09.000Z",
        "last_at": "2026-03-01T12:00:09.000Z",
        "reports": 1,
        "limit_per_s": 50.0,
        "worst_used_per_s": 70.0,
        "reason": FAIR,
        "enforced": True,
    }
    assert answers.main(["exceeded", *where, "--tolerance", "0.5"]) == 0
    assert capsys.readouterr().out.endswith("(0 rows)\n")
