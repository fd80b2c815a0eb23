"""A spreadsheet computes nothing of our CSV, a terminal obeys none of it; all can be put back."""

from __future__ import annotations

import csv
import io
import json
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.cli.main import main
from quotaplane.console.text_table import escape_cell, render, unescape_cell
from quotaplane.registry.table import put_groups
from quotaplane.settings import History
from tests.histories import make_history
from tests.unit.registry.groups_cases import quota


def cells(text: str) -> list[list[str]]:
    return list(csv.reader(io.StringIO(text)))


@pytest.mark.parametrize("first", ["=", "+", "-", "@", "\t"])
def test_a_text_that_begins_like_a_formula_gets_an_apostrophe(first: str) -> None:
    text = f'{first}HYPERLINK("http://x/"&A1)'
    assert cells(render((text, "n"), [(text, 1)], "csv")) == [[f"'{text}", "n"], [f"'{text}", "1"]]
    assert text.strip() in render(("g",), [(text,)], "table")


def test_numbers_stay_numbers() -> None:
    row = (-1, -1.5, Decimal("-2"), float("-inf"), None, False, "1-2", b"\xfb\xf0")
    found = cells(render(tuple("abcdefgh"), [row], "csv"))[1]
    assert found == ["-1", "-1.5", "-2", "-inf", "", "False", "1-2", "'+/A="]


@given(st.text(alphabet="'=+-@\t\rab\\\x1bxu1\x9b\u202e\n", max_size=8) | st.text(max_size=6))
def test_every_text_comes_back(text: str) -> None:
    cell = escape_cell(text)
    assert unescape_cell(cell) == text
    assert all(each.isprintable() or each in "\t\n" for each in cell) or not text.isascii()
    assert cell[:1] not in tuple("=+-@\t\r")


@pytest.mark.parametrize("control", ["\x1b", "\x9b", "\x7f", "\r", "\b", "\0", "\u202e"])
def test_a_terminal_is_given_no_control_characters(control: str) -> None:
    text = f"a{control}[2J"
    printed = render((text,), [(text,)], "csv")
    assert control not in printed
    assert [unescape_cell(line[0]) for line in cells(printed)] == [text, text]


def test_groups_with_such_names_and_authors_are_printed_and_put_back(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = ["=cmd|x", "@sum", "-1", "'=quoted", "acme"]
    places = [("--history", str(tmp_path / name)) for name in ("one", "other")]
    history = History(path=places[0][1])
    make_history(history)
    # The command line refuses such authors.
    quotas = np.repeat(quota(5), len(names), axis=0)
    put_groups(history, names, quotas, "ann\x1b]0;title\x07\x9b2J")
    assert main(["groups", "list", "--csv", *places[0]]) == 0
    printed = capsys.readouterr().out
    assert all(each.isprintable() or each == "\n" for each in printed)
    found = [line[0] for line in cells(printed)[1:]]
    assert sorted(found) == sorted(["'=cmd|x", "'@sum", "'-1", "''=quoted", "acme"])
    file = tmp_path / "groups.csv"
    file.write_text(printed, "utf-8")
    assert main(["groups", "put", "--file", str(file), "--init", *places[1]]) == 0
    capsys.readouterr()
    assert main(["groups", "list", "--json", *places[1]]) == 0
    groups = json.loads(capsys.readouterr().out)
    assert sorted(row["group"] for row in groups) == sorted(names)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("group,weight,weight\na,5,6\n", "line 1: the column weight occurs 2 times"),
        ("group,group\na,b\n", "line 1: the column group occurs 2 times"),
        ("group,weight\na,-0.0\n", "line 2: weight: must be a number, not '-0.0'"),
        ("group,weight\na,1_000\n", "line 2: weight: must be a number, not '1_000': write a plain"),
        ("group,weight\na,\u0661\n", "line 2: weight: must be a number, not '\u0661'"),
        ("group,publish_bytes_per_s\na,-0\n", "line 2: publish_bytes_per_s: must be a number"),
        ("group,publish_bytes_per_s\na,infinity\n", "line 2: publish_bytes_per_s: must be a n"),
    ],
)
def test_cells_that_tools_read_differently_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, says: str
) -> None:
    file = tmp_path / "groups.csv"
    file.write_text(text, "utf-8")
    place = ["--init", "--history", str(tmp_path / "history")]
    assert main(["groups", "put", "--file", str(file), *place]) == 2
    assert f"{file}: {says}" in capsys.readouterr().err
    assert not (tmp_path / "history").exists()
