"""Finds names, quotas and options that a row of the table ``resource_groups`` may not have.

``quotaplane groups put`` refuses such a row. If another program wrote one into the table, the job
writes a dead letter and uses the nearest allowed value (``quota.group_changes``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from quotaplane.errors import InputError
from quotaplane.groups.names import called, flawed_names
from quotaplane.groups.policy_options import BY_COLUMN
from quotaplane.groups.scope import is_scope
from quotaplane.model import RATE_COLUMNS, FloatArray


class Flaw(NamedTuple):
    """A value that a row may not have."""

    row: int
    refusal: str
    """The problem, worded for the person who edits the group."""
    report: str
    """The problem, worded for the dead letter of a stored row; names the value that is used."""


def row_flaws(rows: pa.Table) -> Iterator[Flaw]:
    """The flaws of rows of the table; columns may be missing.

    >>> rows = pa.table({"group": ["a::"], RATE_COLUMNS[0]: [-1.0], "weight": [0.0]})
    >>> [flaw.report for flaw in row_flaws(rows)]
    ['weight: must be a number from 1e-09 to 1e+09, not 0',
     'publish_messages_per_s: below 0, taken for 0', "has an empty part beside '::'"]
    """
    yield from option_flaws(rows)
    there = [column for column in RATE_COLUMNS if column in rows.column_names]
    quotas = [rows[column].fill_null(np.nan).to_numpy() for column in there]
    if there:
        yield from quota_flaws(np.column_stack(quotas), there)
    if "group" in rows.column_names:
        names = rows["group"].combine_chunks()
        for row, flaw in flawed_names(names):
            fits_nobody = is_scope(names[row].as_py())
            yield Flaw(row, flaw, f"applies to no request: {flaw}" if fits_nobody else flaw)


def quota_flaws(quotas: FloatArray, columns: Sequence[str] = RATE_COLUMNS) -> Iterator[Flaw]:
    """The flaws of quotas (rows, columns), column by column; NaN: no quota given.

    >>> [flaw.refusal for flaw in quota_flaws(np.array([[-5.0]]), RATE_COLUMNS[:1])]
    ['publish_messages_per_s: must be 0 or more, not -5']
    """
    for place, row in np.argwhere(quotas.T < 0).tolist():
        column = columns[place]
        yield Flaw(
            row,
            f"{column}: must be 0 or more, not {quotas[row, place]:g}",
            f"{column}: below 0, taken for 0",
        )


def option_flaws(rows: pa.Table) -> Iterator[Flaw]:
    """The flaws of the options in rows, column by column.

    >>> rows = pa.table({"mode": ["hard", "harsh"], "weight": [0.0, 1.0]})
    >>> [(flaw.row, flaw.refusal) for flaw in option_flaws(rows)]
    [(1, "mode: must be one of hard, soft, shadow, not 'harsh'"),
     (0, 'weight: must be a number from 1e-09 to 1e+09, not 0')]
    """
    for column, option in BY_COLUMN.items():
        if column in rows.column_names:
            for row, what in option.flaws(column, rows[column].combine_chunks()):
                yield Flaw(row, what, what)


def refuse(names: Sequence[str], found: Iterator[Flaw]) -> None:
    """Raise the first flaw of the first row that has any.

    Raises:
        InputError: a row has a flaw; names the group and the column.
    """
    first = min(found, key=lambda flaw: flaw.row, default=None)
    if first is not None:
        raise InputError(f"{called(names[first.row])}: {first.refusal}")
