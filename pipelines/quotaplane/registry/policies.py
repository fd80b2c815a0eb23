"""The policy columns of ``resource_groups``: checks, changes and warnings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.errors import InputError
from quotaplane.groups.flaws import option_flaws, refuse
from quotaplane.groups.hierarchy import parents_of
from quotaplane.groups.name_doubts import broker_doubts, name_doubts
from quotaplane.groups.policy_options import DEFAULTS, FLOOR_COLUMNS, POLICY_COLUMNS
from quotaplane.model import (
    DIMENSIONS,
    RATE_COLUMNS,
    SEPARATOR,
    BoolArray,
    FloatArray,
    IntArray,
)
from quotaplane.throttle.terms import measured_over, windows_kept

_MOST_WARNINGS: Final = 10


def check_policy(names: Sequence[str], policy: pa.Table) -> pa.Table:
    """Check a policy of n groups; returns it in the types of ``POLICY_COLUMNS``.

    Raises:
        InputError: the number of rows is not n, a column is unknown, or a value is out of its
            range; names the group and the column.
    """
    if len(policy) != len(names):
        raise InputError(f"policy must have {len(names)} rows, not {len(policy)}")
    for column in policy.column_names:
        if column not in POLICY_COLUMNS:
            raise InputError(f"policy: {column}: unknown key")
        values = policy[column].cast(POLICY_COLUMNS[column]).combine_chunks()
        policy = policy.set_column(policy.column_names.index(column), column, values)
    refuse(names, option_flaws(policy))
    return policy


def policy_after(
    before: pa.Table, policy: pa.Table | None, timeframe_s: FloatArray | None = None
) -> tuple[list[pa.Array], BoolArray]:
    """The columns of ``POLICY_COLUMNS`` of n groups after a put, and (n,) whether it changed them.

    A null in ``policy`` keeps the value in ``before``; a default becomes null. ``timeframe_s``, as
    ``put_groups`` takes it, sets windows in the new ``throttle``.
    """
    changed = np.zeros(len(before), bool)
    columns = []
    for name, kind in POLICY_COLUMNS.items():
        old = before[name].combine_chunks()
        default = pa.scalar(DEFAULTS[name], kind)
        timeframes = timeframe_s if name == "throttle" else None
        if policy is not None and name in policy.column_names:
            value = pc.coalesce(policy[name].combine_chunks(), old, default)
        elif timeframes is not None:
            value = pc.coalesce(old, default)
        else:
            columns.append(old)
            continue
        if timeframes is not None:
            value = _measured_over(value, timeframes)
        columns.append(pc.if_else(pc.equal(value, default), pa.scalar(None, kind), value))
        changed |= pc.not_equal(value, pc.coalesce(old, default)).to_numpy(False)
    return columns, changed


def _measured_over(throttle: pa.Array, timeframe_s: FloatArray) -> pa.Array:
    texts = throttle.to_pylist()
    for row in np.flatnonzero(~np.isnan(timeframe_s).all(axis=1)).tolist():
        given = zip(DIMENSIONS, timeframe_s[row].tolist(), strict=True)
        texts[row] = measured_over(texts[row], {d: int(s) for d, s in given if not np.isnan(s)})
    return pa.array(texts, throttle.type)


def with_parents(rows: pa.Table, parent: IntArray | None = None) -> pa.Table:
    """All groups with one more column, ``parent``: the name of the group above, null for none.

    ``parent`` (groups,): the indexes of the parents, if they are known; None: they are computed.
    """
    names = rows["group"].combine_chunks()
    if parent is None and not pc.any(pc.match_substring(names, SEPARATOR), min_count=0).as_py():
        # Also because pyarrow imports pandas, which takes longer than all the rest, to make arrays.
        return rows.append_column("parent", pa.nulls(len(rows), pa.string()))
    parent = parents_of(names) if parent is None else parent
    above = names.take(pa.array(parent, pa.int64(), mask=parent < 0))
    return rows.append_column("parent", above)


def doubts(
    rows: pa.Table,
    parent: IntArray,
    names: Sequence[str],
    timeframe_s: FloatArray | None = None,
) -> Iterator[str]:
    """Warnings about the named groups, a line each; ``rows`` has all groups.

    They are about a child's quota above its parent's (the parent's still holds), floors that add up
    to more than there is to guarantee (they are then cut), a quota given per second while other
    windows are kept, and a group or broker with a name that no report has: often a mistake, never
    an error.

    The first n rows are those of ``names``; ``timeframe_s`` is as ``put_groups`` takes it.
    """
    lines = [
        *_family_doubts(rows, parent, names),
        *_window_doubts(rows, timeframe_s),
        *doubtful_names(rows, len(names)),
    ]
    yield from lines[:_MOST_WARNINGS]
    if len(lines) > _MOST_WARNINGS:
        yield f"and {len(lines) - _MOST_WARNINGS} more"


def _family_doubts(rows: pa.Table, parent: IntArray, names: Sequence[str]) -> list[str]:
    group = rows["group"].combine_chunks()
    child = np.flatnonzero(parent >= 0)
    if not len(child):
        return []
    above = parent[child]
    put = np.asarray(pc.is_in(group, value_set=pa.array(names, pa.string())).to_numpy(False))
    lines: list[str] = []
    for rate, floor in zip(RATE_COLUMNS, FLOOR_COLUMNS, strict=True):
        quota = _filled(rows, rate, np.inf)
        concerned = put[child] | put[above]
        over = concerned & np.isfinite(quota[child]) & (quota[child] > quota[above])
        lines += [
            f"group {group[c].as_py()!r}: {rate}: {quota[c]:g} is more than the {quota[a]:g} of "
            f"its parent {group[a].as_py()!r}"
            for c, a in zip(child[over].tolist(), above[over].tolist(), strict=True)
        ]
        floors = _filled(rows, floor, 0.0)
        total = np.bincount(above, weights=floors[child], minlength=len(rows))
        family = put.copy()
        family[above[put[child]]] = True
        for a in np.flatnonzero(family & (total > quota)).tolist():
            lines.append(
                f"group {group[a].as_py()!r}: {floor}: the floors of its children add up to "
                f"{total[a]:g}, more than its quota of {quota[a]:g}"
            )
    return lines


def _window_doubts(rows: pa.Table, timeframe_s: FloatArray | None) -> Iterator[str]:
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


def doubtful_names(rows: pa.Table, named: int | None = None) -> Iterator[str]:
    """A line for each group and broker that no report will have, of the first ``named`` rows."""
    named = len(rows) if named is None else named
    yield from name_doubts(rows["group"].combine_chunks(), np.arange(len(rows)) < named)
    put = rows.slice(0, named)
    for group, terms in zip(put["group"].to_pylist(), put["brokers"].to_pylist(), strict=True):
        yield from broker_doubts(group, terms)


def _filled(rows: pa.Table, name: str, default: float) -> FloatArray:
    filled = rows[name].fill_null(default).combine_chunks()
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.float64)
