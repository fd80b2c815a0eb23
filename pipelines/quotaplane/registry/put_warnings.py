"""Warnings about groups that are allowed but strange, a line each."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import filled
from quotaplane.groups.name_warnings import broker_warnings, name_warnings
from quotaplane.groups.policy_options import FLOOR_COLUMNS
from quotaplane.model import (
    DIMENSIONS,
    RATE_COLUMNS,
    FloatArray,
    IntArray,
)
from quotaplane.registry.group_input import GivenGroups
from quotaplane.throttle.terms import windows_kept

_MOST_WARNINGS: Final = 10


def warnings_about(rows: pa.Table, parent: IntArray, given: GivenGroups) -> Iterator[str]:
    """Warnings about the given groups; ``rows`` has all groups after the put, these first.

    They are about a child's quota above its parent's (the parent's still holds), floors that add up
    to more than there is to guarantee (they are then cut), a quota given per second while other
    windows are kept, and a group or broker with a name that no report has: often a mistake, never
    an error.

    ``parent`` (rows,) has the indexes of the groups above, -1 for none.
    """
    lines = [
        *_family_warnings(rows, parent, given.names),
        *_window_warnings(rows, given.timeframe_s),
        *unreported_names(rows, len(given.names)),
    ]
    yield from lines[:_MOST_WARNINGS]
    if len(lines) > _MOST_WARNINGS:
        yield f"and {len(lines) - _MOST_WARNINGS} more"


def _family_warnings(rows: pa.Table, parent: IntArray, names: Sequence[str]) -> list[str]:
    group = rows["group"].combine_chunks()
    child = np.flatnonzero(parent >= 0)
    if not len(child):
        return []
    above = parent[child]
    put = np.asarray(pc.is_in(group, value_set=pa.array(names, pa.string())).to_numpy(False))
    lines: list[str] = []
    for rate, floor in zip(RATE_COLUMNS, FLOOR_COLUMNS, strict=True):
        quota = filled(rows, rate, np.inf)
        concerned = put[child] | put[above]
        over = concerned & np.isfinite(quota[child]) & (quota[child] > quota[above])
        lines += [
            f"group {group[c].as_py()!r}: {rate}: {quota[c]:g} is more than the {quota[a]:g} of "
            f"its parent {group[a].as_py()!r}"
            for c, a in zip(child[over].tolist(), above[over].tolist(), strict=True)
        ]
        floors = filled(rows, floor, 0.0)
        total = np.bincount(above, weights=floors[child], minlength=len(rows))
        family = put.copy()
        family[above[put[child]]] = True
        for a in np.flatnonzero(family & (total > quota)).tolist():
            lines.append(
                f"group {group[a].as_py()!r}: {floor}: the floors of its children add up to "
                f"{total[a]:g}, more than its quota of {quota[a]:g}"
            )
    return lines


def _window_warnings(rows: pa.Table, timeframe_s: FloatArray | None) -> Iterator[str]:
    if timeframe_s is None:
        return
    for row, place in np.argwhere(timeframe_s == 1).tolist():
        dimension = DIMENSIONS[place]
        kept = windows_kept(rows["throttle"][row].as_py(), dimension)
        if kept is not None:
            yield (
                f"group {rows['group'][row].as_py()!r}: {dimension}: is measured over "
                f"{kept.samples} x {kept.window_s:g} s as before: a quota per second sets no "
                "windows"
            )


def unreported_names(rows: pa.Table, named: int | None = None) -> Iterator[str]:
    """A line for each group and broker that no report will have, of the first ``named`` rows."""
    named = len(rows) if named is None else named
    yield from name_warnings(rows["group"].combine_chunks(), np.arange(len(rows)) < named)
    put = rows.slice(0, named)
    for group, terms in zip(put["group"].to_pylist(), put["brokers"].to_pylist(), strict=True):
        yield from broker_warnings(group, terms)
