"""The changes of groups for requests; each change is read from the disk once."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.registry.change_feed import GROUP, ChangeFeed, changes_in, read_feed
from quotaplane.registry.group_json import shown_changes
from quotaplane.server.access import belongs
from quotaplane.server.workers import Workers
from quotaplane.settings import History

_MOST_ROWS: Final = 200_000
"""Rows kept in memory; an update has two. A server that runs for months would keep all."""


class Page(NamedTuple):
    """Some changes, the newest first."""

    total: int
    changes: list[dict[str, Any]]


class ChangeLog:
    """The table's change feed, kept in memory as Arrow; its newest ``most_rows``."""

    def __init__(self, history: History, workers: Workers, *, most_rows: int = _MOST_ROWS) -> None:
        self._history, self._workers, self._most_rows = history, workers, most_rows
        self._lock = threading.Lock()
        self._feed: ChangeFeed | None = None

    async def page(
        self, group: str | None, tenants: Sequence[str] | None, offset: int, limit: int
    ) -> Page:
        """Changes of one group or all, of the groups of some tenants or of all.

        Raises:
            HistoryError: they can't be read.
            AnswerError: not in time.
        """
        return await self._workers.read(lambda: self._page(group, tenants, offset, limit))

    def _page(
        self, group: str | None, tenants: Sequence[str] | None, offset: int, limit: int
    ) -> Page:
        with self._lock:
            feed = self._feed = newest_of(read_feed(self._history, self._feed), self._most_rows)
        rows = feed.rows
        if group is not None:
            rows = rows.filter(pc.equal(rows[GROUP], group))
        if tenants is not None:
            rows = rows.filter(pa.array(belongs(rows[GROUP], tenants)))
        # An update has two rows: count changes by the one that each kind of change has.
        kind = rows["_change_type"]
        counted = pc.is_in(kind, pa.array(["insert", "update_postimage", "delete"]))
        places = np.flatnonzero(counted.to_numpy(zero_copy_only=False))[::-1]
        chosen = places[offset : offset + limit]
        if not len(chosen):
            return Page(len(places), [])
        chosen_rows = rows.take(pa.array(chosen))
        versions = pc.unique(chosen_rows["_commit_version"])
        near = rows.filter(pc.is_in(rows["_commit_version"], versions))
        found = {(c["version"], c["group"]): c for c in changes_in(near, feed.log)}
        keys = zip(
            chosen_rows["_commit_version"].to_pylist(), chosen_rows[GROUP].to_pylist(), strict=True
        )
        return Page(len(places), shown_changes([found[key] for key in keys]))


def newest_of(feed: ChangeFeed, most_rows: int) -> ChangeFeed:
    """The newest commits with at most ``most_rows`` rows in all; at least the newest one."""
    if len(feed.rows) <= most_rows:
        return feed
    versions = feed.rows["_commit_version"]
    left_out = versions[len(versions) - most_rows - 1].as_py()
    left_out = min(left_out, versions[-1].as_py() - 1)
    log = {version: entry for version, entry in feed.log.items() if version > left_out}
    return feed._replace(rows=feed.rows.filter(pc.greater(versions, left_out)), log=log)
