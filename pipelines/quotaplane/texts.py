"""Parts of the lines that programs print: times, and lists of which only the beginning is shown."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import Final

LATEST_MS: Final = 253_402_300_799_999
"""The end of the year 9999 in ms since 1970: Python and Spark know no later times."""


def utc_text(at: datetime, timespec: str = "seconds") -> str:
    """A time in UTC in the form of ISO 8601; ``timespec`` as of ``datetime.isoformat``.

    >>> utc_text(datetime(2026, 3, 1, 12, 0, 0, 125_000, timezone.utc))
    '2026-03-01T12:00:00Z'
    """
    return at.astimezone(timezone.utc).isoformat(timespec=timespec).replace("+00:00", "Z")


def first_few(texts: Iterable[str], most: int = 5) -> str:
    """The first of some texts, and how many more there are.

    >>> first_few("ab"), first_few("abcdefg")
    ('a, b', 'a, b, c, d, e and 2 more')
    """
    shown = list(texts)
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {more} more" if more > 0 else "")


def some_of(names: Iterable[str]) -> str:
    """The first few names in order, in quotes, for a line of output.

    >>> some_of({"b", "a"})
    "'a', 'b'"
    """
    return first_few(map(repr, sorted(names)))
