"""The table of attachments: what is attached to which group, see ``groups.attachable``.

With ``cluster:`` in the settings the cluster keeps those of tenants and namespaces
(docs/adr/0015-rest.md), and the table has none of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable

from quotaplane.deltalog.read import read_rows
from quotaplane.errors import GroupInUseError
from quotaplane.groups.attachable import (
    Kind,
    attached_to_themselves,
    check_attachable,
    scope_names,
    wire_name,
)
from quotaplane.groups.names import refuse_copies
from quotaplane.history.cached_table import CachedTable
from quotaplane.history.commits import merging, optimistically
from quotaplane.history.store import ensure_table, only_one, open_table, reading
from quotaplane.history.tables import ATTACHMENTS, RESOURCE_GROUPS
from quotaplane.registry.table import delete_groups, get_group
from quotaplane.settings import History
from quotaplane.texts import first_few

_SHOWN: Final = 3
_GROUP: Final = ("resource_group",)
_ATTACHED: Final = ("kind", "name", "resource_group")
_ORDER: Final = [("kind", "ascending"), ("name", "ascending")]
LOCK: Final = ".attachments.lock"
"""Held while a group is attached or deleted: the two tables have no common commit."""


class Attached(NamedTuple):
    """A change of an attachment."""

    before: str | None
    """The group that was attached, None for none."""
    after: str | None


def list_attachments(history: History) -> pa.Table:
    """All attachments, with the columns of the table, by kind and name.

    Raises:
        HistoryError: the table can't be read.
    """
    return _read(open_table(history, ATTACHMENTS.name)).sort_by(_ORDER)


def attach(
    history: History,
    kind: Kind,
    name: str,
    group: str | None,
    by: str,
    *,
    why: str | None = None,
) -> Attached:
    """Attach this to a group in place of the one that it has; None detaches it.

    Raises:
        InputError: the name can't be one.
        UnknownGroupError: there is no such group.
        HistoryError: the tables can't be read or written.
    """
    check_attachable(kind, name)
    now = datetime.now(timezone.utc)

    def once(table: DeltaTable) -> Attached:
        before = group_of(_read(table), kind, name)
        if before == group:
            return Attached(before, group)
        row = {"kind": kind, "name": name, "resource_group": group or "", "updated_at": now}
        rows = pa.Table.from_pylist([{**row, "updated_by": by}], ATTACHMENTS.schema)
        merge = merging(table, rows, ("kind", "name"), by, why)
        if group is None:
            merge.when_matched_delete().execute()
        else:
            merge.when_matched_update_all().when_not_matched_insert_all().execute()
        return Attached(before, group)

    with only_one(history, LOCK):
        if group is not None:
            get_group(history, group)
        ensure_table(history, ATTACHMENTS)
        return optimistically(history, ATTACHMENTS, once)


def delete_unattached(
    history: History,
    groups: Sequence[str],
    by: str,
    *,
    why: str | None = None,
    check: Callable[[pa.Table], None] | None = None,
    dry_run: bool = False,
) -> pa.Table:
    """Delete groups as ``delete_groups`` does, unless something is attached to one of them.

    Raises:
        GroupInUseError: something is attached; names it. Nothing was deleted.
        CopyOfQuotaError: a group is the enforcer's.
        InputError, HistoryError: as ``delete_groups``.
    """
    refuse_copies(groups)
    with only_one(history, LOCK):
        check_unattached(history, groups)
        return delete_groups(
            history, groups, by, why=why, check=check or (lambda _: None), dry_run=dry_run
        )


def check_unattached(history: History, groups: Sequence[str]) -> None:
    """Check that nothing is attached to any of the groups; the caller holds ``LOCK``.

    Raises:
        GroupInUseError: something is attached; names it.
        HistoryError: the table can't be read.
    """
    attached = list_attachments(history)
    users = attached.filter(pc.is_in(attached["resource_group"], pa.array(groups, pa.string())))
    if len(users):
        group = users["resource_group"][0].as_py()
        raise GroupInUseError(f"group {group!r} is in use: {_listed(users, group)} attached")


class AttachmentsInForce:
    """All that is attached, by its name in messages; read only if a table has changed."""

    def __init__(self, history: History) -> None:
        names = (ATTACHMENTS.name, RESOURCE_GROUPS.name)
        self._tables = [CachedTable(history, name) for name in names]
        self._versions: list[int] = []
        self._scopes: pa.StringArray | None = None
        self._attached: pa.Table | None = None

    def changed(self) -> dict[str, str] | None:
        """Groups by name; None: nothing has changed since the last call.

        Also the groups that are attached to themselves, unless their scope is attached to another
        one.

        Raises:
            HistoryError: a table can't be read; the next call tries again.
        """
        with ThreadPoolExecutor(len(self._tables)) as side_by_side:
            attachments, groups = side_by_side.map(CachedTable.open, self._tables)
        versions = [attachments.version(), groups.version()]
        if versions == self._versions:
            return None
        scopes = scope_names(_columns(groups, RESOURCE_GROUPS.name, _GROUP)["resource_group"])
        attached = _columns(attachments, ATTACHMENTS.name, _ATTACHED).sort_by(_ORDER)
        before = self._scopes, self._attached
        self._versions, self._scopes, self._attached = versions, scopes, attached
        if (scopes, attached) == before:  # most changes of groups are of their quotas
            return None
        own = attached_to_themselves(scopes).to_pylist()
        kinds, names, users = (attached[name].to_pylist() for name in _ATTACHED)
        found = dict(zip(own, own, strict=True))
        found |= zip(map(wire_name, kinds, names), users, strict=True)
        return found


def _read(table: DeltaTable) -> pa.Table:
    return _columns(table, ATTACHMENTS.name, ATTACHMENTS.schema.names).cast(ATTACHMENTS.schema)


def _columns(table: DeltaTable, name: str, columns: Sequence[str]) -> pa.Table:
    with reading(name):
        return read_rows(table, columns)


def group_of(attachments: pa.Table, kind: Kind, name: str) -> str | None:
    """The group that this is attached to itself among ``attachments``; None for none."""
    mine = pc.and_(pc.equal(attachments["kind"], kind), pc.equal(attachments["name"], name))
    found = attachments.filter(mine)["resource_group"].to_pylist()
    return str(found[0]) if found else None


def _listed(users: pa.Table, group: str) -> str:
    users = users.filter(pc.equal(users["resource_group"], group))
    names = (f"{row['kind']} {row['name']}" for row in users.to_pylist())
    return f"{first_few(names, _SHOWN)} {'are' if len(users) > 1 else 'is'}"
