"""The change feed of ``resource_groups`` as tables, the same for both engines.

Spark takes the time of a commit from its file, which a copy of the history changes, and does not
know who deleted a row. Both are in the commit.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.read import read_changes
from quotaplane.errors import HistoryError
from quotaplane.groups.hierarchy import ancestors
from quotaplane.groups.terms_by_broker import BrokerTerms, read_terms
from quotaplane.history.store import one_line, open_table
from quotaplane.history.tables import RESOURCE_GROUPS, TIMESTAMP
from quotaplane.settings import History

_FIELDS: Final = [f for f in RESOURCE_GROUPS.schema if not f.name.startswith("updated_")]

CHANGES_SCHEMA: Final = pa.schema(
    [
        pa.field("version", pa.int64()),
        pa.field("changed_at", TIMESTAMP),
        pa.field("changed_by", pa.string()),
        pa.field("change", pa.string()),
        *(pa.field(field.name, field.type) for field in _FIELDS),
    ]
)
"""A row of a group before or after a change; ``change`` is insert, update_preimage (before),
update_postimage (after) or delete."""

TERMS_SCHEMA: Final = pa.schema(
    [
        pa.field("resource_group", pa.string()),
        pa.field("broker", pa.string()),
        pa.field("weight", pa.float64()),
        pa.field("favours", pa.bool_()),
    ]
)


class GroupFeed:
    """The changes of one history's groups; each is read once. Threads may share it."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._lock = threading.Lock()
        self._read: tuple[str, int, pa.Table] | None = None
        """The table's id, the newest version that was read, all changes up to it."""

    def changes(self, until: datetime | None = None) -> pa.Table:
        """All changes as far back as the table's log goes, or went when they were first read.

        Args:
            until: later changes are left out.

        Returns:
            Rows as of ``CHANGES_SCHEMA``.

        Raises:
            HistoryError: the table is missing, or its log or its changes can't be read.
        """
        with self._lock:
            changes = self._newest()
        if until is not None:
            is_early = pc.less_equal(changes["changed_at"], pa.scalar(until, TIMESTAMP))
            changes = changes.filter(is_early)
        return changes

    def _newest(self) -> pa.Table:
        table = open_table(self._history, RESOURCE_GROUPS.name)
        identity, version = str(table.metadata().id), table.version()
        before = CHANGES_SCHEMA.empty_table()
        log_length = None
        if self._read is not None and self._read[0] == identity and self._read[1] <= version:
            log_length, before = version - self._read[1], self._read[2]
        if log_length != 0:
            try:
                before = pa.concat_tables([before, _changes(table, log_length)])
            except (DeltaError, OSError, ValueError) as error:  # ValueError: all of pyarrow's
                raise HistoryError(f"history table resource_groups: {one_line(error)}") from None
            self._read = (identity, version, before)
        return before


def feed_tables(
    feed: GroupFeed, names: Collection[str], until: datetime | None = None
) -> dict[str, pa.Table]:
    """Those of the tables with these names of views; for ``until`` see ``GroupFeed.changes``."""
    if not names:
        return {}
    changes = feed.changes(until)
    return {name: make(changes) for name, make in FEEDS.items() if name in names}


def _changes(table: DeltaTable, log_length: int | None) -> pa.Table:
    """The changes of the newest versions, None: of all that the log has."""
    log = [(e["version"], e["timestamp"], e.get("userName")) for e in table.history(log_length)]
    feed = read_changes(table, since=min(version for version, _, _ in log))
    versions, times_ms, users = map(list, zip(*log, strict=True))
    commit = pc.index_in(feed["_commit_version"], value_set=pa.array(versions, pa.int64()))
    at = pa.array(times_ms, pa.int64()).cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
    columns = {
        "version": feed["_commit_version"],
        "changed_at": at.take(commit.combine_chunks()),
        "changed_by": pc.coalesce(
            pa.array(users, pa.string()).take(commit.combine_chunks()), feed["updated_by"]
        ),
        "change": feed["_change_type"],
        **{name: feed[name] for name in feed.column_names if name in CHANGES_SCHEMA.names},
    }
    for field in CHANGES_SCHEMA:  # a table of an earlier version
        if field.name not in columns:
            columns[field.name] = pa.nulls(len(feed), field.type)
    changes = pa.table([columns[name] for name in CHANGES_SCHEMA.names], CHANGES_SCHEMA.names)
    return changes.cast(CHANGES_SCHEMA)


def group_tree(changes: pa.Table) -> pa.Table:
    """Every group that there ever was, with itself and the groups above it.

    >>> group_tree(pa.table({"resource_group": ["a", "a::b"]})).to_pylist()[-1]
    {'resource_group': 'a::b', 'ancestor': 'a'}
    """
    names = pc.unique(changes["resource_group"]).to_pylist()
    known = set(names)
    pairs = [(n, above) for n in names for above in (n, *ancestors(n)) if above in known]
    groups, above = zip(*pairs, strict=True) if pairs else ((), ())
    return pa.table(
        {"resource_group": pa.array(groups, pa.string()), "ancestor": pa.array(above, pa.string())}
    )


def broker_terms(changes: pa.Table) -> pa.Table:
    """The newest terms of single brokers: a row per group and broker ("*": all others).

    ``favours``: the terms have a floor, or a priority other than 0, so that the brokers of the
    group are not to have shares by weight alone.

    >>> text = '{"b1": {"weight": 2.0}, "*": {"priority": 1}}'
    >>> rows = {"version": [1], "change": ["insert"], "resource_group": ["g"], "brokers": [text]}
    >>> [tuple(row.values()) for row in broker_terms(pa.table(rows)).to_pylist()]
    [('g', 'b1', 2.0, False), ('g', '*', 1.0, True)]
    """
    newest = changes.group_by("resource_group").aggregate([("version", "max")])
    newest = newest.rename_columns({"version_max": "version"})
    is_new = pc.is_in(changes["change"], value_set=pa.array(["insert", "update_postimage"]))
    given = changes.filter(pc.and_(is_new, pc.is_valid(changes["brokers"])))
    given = given.select(["resource_group", "version", "brokers"]).join(
        newest, ["resource_group", "version"], join_type="inner", use_threads=False
    )
    rows = [
        (group, broker, terms.weight or 1.0, bool(terms.priority) or any(_floors(terms)))
        for group, text in zip(
            given["resource_group"].to_pylist(), given["brokers"].to_pylist(), strict=True
        )
        for broker, terms in read_terms(text).items()
    ]
    names = [field.name for field in TERMS_SCHEMA]
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], TERMS_SCHEMA)


FEEDS: Final[Mapping[str, Callable[[pa.Table], pa.Table]]] = {
    "resource_group_changes": lambda changes: changes,
    "group_tree": group_tree,
    "broker_terms": broker_terms,
}
"""Views that are made of all changes of groups, by name."""


def _floors(terms: BrokerTerms) -> list[Any]:
    rates: dict[str, Any] = terms.model_dump()["floor"]
    return list(rates.values())
