"""The text of a query: names, parameters, and how DuckDB writes it."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.query.sql_text import identifiers_in, parameters_in, to_duckdb, with_literals


def test_names_are_those_outside_of_comments_and_strings() -> None:
    sql = "SELECT Usage.`round at`, 'limits' -- brokers\n FROM usage /* rounds */"
    sql += ' JOIN "x" ON 1e5 > a'
    assert identifiers_in(sql) == {"select", "usage", "round at", "from", "join", "x", "on", "a"}


@pytest.mark.parametrize(
    ("sql", "written"),
    [
        ("SELECT :a + :b_1", "SELECT $a + $b_1"),
        ("SELECT x::double, ':a', -- :b\n :c", "SELECT x::double, ':a', -- :b\n $c"),
        ("SELECT 'it''s :a' || :a", "SELECT 'it''s :a' || $a"),
        ('SELECT `a`, `b ``c`, `d"e`', 'SELECT "a", "b `c", "d""e"'),
        ("last_value(a) IGNORE NULLS OVER w", "last_value(a IGNORE NULLS) OVER w"),
        (
            "lag(f(a, (b)), 1)\n ignore /* */ nulls\nOVER w",
            "lag(f(a, (b)), 1 IGNORE NULLS)\nOVER w",
        ),
        ("first(a) RESPECT NULLS", "first(a RESPECT NULLS)"),
        ("SELECT f(a) ignore FROM t", "SELECT f(a) ignore FROM t"),
        ("a IGNORE NULLS", "a IGNORE NULLS"),
    ],
)
def test_duckdb_s_way_of_writing(sql: str, written: str) -> None:
    assert to_duckdb(sql) == written


@given(st.text(alphabet="a:'\"`-/*() \nIGNORENULLS1", max_size=40))
def test_any_text_is_read_and_only_what_differs_is_changed(sql: str) -> None:
    identifiers_in(sql)
    if "`" not in sql and "N" not in sql:
        assert to_duckdb(sql).replace("$", ":") == sql
    assert bool(parameters_in(sql)) == ("$" in to_duckdb(sql))


def test_times_are_written_as_utc() -> None:
    noon = datetime(2026, 3, 1, 12, tzinfo=timezone(timedelta(hours=2)))
    sql = with_literals("WHERE a >= :since AND b < :since_then AND c = ':since'", {"since": noon})
    literal = "TIMESTAMP '2026-03-01T10:00:00+00:00'"
    assert sql == f"WHERE a >= {literal} AND b < :since_then AND c = ':since'"
