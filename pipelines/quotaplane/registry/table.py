"""Reads and changes the quotas (table ``resource_groups``): no JVM, safe while the job runs.

The table's change feed carries changes to the job, and keeps their authors and reasons.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.log import commit_time
from quotaplane.deltalog.read import live_paths, read_rows
from quotaplane.errors import (
    HistoryError,
    TableChangedError,
    UnknownGroupError,
)
from quotaplane.groups.hierarchy import ancestors, parents_of
from quotaplane.groups.names import refuse_copies
from quotaplane.history.commits import merging, optimistically
from quotaplane.history.store import ensure_history, one_line, open_table, refuse_damage
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.model import BoolArray, FloatArray
from quotaplane.registry.change_feed import GROUP
from quotaplane.registry.group_input import GivenGroups
from quotaplane.registry.rows_after import ROWS, checked, rows_after, warnings_about, with_parents
from quotaplane.settings import History

_DOOMED: Final = "doomed"
"""Column of a MERGE's source: the row is deleted."""


def _ignore(_: object) -> None:
    pass


def _nobody(_: pa.Table) -> Sequence[str]:
    return ()


class GroupsPut(NamedTuple):
    """A change of n groups that was made, or would be made (dry run)."""

    before: pa.Table
    """(n,) rows before the change, in the form of ``list_groups`` without ``parent``; ``group`` is
    null if there was no such group."""
    rows: pa.Table
    """(n,) rows after the change, in the form of ``list_groups``."""
    changed: BoolArray
    """(n,) whether the group is new or differs."""
    version: int
    """The table's version with this change."""
    deleted: pa.Table
    """Rows of the groups deleted in the same commit, by name, with the table's columns."""


def put_groups(
    history: History,
    groups: Sequence[str],
    quotas: FloatArray,
    by: str,
    *,
    policy: pa.Table | None = None,
    timeframe_s: FloatArray | None = None,
    **how: Any,
) -> pa.Table:
    """Put rows of another table, or earlier rows of this one; returns the rows after the put.

    ``how`` has further arguments of ``change_groups``.
    """
    given = GivenGroups(list(groups), quotas, policy, timeframe_s)
    return change_groups(history, given, by, may_be_copies=True, **how).rows


def change_groups(
    history: History,
    given: GivenGroups,
    by: str,
    *,
    why: str | None = None,
    at_version: int | None = None,
    check: Callable[[pa.Table], None] | None = None,
    delete: Callable[[pa.Table], Sequence[str]] = _nobody,
    dry_run: bool = False,
    ready: Callable[[History], None] = ensure_history,
    warn: Callable[[str], None] = _ignore,
    sleep: Callable[[float], None] = time.sleep,
    may_be_copies: bool = False,
) -> GroupsPut:
    """Create groups or change their quotas and policies, all of them or (on an error) none.

    Args:
        history: where the tables are.
        given: the quotas and policies of n different groups.
        by: the author; kept in the row and in the table's log.
        why: the reason, for the table's log.
        at_version: nothing is done unless this is still the table's version (``read_groups``).
        check: takes all rows right before the change, and raises to prevent it; called again after
            a conflict with another writer.
        delete: takes the same, and returns the groups to delete in the same commit, none of them
            among the given ones.
        dry_run: only compute the change; the table must exist.
        ready: called once the arguments are checked: creates the tables if there are none, or
            raises.
        warn: takes a line for each value that is allowed but strange, such as a child's quota above
            its parent's.
        sleep: waits between attempts.
        may_be_copies: see ``refuse_copies``; the change repeats rows that existed before.

    Returns:
        The rows before and after, in the order of the given groups. Unchanged rows keep their
        ``updated_at``; if no row changes, nothing is written.

    Raises:
        InputError: a name, a quota or a value of the policy is wrong; names it.
        GroupIdTakenError: a new name has the id of another group.
        CopyOfQuotaError: a group is the enforcer's.
        TableChangedError: the table is not at ``at_version`` any more.
        HistoryError: the table can't be read or written.
    """
    given = checked(given)
    if not may_be_copies:
        refuse_copies(given.names)
    ready(history)

    def once(table: DeltaTable) -> GroupsPut:
        _check_version(table, at_version)
        current = _read(table)
        if check is not None:
            check(current)
        before, rows, changed = rows_after(current, given, by, datetime.now(timezone.utc))
        doomed = pc.is_in(current["group"], value_set=pa.array(delete(current), pa.string()))
        deleted = current.filter(doomed)
        if not dry_run and (changed.any() or len(deleted)):
            _merge(table, rows.filter(pa.array(changed)), deleted, by, why)
        put = pc.is_in(current["group"], value_set=rows["group"].combine_chunks())
        others = current.filter(pc.invert(pc.or_(put, doomed)))
        now = pa.concat_tables([rows, others]).combine_chunks()
        parent = parents_of(now["group"].combine_chunks())
        for line in warnings_about(now, parent, given):
            warn(line)
        after = with_parents(now, parent).slice(0, len(rows))
        return GroupsPut(before, after, changed, table.version(), deleted.sort_by("group"))

    if dry_run:
        return once(open_table(history, RESOURCE_GROUPS.name))
    return optimistically(history, RESOURCE_GROUPS, once, sleep)


