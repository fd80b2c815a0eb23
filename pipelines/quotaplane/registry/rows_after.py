"""The rows of groups after a put: checks the given values and merges them with the rows. Pure.

Values that are allowed but strange are warned of, in a line each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import filled
from quotaplane.errors import GroupIdTakenError, InputError
from quotaplane.groups.flaws import option_flaws, quota_flaws, refuse
from quotaplane.groups.hierarchy import parents_of
from quotaplane.groups.ids import ids_of
from quotaplane.groups.name_warnings import broker_warnings, name_warnings
from quotaplane.groups.names import check_name
from quotaplane.groups.policy_options import DEFAULTS, FLOOR_COLUMNS, POLICY_COLUMNS
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.model import DIMENSIONS, RATE_COLUMNS, SEPARATOR, BoolArray, FloatArray, IntArray
from quotaplane.registry.change_feed import GROUP
from quotaplane.registry.group_input import GivenGroups
from quotaplane.throttle.terms import measured_over, windows_kept

ROWS: Final = pa.schema(
    [f.with_name("group") if f.name == GROUP else f for f in RESOURCE_GROUPS.schema]
)
"""Schema of rows without ``parent``."""


class RowsAfter(NamedTuple):
    """The rows of n groups before and after a put."""

    before: pa.Table
    """``group`` is null if there was no such group."""
    rows: pa.Table
    changed: BoolArray
    """(n,) whether the group is new or differs."""


def checked(given: GivenGroups) -> GivenGroups:
    """Check groups; returns them with the policy in the types of ``POLICY_COLUMNS``.

    Raises:
        InputError: a name, a quota or a value of the policy is wrong, or a group is given twice;
            names it.
    """
    names = [check_name(group) for group in given.names]
    if len(set(names)) != len(names):
        seen: set[str] = set()
        twice = next(n for n in names if n in seen or seen.add(n))  # type: ignore[func-returns-value]
        raise InputError(f"group {twice!r} is given twice")
    wanted = len(names), len(RATE_COLUMNS)
    if given.quotas.shape != wanted:
        raise InputError(f"quotas must have shape {wanted}, not {given.quotas.shape}")
    refuse(names, quota_flaws(given.quotas))
    policy = None if given.policy is None else _checked_policy(names, given.policy)
    return given._replace(names=names, policy=policy)


def _checked_policy(names: Sequence[str], policy: pa.Table) -> pa.Table:
    if len(policy) != len(names):
        raise InputError(f"policy must have {len(names)} rows, not {len(policy)}")
    for column in policy.column_names:
        if column not in POLICY_COLUMNS:
            raise InputError(f"policy: {column}: unknown key")
        values = policy[column].cast(POLICY_COLUMNS[column]).combine_chunks()
        policy = policy.set_column(policy.column_names.index(column), column, values)
    refuse(names, option_flaws(policy))
    return policy


def rows_after(current: pa.Table, given: GivenGroups, by: str, now: datetime) -> RowsAfter:
    """The rows of checked groups before and after they are put among the ``current`` ones.

    Raises:
        GroupIdTakenError: a new name has the id of another group.
    """
    group = pa.array(given.names, pa.string())
    place = pc.index_in(group, value_set=current["group"].combine_chunks())
    known = np.asarray(place.is_valid())
    if not known.all():
        new_names = [name for name, there in zip(given.names, known, strict=True) if not there]
        for name, other in collisions(current, new_names).items():
            raise GroupIdTakenError(
                f"group {name!r}: has the same id as {other!r}; choose another name"
            )
    before = current.take(place)
    old = np.column_stack([filled(before, name, np.inf) for name in RATE_COLUMNS])
    old[~known] = np.inf
    new = np.where(np.isnan(given.quotas), old, given.quotas)
    policies, otherwise = policy_after(before, given)
    changed: BoolArray = ~known | (new != old).any(axis=1) | otherwise
    put_at = pa.scalar(now, ROWS.field("updated_at").type)
    mask = pa.array(changed)
    rows = [
        group,
        *(pa.array(column, mask=np.isinf(column)) for column in new.T),
        *policies,
        pc.if_else(mask, put_at, before["updated_at"]),
        pc.if_else(mask, by, before["updated_by"]),
    ]
    return RowsAfter(before, pa.table(rows, schema=ROWS), changed)


def policy_after(before: pa.Table, given: GivenGroups) -> tuple[list[pa.Array], BoolArray]:
    """The columns of ``POLICY_COLUMNS`` of n groups after a put, and (n,) whether it changed them.

    A null in the given policy keeps the value in ``before``; a default becomes null. Timeframes set
    windows in the new ``throttle``.
    """
    policy = given.policy
    changed = np.zeros(len(before), bool)
    columns = []
    for name, kind in POLICY_COLUMNS.items():
        old = before[name].combine_chunks()
        default = pa.scalar(DEFAULTS[name], kind)
        timeframes = given.timeframe_s if name == "throttle" else None
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


def collisions(current: pa.Table, new: Sequence[str]) -> dict[str, str]:
    """The ``new`` names whose id another group has, with that group.

    A group in the table keeps its id; of several new ones, the first gets it. Two groups with one
    id would silently share a quota; among a million groups, the odds for 63 bits are about 1 in 20
    million.
    """
    if not new:
        return {}
    names = [*current["group"].to_pylist(), *new]
    _, first, inverse = np.unique(ids_of(names), return_index=True, return_inverse=True)
    holders = (names[at] for at in first[inverse[-len(new) :]].tolist())
    return {name: holder for name, holder in zip(new, holders, strict=True) if holder != name}


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
