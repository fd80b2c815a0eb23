"""Formats rows as an aligned table, JSON, or CSV."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, Final

FORMATS: Final = ("table", "json", "csv")

_FORMULA: Final = re.compile(r"'*[=+\-@\t\r]")
"""The beginning of a text that a spreadsheet takes for a formula, or of one that was escaped."""


def render(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str) -> str:
    """Format rows as an aligned table, a JSON list of objects, or CSV with a header.

    >>> print(render(("group", "n"), [("a", 1.5), ("bc", None)], "table"))
    group    n
    -----  ---
    a      1.5
    bc       -
    (2 rows)
    """
    plain = [[_plain(value) for value in row] for row in rows]
    if form == "json":
        items = (json.dumps(dict(zip(columns, row, strict=True))) for row in plain)
        return "[" + ",".join(f"\n {item}" for item in items) + ("\n]" if plain else "]")
    if form == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        texts = [
            [
                escape_formula(cell) if isinstance(value, str | bytes | bytearray) else cell
                for value, cell in zip(given, row, strict=True)
            ]
            for given, row in zip(rows, plain, strict=True)
        ]
        writer.writerows([list(map(escape_formula, columns)), *texts])
        return out.getvalue().rstrip("\n")
    numeric = [all(map(_is_number, column)) for column in zip(*plain, strict=True)]
    numeric = numeric or [False] * len(columns)
    cells = [list(columns), *([_cell(value) for value in row] for row in plain)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(columns))]
    cells.insert(1, ["-" * width for width in widths])
    lines = (
        "  ".join(
            f"{cell:>{width}}" if right else f"{cell:<{width}}"
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ).rstrip()
        for row in cells
    )
    return "\n".join([*lines, f"({len(rows)} row{'' if len(rows) == 1 else 's'})"])


def escape_formula(text: str) -> str:
    """A text as a cell of a CSV file; an apostrophe keeps a spreadsheet from computing it.

    Names come from brokers and tenants, and a formula can send what is in other cells elsewhere.

    >>> [escape_formula(text) for text in ("=1+1", "-", "acme", "'=1")]
    ["'=1+1", "'-", 'acme', "''=1"]
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unescape_formula(cell: str) -> str:
    """The text of a cell that ``escape_formula`` may have changed.

    >>> [unescape_formula(text) for text in ("'=1+1", "''=1", "acme", "'s")]
    ['=1+1', "'=1", 'acme', "'s"]
    """
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _plain(value: Any) -> Any:
    """A value as JSON has it: text where JSON has no such type."""
    if isinstance(value, datetime):
        text = value.astimezone(timezone.utc).isoformat(timespec="milliseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)  # JSON has no infinity
    return value if value is None or isinstance(value, str | int | float) else str(value)


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.10g}" if isinstance(value, float) else str(value)
