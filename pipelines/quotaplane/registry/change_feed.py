"""Changes of groups: author, time, reason, old and new values, from the table's change feed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.log import commit_time
from quotaplane.deltalog.read import read_changes
from quotaplane.errors import HistoryError
from quotaplane.history.commits import WHY
from quotaplane.history.store import one_line, open_table
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.settings import History

GROUP: Final = "resource_group"
"""The table's name of the column ``group`` of rows: ``group`` is a keyword of SQL."""

_HELD: Final = tuple(
    name
    for name in RESOURCE_GROUPS.schema.names
    if name != GROUP and not name.startswith("updated_")
)


class ChangeFeed(NamedTuple):
    """The changes of the table up to a version."""

    rows: pa.Table
    """The change feed, by version and group."""
    log: dict[int, dict[str, Any]]
    """The commits, by version."""
    version: int
    """The newest version."""


def read_feed(history: History, before: ChangeFeed | None = None) -> ChangeFeed:
    """All changes that the table's log still has; only those newer than ``before`` are read.

    Raises:
        HistoryError: the table is missing, or its log or its changes can't be read.
    """
    table = open_table(history, RESOURCE_GROUPS.name)
    newest = table.version()
    if before is not None and before.version > newest:  # the table was made anew
        before = None
    if before is not None and before.version == newest:
        return before
    try:
        new = newest - before.version if before is not None else None
        log = {int(entry["version"]): entry for entry in table.history(new)}
        for entry in log.values():
            commit_time(entry)  # one that is no time is said here
        since = min(log) if before is None else before.version + 1
        rows = read_changes(table, since=since, upto=newest)
    except (DeltaError, OSError, ValueError) as error:  # ValueError: all of pyarrow's
        raise HistoryError(f"history table resource_groups: {one_line(error)}") from None
    rows = rows.sort_by([("_commit_version", "ascending"), (GROUP, "ascending")])
    if before is not None:
        log = {**before.log, **log}
        rows = pa.concat_tables([before.rows, rows])
    return ChangeFeed(rows, log, newest)


def changes_in(rows: pa.Table, log: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Rows of a ``ChangeFeed`` in the form of ``group_changes``."""
    changes: dict[tuple[int, str], dict[str, Any]] = {}
    for row in rows.to_pylist():
        version, kind = row["_commit_version"], row["_change_type"]
        committed = log[version]
        at = commit_time(committed)
        by = committed.get("userName", row["updated_by"])
        change = changes.setdefault(
            (version, row[GROUP]),
            {
                "version": version,
                "at": at,
                "by": by,
                "why": committed.get(WHY),
                "group": row[GROUP],
                "from": None,
                "to": None,
            },
        )
        side = "from" if kind in ("update_preimage", "delete") else "to"
        change[side] = {name: row.get(name) for name in _HELD}
    return list(changes.values())


def group_changes(history: History, group: str | None = None) -> list[dict[str, Any]]:
    """The changes of groups, oldest first, as far back as the table's log goes.

    A change is ``{"version", "at", "by", "why", "group", "from", "to"}``: the table's version after
    the change, the time, the author, the reason (None: not given), the group, and its values before
    and after by rate and policy column, None as in ``list_groups``. ``from`` is None for a new
    group, ``to`` for a deleted one.

    Raises:
        HistoryError: the table is missing, or its log or its changes can't be read.
    """
    feed = read_feed(history)
    rows = feed.rows
    if group is not None:
        rows = rows.filter(pc.equal(rows[GROUP], group))
    return changes_in(rows, feed.log)
