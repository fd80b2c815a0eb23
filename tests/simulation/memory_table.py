"""The table ``resource_groups`` and the epochs in ``rounds``, in memory.

``in_memory`` puts them in place of the Delta tables wherever the enforcer and the sync of groups
use those.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from quotaplane.enforce.agent import administrator_rates, quota_table
from quotaplane.errors import HistoryError, TableChangedError
from quotaplane.group_sync import sync
from quotaplane.history.tables import RESOURCE_GROUPS, ROUNDS
from quotaplane.model import RATE_COLUMNS, FloatArray
from quotaplane.registry.current_groups import GroupSnapshot
from quotaplane.registry.recorded_rates import AdministratorRate, Key
from tests.simulation.virtual_time import Timeline

_SCHEMA: Final = pa.schema(
    [
        pa.field("group" if each.name == "resource_group" else each.name, each.type)
        for each in RESOURCE_GROUPS.schema
    ]
)
"""As ``list_groups`` names the columns."""


class MemoryTable:
    """The table, its change feed, and the newest epoch of the history."""

    def __init__(self, timeline: Timeline) -> None:
        self._timeline = timeline
        self.rows: dict[str, dict[str, Any]] = {}
        self.changes: list[dict[str, Any]] = []
        self.version = 0
        self.epoch = 0
        self.is_missing = False
        """Deleted, and not made again yet."""
        self.quota_since_ms: dict[tuple[str, float], int] = {}
        """By (group, messages per second): when its row last got this publish quota."""
        self.administrators: dict[Key, AdministratorRate] = {}
        """The table ``administrator_rates``."""

    def lose(self) -> None:
        """Somebody deletes the table with its log."""
        self.rows, self.changes, self.version = {}, [], 0
        self.is_missing = True

    def lose_log(self) -> None:
        """Old commits are cleaned up: who changed what is not known any more."""
        self.changes = []

    def list_groups(self, history: Any = None) -> pa.Table:
        """The rows.

        Raises:
            HistoryError: the table is missing.
        """
        self._check()
        empty = dict.fromkeys(_SCHEMA.names)
        rows = [{**empty, **self.rows[group]} for group in sorted(self.rows)]
        return pa.Table.from_pylist(rows, schema=_SCHEMA)

    def _check(self, at_version: int | None = None) -> None:
        if self.is_missing:
            raise HistoryError("history table resource_groups: it is missing")
        if at_version not in (None, self.version):
            raise TableChangedError("history table resource_groups: it has changed")

    def read(self) -> GroupSnapshot:
        """``CurrentGroups.read``."""
        return GroupSnapshot(self.list_groups(), self.version)

    def group_changes(self, history: Any = None) -> list[dict[str, Any]]:
        """The change feed."""
        self._check()
        return list(self.changes)

    def put_groups(
        self,
        history: Any,
        groups: Sequence[str],
        quotas: FloatArray,
        by: str,
        *,
        policy: pa.Table | None = None,
        at_version: int | None = None,
        warn: Any = None,
    ) -> None:
        """Write quotas (NaN: as it is) and policies."""
        self._check(at_version)
        policies = [{}] * len(groups) if policy is None else policy.to_pylist()
        for group, rates, others in zip(groups, quotas, policies, strict=True):
            row = dict(self.rows.get(group, {"group": group})) | others
            given = zip(RATE_COLUMNS, np.asarray(rates).tolist(), strict=False)
            row |= {name: None if np.isinf(r) else r for name, r in given if not np.isnan(r)}
            row |= {"updated_by": by, "updated_at": self._timeline.now_ms * 1000}
            self._change(group, row, by)

    def delete_groups(
        self, history: Any, groups: Collection[str], by: str, *, at_version: int | None = None
    ) -> None:
        """Delete groups."""
        self._check(at_version)
        for group in groups:
            if group in self.rows:
                self._change(group, None, by)

    def _change(self, group: str, row: dict[str, Any] | None, by: str) -> None:
        self.version += 1
        empty = dict.fromkeys(_SCHEMA.names)
        before = self.rows.pop(group, None)
        rate = "publish_messages_per_s"
        if row is not None and row.get(rate) != (before or {}).get(rate):
            self.quota_since_ms[group, row[rate]] = self._timeline.now_ms
        self.changes.append(
            {
                "version": self.version,
                "by": by,
                "group": group,
                "from": None if before is None else {**empty, **before},
                "to": None if row is None else {**empty, **row},
            }
        )
        if row is not None:
            self.rows[group] = row

    def list_administrator_rates(self, history: Any, cluster: str) -> list[AdministratorRate]:
        """The rows of the only cluster."""
        self._check()
        return list(self.administrators.values())

    def change_administrator_rates(
        self, history: Any, cluster: str, changes: Mapping[Key, AdministratorRate | None], by: str
    ) -> None:
        """Put and delete rows."""
        self._check()
        for key, row in changes.items():
            if row is None:
                self.administrators.pop(key, None)
            else:
                self.administrators[key] = row

    # --- in place of Delta ------------------------------------------------------------------------

    def opened(self, history: Any, name: str) -> Any:
        """``CachedTable`` of the quotas or of the rounds."""
        return SimpleNamespace(open=self._open_rounds if name == ROUNDS.name else self._open)

    def _open(self) -> Any:
        self._check()
        return SimpleNamespace(version=lambda: self.version)

    def _open_rounds(self) -> Any:
        self._check()
        found = {"max.epoch": pa.array([self.epoch]), "null_count.epoch": pa.array([0])}
        return SimpleNamespace(get_add_actions=lambda flatten: pa.table(found))


@contextmanager
def in_memory(table: MemoryTable) -> Iterator[None]:
    """A context in which the programs use this table."""
    with ExitStack() as stack:
        for module, name, replacement in (
            (quota_table, "CachedTable", table.opened),
            (quota_table, "list_groups", table.list_groups),
            (administrator_rates, "list_administrator_rates", table.list_administrator_rates),
            (administrator_rates, "change_administrator_rates", table.change_administrator_rates),
            (sync, "CurrentGroups", lambda history: table),
            (sync, "put_groups", table.put_groups),
            (sync, "delete_groups", table.delete_groups),
            (sync, "group_changes", table.group_changes),
        ):
            stack.enter_context(patch.object(module, name, replacement))
        yield
