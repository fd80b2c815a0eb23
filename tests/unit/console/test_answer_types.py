"""SQL answers of every type, in every form: an answer, and never a traceback."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import duckdb
import pytest

from quotaplane.cli.main import main
from quotaplane.console.text_table import plain_value
from quotaplane.query.answer import distinct_names
from quotaplane.settings import History
from tests.unit.query.audit_cases import given, write

Output = pytest.CaptureFixture[str]

FORMS = ["--json", "--csv", "--table"]

VALUES = {
    "BOOLEAN": ("true", True),
    "TINYINT": ("-1", -1),
    "UBIGINT": ("18446744073709551615", 18446744073709551615),
    "HUGEINT": ("170141183460469231731687303715884105727", 2**127 - 1),
    "FLOAT": ("33.333333", 33.333332),
    "DOUBLE": ("0.1", 0.1),
    "DECIMAL(38,2)": ("0.95", 0.95),
    "DECIMAL(38,20)": ("0.12345678901234567890", "0.12345678901234567890"),
    "BIGNUM": ("7", "7"),
    "VARCHAR": ("'caf\u00e9 \U0001f600'", "caf\u00e9 \U0001f600"),
    "BLOB": ("'\\xFF'", "/w=="),
    "BIT": ("'101'", "101"),
    "UUID": ("'f123c807-477c-4b49-a57c-a4c45aa5cc8d'", "f123c807-477c-4b49-a57c-a4c45aa5cc8d"),
    "DATE": ("'2026-03-01'", "2026-03-01"),
    "TIME": ("'12:00:00.5'", "12:00:00.500000"),
    "TIMETZ": ("'12:00:00+02'", "12:00:00+02:00"),
    "TIME_NS": ("'12:00:00.5'", "12:00:00.500000"),
    "TIMESTAMP": ("'2026-03-01 12:00:00'", "2026-03-01T12:00:00.000"),
    "TIMESTAMP_S": ("'2026-03-01 12:00:00'", "2026-03-01T12:00:00.000"),
    "TIMESTAMP_MS": ("'2026-03-01 12:00:00'", "2026-03-01T12:00:00.000"),
    "TIMESTAMP_NS": ("'2026-03-01 12:00:00.5'", "2026-03-01T12:00:00.500"),
    "TIMESTAMPTZ": ("'2026-03-01 12:00:00+02'", "2026-03-01T10:00:00.000Z"),
    "INTERVAL": ("'-36 hours'", "-P1DT43200S"),
    "ENUM('a', 'b')": ("'a'", "a"),
    "INTEGER[]": ("[1, NULL]", [1, None]),
    "INTEGER[2]": ("[1, 2]", [1, 2]),
    "STRUCT(a FLOAT, b BLOB)": ("{'a': 0.1, 'b': '\\x00'}", {"a": 0.1, "b": "AA=="}),
    "MAP(DATE, INTERVAL)": ("MAP {'2026-03-01': '1 s'}", {"2026-03-01": "PT1S"}),
    "UNION(a INTEGER, b VARCHAR)": ("'x'", "x"),
    "TUPLE(INTEGER, VARCHAR)": ("(1, 'a')", [1, "a"]),
    "VARIANT": ("INTERVAL '1 s'", "PT1S"),
    "GEOMETRY": ("'POINT(1 2)'", "AQEAAAAAAAAAAADwPwAAAAAAAABA"),
    "TIMESTAMPTZ_NS": ("'2026-03-01 12:00:00+02'", "2026-03-01T10:00:00.000Z"),
}
"""By type of DuckDB: a value in SQL, and as JSON."""

KNOWN = {
    name for (name,) in duckdb.sql("SELECT DISTINCT logical_type FROM duckdb_types()").fetchall()
}
ALIASES = {"TIMETZ": "TIME WITH TIME ZONE", "TIMESTAMPTZ": "TIMESTAMP WITH TIME ZONE"}
"""Types by their short names, as an older DuckDB calls them, too."""

UNUSUAL = {
    "not a number": ("CAST('nan' AS DOUBLE)", "nan"),
    "infinite": ("CAST('-infinity' AS DOUBLE)", "-inf"),
    "the last time": ("CAST('infinity' AS TIMESTAMPTZ)", "9999-12-31T23:59:59.999"),
    "a time beyond Python's": ("CAST('290000-01-01' AS TIMESTAMP)", "290000-01-01 00:00:00"),
    "a long number": ("CAST(repeat('9', 5000) AS BIGNUM)", "9" * 5000),
    "keys that are lists": ("MAP {[1]: 2}", {"key": [[1]], "value": [2]}),
    "nothing": ("NULL", None),
}

LISTS = {"LIST", "ARRAY"}
WITHOUT_VALUES = {"NULL", "TYPE"}
LIKE_INTEGER = {*("SMALLINT", "INTEGER", "BIGINT", "UTINYINT", "USMALLINT", "UINTEGER", "UHUGEINT")}


@pytest.fixture
def made(history: History) -> History:
    write(history, {0: given(("b1", "g", 50.0))})
    return history


def ask(history: History, tmp_path: Path, sql: str, *words: str) -> int:
    file = tmp_path / "asked.sql"
    file.write_text(sql, "utf-8")
    return main(["audit", str(file), "--history", history.path, *words])


def known(kind: str) -> bool:
    """Whether this DuckDB has the type."""
    name = kind.partition("(")[0].partition("[")[0]
    return ALIASES.get(name, name) in KNOWN


@pytest.mark.parametrize("form", FORMS)
def test_values_of_all_types_in_a_form(
    made: History, tmp_path: Path, capsys: Output, form: str
) -> None:
    of_types = {
        kind: (f"CAST({value} AS {kind})", expected)
        for kind, (value, expected) in VALUES.items()
        if known(kind)
    }
    cases = of_types | UNUSUAL
    columns = ", ".join(f'{sql} AS "{name}"' for name, (sql, _) in cases.items())
    assert ask(made, tmp_path, f"SELECT {columns}", form) == 0
    out, err = capsys.readouterr()
    assert err == ""
    wanted = {name: expected for name, (_, expected) in cases.items()}
    if form == "--json":
        assert json.loads(out, parse_constant=pytest.fail) == [wanted]
    elif form == "--csv":
        [row] = csv.DictReader(io.StringIO(out))
        texts = {name: each for name, each in wanted.items() if isinstance(each, str)}
        assert {name: row[name].removeprefix("'") for name in texts} == texts
        assert row.keys() == wanted.keys()
    else:
        assert out.endswith("(1 row)\n")


def test_every_type_of_duckdb_is_among_them() -> None:
    tested = {kind.partition("(")[0] for kind in VALUES}
    tested |= {ALIASES[kind] for kind in tested & ALIASES.keys()}
    assert KNOWN - tested - LIKE_INTEGER - LISTS - WITHOUT_VALUES == set()


@pytest.mark.parametrize("form", FORMS)
def test_columns_of_one_name_are_all_there(
    made: History, tmp_path: Path, capsys: Output, form: str
) -> None:
    assert ask(made, tmp_path, "SELECT 1 AS a, 2 AS a, 3 AS a", form) == 0
    out = capsys.readouterr().out
    assert all(name in out for name in ("a_1", "a_2"))


def test_names_are_told_apart_whatever_they_are() -> None:
    assert distinct_names(["a", "a", "a_1"]) == ("a", "a_2", "a_1")
    assert distinct_names([]) == ()


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.10000000149011612, 0.1),
        (0.1, 0.1),
        (16777217.0, 16777217.0),
        (9.99999993922529e-09, 1e-08),
    ],
)
def test_a_number_of_32_bits_has_no_more_digits(value: float, expected: float) -> None:
    assert plain_value(value) == expected
