"""Spark answers every audit as DuckDB does: on histories made by hand, and on a recorded one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Final

import pytest
from chispa.schema_comparer import assert_schema_equality
from delta.tables import DeltaTable
from pyspark.sql import SparkSession

from quotaplane.cli import audit as command
from quotaplane.errors import InputError
from quotaplane.history.ddl import render
from quotaplane.history.tables import TABLES
from quotaplane.query.answer import distinct_names
from quotaplane.query.audit import list_audits, load_audit
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.spark_engine import ask, collected, register_views
from quotaplane.query.sql_text import with_literals
from quotaplane.settings import History
from tests.examples import in_nightly
from tests.unit.query.audit_cases import BY_HAND, Built, Case, equal, given, used, write
from tests.unit.query.twenty_questions import Question, questions, recorded_day
from tests.unit.sim.recorded_history import at

INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.shuffle.partitions": "1",
}


@pytest.fixture(scope="module", autouse=True)
def without_compiling(spark: SparkSession, request: pytest.FixtureRequest) -> Iterator[None]:
    """Spark interprets queries of a few rows in a fraction of the time that compiling them takes.

    ``make nightly`` compiles them, as jobs do.
    """
    options = {} if request.config.getoption("--nightly") else INTERPRETED
    before = {name: spark.conf.get(name) for name in options}
    for name, value in options.items():
        spark.conf.set(name, value)
    yield
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> History:
    history = History(path=str(tmp_path_factory.mktemp("recorded")))
    recorded_day(history)
    return history


@pytest.mark.nightly
@pytest.mark.parametrize("case", BY_HAND, ids=lambda case: f"{case.audit}: {case.name}")
def test_an_audit_answers(spark: SparkSession, built: Built, case: Case) -> None:
    audit = load_audit(case.audit)
    history = built.history(case.build)
    values = audit.values(case.parameters)
    found = ask(spark, history, audit.sql, values, since=case.since, until=case.until)
    equal(collected(found), case.columns, case.rows)


def test_spark_accepts_all_queries(spark: SparkSession, history: History) -> None:
    """Names, types and functions of each are Spark's too; ``make nightly`` compares rows of all."""
    register_views(spark, history)
    times = {"since": at(0), "until": at(90_000)}
    queries = {audit.name: (audit.sql, audit.values()) for audit in list_audits()}
    queries |= {question.text: (question.sql, {}) for question in questions()}
    with DuckDBEngine(history) as engine:
        for name, (sql, values) in queries.items():
            found = spark.sql(with_literals(sql, {**values, **times}))
            assert distinct_names(found.columns) == engine.ask(sql, values, **times).columns, name


AUDITS: Final = {audit.name: audit for audit in list_audits()}
QUICK: Final = ("silent",)


@pytest.mark.parametrize("audit", [*QUICK, *in_nightly(*sorted({*AUDITS} - {*QUICK}))])
@pytest.mark.parametrize("seconds", [(30, 180), *in_nightly((0, 90_000))], ids=str)
def test_both_engines_give_the_same_rows(
    spark: SparkSession, recorded: History, audit: str, seconds: tuple[int, int]
) -> None:
    (since, until), found = map(at, seconds), AUDITS[audit]
    check_same(spark, recorded, found.sql, found.values(), since=since, until=until)


@pytest.mark.nightly
@pytest.mark.parametrize("question", questions(), ids=lambda question: question.text)
def test_both_engines_answer_the_twenty_questions(
    spark: SparkSession, recorded: History, question: Question
) -> None:
    check_same(spark, recorded, question.sql, since=at(0), until=at(90_000))


def check_same(
    spark: SparkSession,
    history: History,
    sql: str,
    values: Mapping[str, float] | None = None,
    **times: datetime,
) -> None:
    with DuckDBEngine(history) as engine:
        wanted = engine.ask(sql, values, **times)
    found = collected(ask(spark, history, sql, values, **times))
    assert found.columns == wanted.columns
    equal(found, (), wanted.rows)


@pytest.mark.nightly
def test_an_empty_history_has_no_answers(spark: SparkSession, history: History) -> None:
    for audit in list_audits():
        assert collected(ask(spark, history, audit.sql, audit.values())).rows == [], audit.name


@pytest.mark.parametrize("names", [("usage", "rounds"), *in_nightly(tuple(TABLES))], ids=len)
def test_the_tables_spark_would_make_from_the_ddl_are_those_we_make(
    spark: SparkSession, history: History, names: tuple[str, ...]
) -> None:
    spark.sql("CREATE DATABASE quotaplane_ddl")
    try:
        spark.sql("USE quotaplane_ddl")
        for table in map(TABLES.__getitem__, names):
            spark.sql(render(table).rstrip().rstrip(";"))
            theirs = DeltaTable.forName(spark, f"quotaplane_ddl.{table.name}")
            ours = DeltaTable.forPath(spark, f"{history.path}/{table.name}")
            assert_schema_equality(theirs.toDF().schema, ours.toDF().schema)
            made = theirs.detail().first()
            assert made.partitionColumns == list(table.partition_by)
            assert made.description == table.comment
            assert made.properties.items() >= table.properties.items()
    finally:
        spark.sql("USE default")
        spark.sql("DROP DATABASE quotaplane_ddl CASCADE")


OF_USERS: Final = """-- Which reports have a high rate?
--
-- :most_per_s = 60  higher is a violation, units a second
-- violations: every row
SELECT broker, dimension, reported_at, used_per_s, used_per_s > 1 AS more_than_one
FROM usage_values
WHERE used_per_s > :most_per_s
"""


def test_the_job_prints_an_answer(
    spark: SparkSession, history: History, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(history, {0: given(("b", "g", 50.0)), 10: used(9, ("b", "g", 70.0))})
    file = tmp_path / "mine.sql"
    file.write_text(OF_USERS)
    where = [str(file), "--history", history.path]
    assert command.main([*where, "--json"]) == command.VIOLATIONS
    printed = capsys.readouterr()
    assert printed.err == "quotaplane: audit mine: 1 of 1 row is a violation\n"
    (row,) = json.loads(printed.out)
    assert row == {
        "broker": "b",
        "dimension": "publish_messages",
        "reported_at": "2026-03-01T12:00:09.000Z",
        "used_per_s": 70.0,
        "more_than_one": True,
    }
    assert command.main([*where, "--most-per-s", "80", "--table"]) == 0
    assert capsys.readouterr().out.endswith("(0 rows)\n")


def test_wrong_sql_is_one_line(spark: SparkSession, history: History, tmp_path: Path) -> None:
    file = tmp_path / "mine.sql"
    for sql, problem in {
        "SELECT nothing FROM usage": r"SQL: \[UNRESOLVED_COLUMN.*`nothing`",
        "SELEC 1": r"SQL: \[PARSE_SYNTAX_ERROR\]",
        "SELECT * FROM nowhere": r"SQL: \[TABLE_OR_VIEW_NOT_FOUND\]",
        "SELECT CAST('x' AS INT)": r"SQL: \[CAST_INVALID_INPUT\]",
    }.items():
        file.write_text(sql)
        with pytest.raises(InputError, match=f"^audit {file}: {problem}") as refused:
            command.main([str(file), "--history", history.path])
        assert "\n" not in str(refused.value)
