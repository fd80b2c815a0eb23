"""Formats rows as an aligned table, JSON, or CSV."""

from __future__ import annotations

import base64
import csv
import io
import json
import math
from collections.abc import Sequence
from datetime import datetime, timezone
from decimal import Decimal
from typing import Any, Final

FORMATS: Final = ("table", "json", "csv")


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
        writer.writerows([columns, *plain])
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
