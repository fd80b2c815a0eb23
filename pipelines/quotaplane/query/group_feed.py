"""The change feed of ``resource_groups`` as tables, the same for both engines.

Spark takes the time of a commit from its file, which a copy of the history changes, and has no
author of a deletion. Both are in the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.groups.hierarchy import ancestors
from quotaplane.groups.terms_by_broker import BrokerTerms, read_terms
from quotaplane.history.commits import WHY
from quotaplane.history.tables import RESOURCE_GROUPS, TIMESTAMP
from quotaplane.registry.change_feed import ChangeFeed, read_feed
from quotaplane.settings import History

_CHANGES: Final = "resource_group_changes"
_FIELDS: Final = [f for f in RESOURCE_GROUPS.schema if not f.name.startswith("updated_")]

CHANGES_SCHEMA: Final = pa.schema(
    [
        pa.field("version", pa.int64()),
        pa.field("changed_at", TIMESTAMP),
        pa.field("changed_by", pa.string()),
        pa.field("why", pa.string()),
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
    """The change feed of a history, kept: each time only newer changes are read."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._read: ChangeFeed | None = None
        self._made: dict[str, pa.Table] = {}

    def tables(self, names: Collection[str], until: datetime | None = None) -> dict[str, pa.Table]:
        """Those of the tables ``FEEDS`` with these names.

        Args:
            names: of views; other names are passed over.
            until: later changes are left out.

        Raises:
            HistoryError: the table is missing, or its log or its changes can't be read.
        """
        wanted = FEEDS.keys() & names
        if not wanted:
            return {}
        feed, made = read_feed(self._history, self._read), self._made
        if feed is not self._read:
            made = {_CHANGES: group_changes(feed)}
            self._read, self._made = feed, made
        if until is not None:
            changes = made[_CHANGES]
            then = pc.less_equal(changes["changed_at"], pa.scalar(until, TIMESTAMP))
            made = {_CHANGES: changes.filter(then)}
        for name in wanted - made.keys():
            made[name] = FEEDS[name](made[_CHANGES])
        return {name: made[name] for name in wanted}


def group_changes(feed: ChangeFeed) -> pa.Table:
    """All changes of groups as far back as the log of the table goes: see ``CHANGES_SCHEMA``."""
    rows, log = feed.rows, feed.log.values()
    index = pc.index_in(
        rows["_commit_version"], value_set=pa.array([e["version"] for e in log], pa.int64())
    ).combine_chunks()

    def of_commit(key: str, kind: pa.DataType) -> pa.Array:
        return pa.array([entry.get(key) for entry in log], kind).take(index)

    columns = {
        "version": rows["_commit_version"],
        "changed_at": of_commit("timestamp", pa.timestamp("ms", tz="UTC")),
        "changed_by": pc.coalesce(of_commit("userName", pa.string()), rows["updated_by"]),
        "why": of_commit(WHY, pa.string()),
        "change": rows["_change_type"],
        **{name: rows[name] for name in rows.column_names if name in CHANGES_SCHEMA.names},
    }
    names = CHANGES_SCHEMA.names
    return pa.table([columns[name] for name in names], names).cast(CHANGES_SCHEMA)


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
    _CHANGES: lambda changes: changes,
    "group_tree": group_tree,
    "broker_terms": broker_terms,
}
"""Views that are made of all changes of groups, by name."""


def _floors(terms: BrokerTerms) -> list[Any]:
    rates: dict[str, Any] = terms.model_dump()["floor"]
    return list(rates.values())
