"""Where groups are in arrays by (broker, group): found by id or by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from quotaplane.groups.ids import ids_of
from quotaplane.model import BoolArray, IntArray


class GroupColumns:
    """Columns of groups, in the order in which the groups were added.

    >>> columns = GroupColumns()
    >>> columns.add(ids_of(["h", "g"]))
    >>> columns.of_names(["g", "h", "other"]).tolist()
    [1, 0, -1]
    """

    def __init__(self) -> None:
        self.ids: IntArray = np.empty(0, np.int64)
        """Sorted."""
        self._column: IntArray = np.empty(0, np.int64)
        """By id."""
        self._by_name: dict[str, int] = {}
        """Columns of names that were looked up before; saves a digest and a search for each."""

    def __len__(self) -> int:
        return len(self.ids)

    def of_ids(self, ids: IntArray) -> IntArray:
        """Where groups are; -1: they are not known."""
        if not len(self.ids):
            return np.full(len(ids), -1, np.int64)
        place = np.minimum(np.searchsorted(self.ids, ids), len(self.ids) - 1)
        return np.where((self.ids[place] == ids) & (ids >= 0), self._column[place], -1)

    def of_names(
        self, names: Sequence[str], by_id: Callable[[IntArray], IntArray] | None = None
    ) -> IntArray:
        """The same by name; ``by_id`` is for names that were never looked up, else ``of_ids``."""
        found = list(map(self._by_name.get, names))
        if None not in found:
            return np.array(found, np.int64)
        new = [at for at, column in enumerate(found) if column is None]
        texts = [names[at] for at in new]
        columns = np.array([-1 if column is None else column for column in found], np.int64)
        columns[new] = places = (by_id or self.of_ids)(ids_of(texts))
        # Any number of names can be made that have one id.
        if len(self._by_name) > 2 * len(self.ids):
            self._by_name.clear()
        known = zip(texts, places.tolist(), strict=True)
        self._by_name.update((name, column) for name, column in known if column >= 0)
        return columns

    def add(self, ids: IntArray) -> None:
        """Groups that are not known yet; they are the last columns."""
        self._column = np.append(self._column, len(self.ids) + np.arange(len(ids)))
        self.ids = np.append(self.ids, ids)
        order = np.argsort(self.ids, kind="stable")
        self.ids, self._column = self.ids[order], self._column[order]

    def keep(self, stays: BoolArray) -> IntArray:
        """Keep some of the groups, in the order of ``ids``; returns where they were."""
        before = self._column[stays]
        self.ids, self._column = self.ids[stays], np.arange(len(before))
        self._by_name.clear()
        return before

    def by_id(self, of_column: BoolArray) -> BoolArray:
        """The values of ``of_column`` in the order of ``ids``."""
        return of_column[self._column]
