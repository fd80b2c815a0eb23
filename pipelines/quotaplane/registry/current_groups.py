"""All groups as they are now, kept in memory until the table changes."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import bools
from quotaplane.deltalog.log import local_folder, stamp
from quotaplane.errors import InputError
from quotaplane.groups.policy_options import DEFAULTS, JSON_COLUMNS
from quotaplane.history.store import open_table, table_uri
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.model import RATE_COLUMNS, BoolArray, IntArray
from quotaplane.registry.group_json import etag, group_json
from quotaplane.registry.table import read_groups
from quotaplane.settings import History

SORTABLE: Final = tuple(
    name for name in ("group", *RESOURCE_GROUPS.schema.names[1:]) if name not in JSON_COLUMNS
)
"""Columns by which groups can be sorted."""


_MOST_TEXTS: Final = 20_000
"""Most cached answers; a kilobyte each."""


class GroupText(NamedTuple):
    """A group's JSON in an answer, and its ETag."""

    text: bytes
    etag: str


class GroupSnapshot:
    """All groups at one version of the table; n of them, by name."""

    def __init__(self, rows: pa.Table, version: int) -> None:
        self.rows = rows.combine_chunks()
        """Rows in the form of ``list_groups``."""
        self.version = version
        self._texts: dict[int, GroupText] = {}
        self._orders: dict[str, IntArray] = {}

    @cached_property
    def names(self) -> list[str]:
        """(n,)"""
        listed: list[str] = self.rows["group"].to_pylist()
        return listed

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(self.names)}

    def find(self, group: str) -> int | None:
        """The index of a group, None if there is no such group."""
        return self._places.get(group)

    def text(self, place: int) -> GroupText:
        """A group's JSON and its ETag."""
        found = self._texts.get(place)
        if found is None:
            if len(self._texts) >= _MOST_TEXTS:
                self._texts.clear()
            text = group_json(self.rows.slice(place, 1).to_pylist()[0])
            found = self._texts[place] = GroupText(text, etag(text))
        return found

    def order(self, column: str) -> IntArray:
        """(n,) the indexes sorted by a column of ``SORTABLE``; ``-column``: descending.

        Null counts as its default; an unlimited quota is the highest.

        Raises:
            InputError: there is no such column.
        """
        if column not in self._orders:
            name = column.removeprefix("-")
            if name not in SORTABLE:
                raise InputError(f"sort: must be one of {', '.join(SORTABLE)}, not {name!r}")
            values = self.rows[name]
            null_means = np.inf if name in RATE_COLUMNS else DEFAULTS.get(name)
            if null_means is not None:
                values = values.fill_null(null_means)
            how = "descending" if column.startswith("-") else "ascending"
            keys = [("value", how), ("group", "ascending")]
            both = pa.table({"value": values, "group": self.rows["group"]})
            self._orders[column] = pc.sort_indices(both, sort_keys=keys).to_numpy()
        return self._orders[column]

    def containing(self, text: str) -> BoolArray:
        """(n,) whether a group has this text in its name, in upper or lower case."""
        found = pc.match_substring(self.rows["group"], text, ignore_case=True)
        return bools(found)

    def page(self, places: Sequence[int]) -> bytes:
        """The JSON list of some groups."""
        return b"[" + b",".join(self.text(place).text for place in places) + b"]"


class CurrentGroups:
    """The newest ``GroupSnapshot``; may be used by several threads."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._folder = local_folder(table_uri(history, RESOURCE_GROUPS.name))
        self._lock = threading.Lock()
        self._groups: GroupSnapshot | None = None
        self._stamp: tuple[int, int, int] | None = None

    def read(self) -> GroupSnapshot:
        """The groups as they are now; the table is read only if it has changed.

        Raises:
            HistoryError: it can't be read.
        """
        with self._lock:
            if self._groups is None or not self._is_newest(self._groups.version):
                read = read_groups(self._history)
                if self._folder is not None:
                    # None, if it has changed again: then the next call reads it.
                    self._stamp = stamp(self._folder, read.version)
                self._groups = GroupSnapshot(read.rows, read.version)
            return self._groups

    def _is_newest(self, version: int) -> bool:
        if self._folder is None:
            return open_table(self._history, RESOURCE_GROUPS.name).version() == version
        return self._stamp is not None and stamp(self._folder, version) == self._stamp
