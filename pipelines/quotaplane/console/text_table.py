"""Formats rows as an aligned table or CSV, and any value as JSON has it."""

from __future__ import annotations

import base64
import csv
import io
import math
import re
import struct
from collections.abc import Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from numbers import Integral, Real
from typing import Any, Final
from unicodedata import category, east_asian_width

from quotaplane.texts import utc_text

_FORMULA: Final = re.compile(r"'*[=+\-@\t]|'+\\")
"""The beginning of a text that a spreadsheet takes for a formula, or of one that was escaped."""
CONTROL: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]")
"""Characters that a terminal obeys, or that hide others; CSV has quotes for tabs and new lines."""
_CONTROLLED: Final = "'\\"
"""Before a text whose control characters and backslashes are escaped."""
_ESCAPED: Final = re.compile(r"\\(\\|r|x[0-9a-f]{2}|u[0-9a-f]{4})")

_MOST_SINGLE: Final = 3e38
"""Larger numbers need 64 bits."""


def render(columns: Sequence[str], rows: Sequence[Sequence[Any]], form: str) -> str:
    """Format rows as an aligned table, or as CSV (``form`` is "csv") with a header.

    >>> print(render(("group", "n"), [("a", 1.5), ("bc", None)], "table"))
    group    n
    -----  ---
    a      1.5
    bc       -
    (2 rows)
    """
    plain = [[plain_value(value) for value in row] for row in rows]
    if form == "csv":
        out = io.StringIO()
        writer = csv.writer(out, lineterminator="\n")
        texts = [
            [
                escape_cell(cell)
                if isinstance(cell, str) and not isinstance(value, Real | Decimal)
                else cell
                for value, cell in zip(given, row, strict=True)
            ]
            for given, row in zip(rows, plain, strict=True)
        ]
        writer.writerows([list(map(escape_cell, columns)), *texts])
        return out.getvalue().rstrip("\n")
    numeric = [all(map(_is_number, column)) for column in zip(*plain, strict=True)]
    numeric = numeric or [False] * len(columns)
    cells = [list(columns), *([_cell(value) for value in row] for row in plain)]
    widths = [max(columns_of(row[i]) for row in cells) for i in range(len(columns))]
    cells.insert(1, ["-" * width for width in widths])
    lines = (
        "  ".join(
            f"{space}{cell}" if right else f"{cell}{space}"
            for cell, space, right in (
                (cell, " " * (width - columns_of(cell)), right)
                for cell, width, right in zip(row, widths, numeric, strict=True)
            )
        ).rstrip()
        for row in cells
    )
    return "\n".join([*lines, f"({len(rows)} row{'' if len(rows) == 1 else 's'})"])


def columns_of(text: str) -> int:
    """How many columns of a terminal a text takes.

    >>> columns_of("acme"), columns_of("\u65e5\u672c"), columns_of("cafe\u0301")
    (4, 4, 4)
    """
    if text.isascii():
        return len(text)
    wide = sum(east_asian_width(one) in ("W", "F") for one in text)
    return len(text) + wide - sum(category(one) in ("Mn", "Me") for one in text)


def escape_cell(text: str) -> str:
    r"""A text as a cell of a CSV file; an apostrophe keeps a spreadsheet from computing it.

    Names come from brokers and tenants, and a formula can send what is in other cells elsewhere; a
    control character can rewrite what a terminal shows.

    >>> [escape_cell(text) for text in ("=1+1", "-", "acme", "'=1")]
    ["'=1+1", "'-", 'acme', "''=1"]
    >>> print(escape_cell("\x1b[2Ja\\b"), escape_cell("a\\b"))
    '\\x1b[2Ja\\b a\b
    """
    if CONTROL.search(text):
        return _CONTROLLED + CONTROL.sub(_as_escape, text.replace("\\", r"\\"))
    return f"'{text}" if _FORMULA.match(text) else text


def unescape_cell(cell: str) -> str:
    r"""The text of a cell that ``escape_cell`` may have changed.

    >>> [unescape_cell(text) for text in ("'=1+1", "''=1", "acme", "'s", r"'\\x1b[2Ja\\b")]
    ['=1+1', "'=1", 'acme', "'s", '\x1b[2Ja\\b']
    """
    if cell.startswith(_CONTROLLED):
        return _ESCAPED.sub(_of_escape, cell.removeprefix(_CONTROLLED))
    return cell[1:] if cell.startswith("'") and _FORMULA.match(cell) else cell


def _as_escape(found: re.Match[str]) -> str:
    return found[0].encode("unicode_escape").decode()


def _of_escape(found: re.Match[str]) -> str:
    return found[0].encode().decode("unicode_escape")


def plain_value(value: Any) -> Any:
    r"""A value of any type as JSON has it, text where JSON has no such type.

    Times are in UTC, durations in the form of ISO 8601, bytes in base64. A decimal is a number if
    64 bits hold just this number; NaN and infinities are text. A fraction of 32 bits, as limits
    and rates in the state are, has no more digits than 32 bits need.

    >>> plain_value([33.33333206176758, timedelta(days=1, seconds=2.5), Decimal("0.95"), b"\xff"])
    [33.333332, 'P1DT2.5S', 0.95, '/w==']
    """
    if value is None or isinstance(value, str | bool):
        return value
    if isinstance(value, Integral):
        return int(value)
    if isinstance(value, Real):
        return _plain_number(float(value)) if math.isfinite(value) else str(value)
    if isinstance(value, Decimal):
        return _plain_decimal(value)
    if isinstance(value, datetime):
        return _plain_time(value)
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, timedelta):
        return _plain_duration(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if isinstance(value, list | tuple | set):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {_plain_key(key): plain_value(item) for key, item in value.items()}
    return str(value)


def _plain_number(value: float) -> float:
    if value.is_integer() or not -_MOST_SINGLE < value < _MOST_SINGLE:
        return value
    if _to_single(value) != value:
        return value
    texts = (f"{value:.{digits}g}" for digits in (6, 7, 8, 9))
    return next(number for number in map(float, texts) if _to_single(number) == value)


def _to_single(value: float) -> float:
    """The nearest number of 32 bits."""
    single: float = struct.unpack("f", struct.pack("f", value))[0]
    return single


def _plain_key(key: Any) -> str:
    """A key of an object; those of a DuckDB map may be of any type."""
    return str(plain_value(key))


def _plain_decimal(value: Decimal) -> int | float | str:
    if not value.is_finite():
        return str(value).lower()
    if value == value.to_integral_value():
        return int(value)
    number = float(value)
    return number if Decimal(repr(number)) == value else str(value)


def _plain_time(value: datetime) -> str:
    # A time without a zone stays one: its place in UTC is unknown.
    if value.tzinfo is None:
        return value.isoformat(timespec="milliseconds")
    try:
        return utc_text(value, "milliseconds")
    except OverflowError:  # in the first or last hours that Python knows
        return value.isoformat(timespec="milliseconds")


def _plain_duration(value: timedelta) -> str:
    sign, value = ("-", -value) if value < timedelta(0) else ("", value)
    days = f"{value.days}D" if value.days else ""
    seconds = f"{value.seconds}.{value.microseconds:06}".rstrip("0").rstrip(".")
    return f"{sign}P{days}T{seconds}S"


def _is_number(value: Any) -> bool:
    return value is None or (isinstance(value, int | float) and not isinstance(value, bool))


def _cell(value: Any) -> str:
    if value is None:
        return "-"
    return f"{value:.10g}" if isinstance(value, float) else str(value)
