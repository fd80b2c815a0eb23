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
from quotaplane.history.store import ensure_tables
from quotaplane.history.tables import TABLES
from quotaplane.query.audit import Audit, list_audits, load_audit
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.spark_engine import ask, collected
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


@pytest.mark.parametrize("audit", list_audits(), ids=lambda audit: audit.name)
@pytest.mark.parametrize("seconds", [(30, 180), *in_nightly((0, 90_000))], ids=str)
def test_both_engines_give_the_same_rows(
    spark: SparkSession, recorded: History, audit: Audit, seconds: tuple[int, int]
) -> None:
    since, until = map(at, seconds)
    check_same(spark, recorded, audit.sql, audit.values(), since=since, until=until)


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
    ensure_tables(history)
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


def test_the_job_prints_an_answer(
    spark: SparkSession, history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    write(history, {0: given(("b", "g", 50.0)), 10: used(9, ("b", "g", 70.0))})
    where = ["--history", history.path]
    assert command.main(["exceeded", *where, "--json"]) == command.VIOLATIONS
    printed = capsys.readouterr()
    assert printed.err == "quotaplane: audit exceeded: 1 of 1 row is a violation\n"
    (row,) = json.loads(printed.out)
    assert row == {
        "broker": "b",
        "resource_group": "g",
        "dimension": "publish_messages",
        "first_at": "2026-03-01T12:00:09.000Z",
        "last_at": "2026-03-01T12:00:09.000Z",
        "reports": 1,
        "limit_per_s": 50.0,
        "worst_used_per_s": 70.0,
        "reason": "saturated: fair share",
        "enforced": True,
    }
    assert command.main(["exceeded", *where, "--tolerance", "0.5", "--table"]) == 0
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
