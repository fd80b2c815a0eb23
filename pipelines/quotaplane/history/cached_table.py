"""Opens a table repeatedly at its newest version without reading its whole log again."""

from __future__ import annotations

import contextlib
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

from quotaplane.history.store import open_table
from quotaplane.settings import History

_UPDATES_PER_OPEN: Final = 30
"""Updates after which a table is opened anew, as it may have been replaced by another one."""


class CachedTable:
    """One table of a history; not thread-safe."""

    def __init__(self, history: History, name: str) -> None:
        self._history, self._name = history, name
        self._table: DeltaTable | None = None
        self._updates = 0

    def open(self) -> DeltaTable:
        """The table at its newest version.

        Raises:
            HistoryError: it is missing, can't be read, or has another schema.
        """
        table, self._table = self._table, None
        if table is not None and self._updates < _UPDATES_PER_OPEN:
            # Fails if log files were removed that the update needs: then open the table anew.
            with contextlib.suppress(DeltaError, OSError):
                # One request to a store; an update makes two though nothing has changed.
                if table._table.get_latest_version() != table.version():
                    table.update_incremental()
                self._table, self._updates = table, self._updates + 1
                return table
        self._table, self._updates = open_table(self._history, self._name), 0
        return self._table