def delete_groups(
    history: History,
    groups: Sequence[str],
    by: str,
    *,
    why: str | None = None,
    at_version: int | None = None,
    check: Callable[[pa.Table], None] = _ignore,
    dry_run: bool = False,
) -> pa.Table:
    """Delete groups, all of them or none; the arguments are as in ``change_groups``.

    Returns:
        The deleted rows, by name, with the columns of the table.

    Raises:
        UnknownGroupError: there is no such group; names the first one.
        TableChangedError: the table is not at ``at_version`` any more.
        HistoryError: the table can't be read or written.
    """
    doomed = pa.table({"group": pa.array(list(dict.fromkeys(groups)), pa.string())})

    def once(table: DeltaTable) -> pa.Table:
        _check_version(table, at_version)
        current = _read(table)
        check(current)
        there = pc.is_in(doomed["group"], value_set=current["group"].combine_chunks())
        if not pc.all(there, min_count=0).as_py():
            missing = doomed.filter(pc.invert(there))["group"][0].as_py()
            raise UnknownGroupError(f"group {missing!r} does not exist")
        if not dry_run:
            merging(table, _stored(doomed), (GROUP,), by, why).when_matched_delete().execute()
        were = pc.is_in(current["group"], value_set=doomed["group"].combine_chunks())
        return current.filter(were).sort_by("group")

    if dry_run:
        return once(open_table(history, RESOURCE_GROUPS.name))
    return optimistically(history, RESOURCE_GROUPS, once)


class GroupsRead(NamedTuple):
    """The table at a version."""

    rows: pa.Table
    """Rows in the form of ``list_groups``."""
    version: int


def read_groups(history: History) -> GroupsRead:
    """All groups, and the version at which they were read, for a change that depends on them.

    Raises:
        HistoryError: the table is missing or can't be read.
    """
    table = open_table(history, RESOURCE_GROUPS.name)
    return GroupsRead(with_parents(_read(table).sort_by("group")), table.version())


def list_groups(history: History) -> pa.Table:
    """All groups, by name, with the columns of the table and ``parent``.

    A null quota is unlimited; null in the policy stands for the value in
    ``policy_options.DEFAULTS``.

    Raises:
        HistoryError: the table is missing or can't be read.
    """
    return read_groups(history).rows


def get_group(history: History, group: str) -> dict[str, Any]:
    """One group's row and its ``parent``; nulls (None) as in ``list_groups``.

    Raises:
        UnknownGroupError: there is no such group.
        HistoryError: the table is missing or can't be read.
    """
    found = _read(open_table(history, RESOURCE_GROUPS.name), [group, *ancestors(group)])
    rows = {row["group"]: row for row in found.to_pylist()}
    if group not in rows:
        raise UnknownGroupError(f"group {group!r} does not exist")
    return {**rows[group], "parent": next(filter(rows.get, ancestors(group)), None)}


def groups_if_put(history: History, given: GivenGroups, at: datetime) -> pa.Table:
    """The rows that the given groups would have if they were put into the table at a time.

    For a time before the log begins, its first version counts.

    Raises:
        InputError: a name, a quota or a value of the policy is wrong.
        HistoryError: the table is missing, or can't be read at that time.
    """
    table = open_table(history, RESOURCE_GROUPS.name)
    try:
        log = {int(e["version"]): commit_time(e) for e in table.history()}
        versions = [version for version, made_at in log.items() if made_at <= at]
        table.load_as_version(max(versions, default=min(log)))
        paths = live_paths(table)
    except (DeltaError, OSError, ValueError) as error:
        raise HistoryError(f"history table resource_groups: {one_line(error)}") from None
    refuse_damage(history, RESOURCE_GROUPS.name, paths)
    return rows_if_put(_read(table), given)


def rows_if_put(current: pa.Table, given: GivenGroups) -> pa.Table:
    """The rows that the given groups would have if they were put among the ``current`` ones.

    Raises:
        InputError: a name, a quota or a value of the policy is wrong.
    """
    return rows_after(current, checked(given), "", datetime.now(timezone.utc)).rows


def _read(table: DeltaTable, groups: Sequence[str] | None = None) -> pa.Table:
    only = None
    if groups is not None:
        listed = ", ".join("'" + group.replace("'", "''") + "'" for group in groups)
        only = f"{GROUP} IN ({listed})"
    try:
        rows = read_rows(table, predicate=only)
        rows = rows.select(RESOURCE_GROUPS.schema.names).cast(RESOURCE_GROUPS.schema)
        return rows.rename_columns(ROWS.names)
    except (DeltaError, OSError, ValueError) as error:  # ValueError: all of pyarrow's
        raise HistoryError(f"history table resource_groups: {one_line(error)}") from None


def _merge(table: DeltaTable, put: pa.Table, deleted: pa.Table, by: str, why: str | None) -> None:
    """Write rows and delete others, in one commit."""
    if not len(deleted):
        merge = merging(table, _stored(put), (GROUP,), by, why)
        merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return
    parts = [
        rows.append_column(_DOOMED, pa.array([is_doomed] * len(rows), pa.bool_()))
        for rows, is_doomed in ((_stored(put), False), (_stored(deleted), True))
    ]
    merge = merging(table, pa.concat_tables(parts), (GROUP,), by, why)
    stays = f"NOT s.{_DOOMED}"
    merge.when_matched_delete(f"s.{_DOOMED}")
    merge.when_matched_update_all(stays, except_cols=[_DOOMED])
    merge.when_not_matched_insert_all(stays, except_cols=[_DOOMED]).execute()


def _stored(rows: pa.Table) -> pa.Table:
    """Rows with the table's column names."""
    return rows.rename_columns([GROUP if name == "group" else name for name in rows.column_names])


def _check_version(table: DeltaTable, wanted: int | None) -> None:
    if wanted is not None and table.version() != wanted:
        raise TableChangedError(
            f"history table {RESOURCE_GROUPS.name}: changed by somebody else meanwhile"
        )
