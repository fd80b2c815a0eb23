"""The answer to a query: columns and rows, whichever engine gave it."""

from __future__ import annotations

from typing import Any, NamedTuple


class Answer(NamedTuple):
    """Rows of Python values; times are in UTC, and aware of it."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]
