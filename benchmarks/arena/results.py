"""The arena's tables as CSV, from which the page can be written again."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

from benchmarks.arena.grid import Cell, Key, Table, rows
from benchmarks.arena.held import Held
from benchmarks.tables import csv_of

_WORDS: Final = frozenset(
    {*Key._fields, "worst_shift", "last_off", "throttle_law", "mode", "windows"}
)
"""The columns that are not numbers."""


def table_csv(table: Table) -> str:
    """The table as CSV; empty: never settled."""
    return csv_of(rows(table))


def read_table(text: str) -> Table:
    """The opposite of ``table_csv``."""
    table: Table = {}
    for row in _read(text):
        key = Key(*(row.pop(name) for name in Key._fields))
        table[key] = Cell(**row)
    return table


def held_csv(held: Iterable[Held]) -> str:
    """The figures of our law on brokers with other throttle laws, as CSV."""
    return csv_of(asdict(one) for one in held)


def read_held(text: str) -> list[Held]:
    """The opposite of ``held_csv``."""
    return [Held(**row) for row in _read(text)]


def _read(text: str) -> list[dict[str, Any]]:
    return [
        {
            name: cell if name in _WORDS else float(cell) if cell else None
            for name, cell in row.items()
        }
        for row in csv.DictReader(io.StringIO(text))
    ]
