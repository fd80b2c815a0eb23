"""The answer to a query: columns and rows, the same for all engines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple


class Answer(NamedTuple):
    """Rows of Python values; times are in UTC, and aware of it."""

    columns: tuple[str, ...]
    rows: list[tuple[Any, ...]]

    def dicts(self) -> list[dict[str, Any]]:
        """The rows, each by the names of its columns."""
        return [dict(zip(self.columns, row, strict=True)) for row in self.rows]


def distinct_names(names: Sequence[str]) -> tuple[str, ...]:
    """The names of columns, with a number behind those that repeat one.

    >>> distinct_names(["broker", "used", "broker", "broker", "broker_1"])
    ('broker', 'used', 'broker_2', 'broker_3', 'broker_1')
    """
    found: list[str] = []
    taken = set(names)
    for name in names:
        unlike, number = name, 0
        while unlike in (taken if number else found):
            number += 1
            unlike = f"{name}_{number}"
        found.append(unlike)
        taken.add(unlike)
    return tuple(found)
