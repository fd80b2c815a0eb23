"""The arena's tables as CSV, from which the page can be written again."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from dataclasses import fields
from typing import Final

import numpy as np

from benchmarks.balance_arena.figures import LEVELS, Figures
from benchmarks.balance_arena.grid import Cell, Key, Table, rows
from benchmarks.balance_arena.verdicts import Minimum
from benchmarks.tables import csv_of

_ROUNDS: Final = tuple(f"rounds_to_{level:.2f}" for level in LEVELS)


def table_csv(table: Table) -> str:
    """The table as CSV, a row for each run; inf: never."""
    return csv_of(rows(table))


def read_table(text: str) -> Table:
    """The opposite of ``table_csv``, but of each run's imbalance only the first minute's."""
    runs: dict[Key, list[Figures]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        rest = {
            field.name: float(row[field.name]) for field in fields(Figures) if field.name in row
        }
        figures = Figures(
            imbalance=np.array([float(row["start"])]),
            rounds=tuple(float(row[name]) for name in _ROUNDS),
            **rest,
        )
        runs.setdefault(Key(row["contender"], row["scenario"]), []).append(figures)
    return {key: Cell(tuple(found)) for key, found in runs.items()}


def minimum_csv(minimum: Sequence[Minimum]) -> str:
    """The least bytes as CSV."""
    return csv_of(one._asdict() for one in minimum)


def read_minimum(text: str) -> list[Minimum]:
    """The opposite of ``minimum_csv``."""
    return [
        Minimum(row.pop("scenario"), *map(float, row.values()))
        for row in csv.DictReader(io.StringIO(text))
    ]
