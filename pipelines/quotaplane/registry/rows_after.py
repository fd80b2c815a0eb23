"""The rows of groups after a put: checks the given values and merges them with the rows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
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
from quotaplane.groups.names import check_name
from quotaplane.groups.policy_options import DEFAULTS, POLICY_COLUMNS
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.model import DIMENSIONS, RATE_COLUMNS, SEPARATOR, BoolArray, FloatArray, IntArray
from quotaplane.registry.change_feed import GROUP
from quotaplane.registry.group_input import GivenGroups
from quotaplane.throttle.terms import measured_over

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
