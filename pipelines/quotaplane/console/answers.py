"""The form of a command's answer: a table for people, JSON or CSV for scripts.

The rule for all commands with rows: what ``--table``, ``--json`` or ``--csv`` says; without them a
table if stdout is a terminal, otherwise JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from quotaplane.console.terminal import one_line
from quotaplane.console.text_table import CONTROL, plain_value, render

TABLE: Final = "table"
JSON: Final = "json"
CSV: Final = "csv"

Columns = Sequence[str]
Rows = Sequence[Sequence[Any]]


def add_answer_options(parser: argparse.ArgumentParser, *, csv: bool = True) -> None:
    """Add ``--table``, ``--json`` and, where the answer is the rows of one table, ``--csv``."""
    form = parser.add_mutually_exclusive_group()
    texts = {TABLE: "print a table", JSON: "print JSON"} | ({CSV: "print CSV"} if csv else {})
    defaults = {TABLE: " (default on a terminal)", JSON: " (default elsewhere)"}
    for name, text in texts.items():
        form.add_argument(
            f"--{name}",
            dest="form",
            action="store_const",
            const=name,
            help=text + defaults.get(name, ""),
        )


def answer_form(args: argparse.Namespace) -> str:
    """``TABLE``, ``JSON`` or ``CSV``."""
    return args.form or (TABLE if sys.stdout.isatty() else JSON)


def print_answer(
    args: argparse.Namespace,
    as_json: Callable[[], str],
    as_table: Callable[[], str | tuple[Columns, Rows]],
    as_csv: Callable[[], tuple[Columns, Rows]] | None = None,
) -> None:
    """Print an answer in the form that was asked for.

    Args:
        args: has the options of ``add_answer_options``.
        as_json: the answer as JSON.
        as_table: for people, as text or rows.
        as_csv: the rows for scripts; None: those of ``as_table``.
    """
    form = answer_form(args)
    if form == JSON:
        print(as_json())
        return
    shown = (as_csv or as_table)() if form == CSV else as_table()
    if not isinstance(shown, str):
        columns, rows = shown
        cells = [[_cell(value) for value in row] for row in rows]
        shown = render(columns, cells, CSV) if form == CSV else table_text(columns, rows)
    print(shown)


def print_rows(
    args: argparse.Namespace, rows: Sequence[Mapping[str, Any]], columns: Columns
) -> None:
    """Print rows by column name; ``columns`` are those of a table, also of one without rows."""
    cells = [tuple(row[name] for name in columns) for row in rows]
    print_answer(args, lambda: json_lines(rows), lambda: (columns, cells))


def table_text(columns: Columns, rows: Rows) -> str:
    r"""Rows as an aligned table; control characters are escaped, lists and objects are JSON.

    >>> print(table_text(("group", "brokers"), [("a\x1b", {"b1": {}}), ("b", None)]))
    group  brokers
    -----  ----------
    a\x1b  {"b1": {}}
    b      -
    (2 rows)
    """
    printable = [[_printable(_cell(value)) for value in row] for row in rows]
    return render(columns, printable, TABLE)


def json_of(row: object) -> str:
    r"""An answer as JSON on one line, of which a terminal obeys nothing.

    See ``text_table.plain_value``.

    >>> print(json_of({"by": "a\x9bb"}))
    {"by": "a\u009bb"}
    """
    text = json.dumps(plain_value(row), ensure_ascii=False, allow_nan=False)
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def json_lines(rows: Sequence[Mapping[str, Any]]) -> str:
    """A list as JSON, one row a line: JSON as a whole, and still fit for grep and diff."""
    return "[" + ",".join(f"\n {json_of(row)}" for row in rows) + ("\n]" if rows else "]")


def _cell(value: object) -> object:
    """Lists, objects, true and false as JSON."""
    return json_of(value) if isinstance(value, dict | list | tuple | bool) else value


def _printable(value: object) -> object:
    return one_line(value) if isinstance(value, str) else value
