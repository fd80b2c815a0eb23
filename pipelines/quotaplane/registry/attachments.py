"""Attachments of tenants and namespaces to groups, if no Pulsar cluster keeps them.

With ``cluster:`` in the settings the cluster keeps them (docs/adr/0015-rest.md), and the table
stays empty.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from typing import Final, Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.read import read_rows
from quotaplane.errors import GroupInUseError, HistoryError, InputError
from quotaplane.groups.names import refuse_copies
from quotaplane.history.commits import merging, optimistically
from quotaplane.history.store import (
    ensure_table,
    one_line,
    only_one,
    open_table,
)
from quotaplane.history.tables import ATTACHMENTS
from quotaplane.registry.table import delete_groups, get_group
from quotaplane.settings import History
from quotaplane.texts import first_few

Kind = Literal["tenant", "namespace"]
"""The kinds of things that use a group's quota."""

_NAME: Final = re.compile(r"[-=:.\w]+", re.ASCII)
_SHOWN: Final = 3
LOCK: Final = ".attachments.lock"
"""Held while a group is attached or deleted: the two tables have no common commit."""


class Attached(NamedTuple):
    """A change of an attachment."""

    before: str | None
    """The group that was attached, None for none."""
    after: str | None


def check_attachable(kind: Kind, name: str) -> str:
    """The name of a tenant, or of a namespace with its tenant, if it can be one.

    >>> check_attachable("namespace", "acme/orders")
    'acme/orders'

    Raises:
        InputError: Pulsar does not accept such a name.
    """
    parts = name.split("/")
    if len(parts) != (1 if kind == "tenant" else 2) or not all(map(_NAME.fullmatch, parts)):
        form = "NAME" if kind == "tenant" else "TENANT/NAME"
        raise InputError(
            f"{kind} {name!r}: must be {form} of letters, digits and the characters - = : . _"
        )
    return name


def list_attachments(history: History) -> pa.Table:
    """All attachments, with the columns of the table, by kind and name.

    Raises:
        HistoryError: the table can't be read.
    """
    return _read(open_table(history, ATTACHMENTS.name)).sort_by(
        [("kind", "ascending"), ("name", "ascending")]
    )


def attach(
    history: History,
    kind: Kind,
    name: str,
    group: str | None,
    by: str,
    *,
    why: str | None = None,
) -> Attached:
    """Attach a tenant or namespace to a group in place of the one that it has; None detaches it.

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


def _read(table: DeltaTable) -> pa.Table:
    try:
        return read_rows(table, ATTACHMENTS.schema.names).cast(ATTACHMENTS.schema)
    except (DeltaError, OSError, ValueError) as error:  # ValueError: all of pyarrow's
        raise HistoryError(f"history table {ATTACHMENTS.name}: {one_line(error)}") from None


def group_of(attachments: pa.Table, kind: Kind, name: str) -> str | None:
    """The group of a tenant or namespace among ``attachments``; None: it has none itself."""
    mine = pc.and_(pc.equal(attachments["kind"], kind), pc.equal(attachments["name"], name))
    found = attachments.filter(mine)["resource_group"].to_pylist()
    return str(found[0]) if found else None


def _listed(users: pa.Table, group: str) -> str:
    users = users.filter(pc.equal(users["resource_group"], group))
    names = (f"{row['kind']} {row['name']}" for row in users.to_pylist())
    return f"{first_few(names, _SHOWN)} {'are' if len(users) > 1 else 'is'}"
