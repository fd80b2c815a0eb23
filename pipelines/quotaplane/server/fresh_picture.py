"""The state for requests: the groups, and a picture of the job, its groups and brokers.

One read of the groups serves all requests of the same moment. The picture is renewed in the
background, and a request is answered from the newest one. While the history can't be read, requests
get an error, never an old picture.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np
from deltalake.exceptions import DeltaError

from quotaplane.deltalog.log import local_folder, stamp
from quotaplane.errors import HistoryError, QuotaplaneError
from quotaplane.history.store import one_line, open_table, table_uri
from quotaplane.history.tables import LEASES, RESOURCE_GROUPS, ROUNDS, USAGE
from quotaplane.model import BoolArray
from quotaplane.query.cluster_status import RECENT
from quotaplane.registry.current_groups import CurrentGroups, GroupSnapshot
from quotaplane.server.access import belongs
from quotaplane.server.refusals import AnswerError
from quotaplane.server.workers import Repeated, Workers
from quotaplane.settings import History

if TYPE_CHECKING:
    from quotaplane.query.cluster_picture import ClusterPicture
    from quotaplane.query.duckdb_engine import DuckDBEngine

EVERY_S: Final = 1.0
"""Interval at which the tables are checked for new versions, in seconds."""
REST: Final = 2.0
"""The pause after a picture, as a multiple of the time that it took. Its queries have one thread:
they use a third of a core at most."""
MOST_AGE_S: Final = RECENT.total_seconds()
"""Greatest age of a picture, in seconds: it has counts of the last minute."""

_TABLES: Final = tuple(table.name for table in (RESOURCE_GROUPS, LEASES, USAGE, ROUNDS))
_POLL_S: Final = 0.02
_MOST_KEPT: Final = 64


class _Version(NamedTuple):
    """The version of a table."""

    version: int | None
    """None: there is no such table yet."""
    stamp: tuple[int, int, int] | None
    """``deltalog.log.stamp``; None on an object store, or if the table changed meanwhile."""


class FreshPicture(Repeated):
    """The newest ``ClusterPicture``. Without ``start``, each request reads the tables."""

    thread_name = "server-picture"

    def __init__(
        self,
        history: History,
        workers: Workers,
        timeout_s: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        super().__init__()
        self._history, self._workers, self._timeout_s = history, workers, timeout_s
        self._clock, self._now = clock, now
        self._looking = threading.Lock()
        self._engine: DuckDBEngine | None = None
        self._picture: ClusterPicture | None = None
        self._made_at = self._looked_at = -float("inf")
        self._versions: list[_Version] | None = None
        self._failure: QuotaplaneError | None = None
        self._mine: tuple[ClusterPicture, dict[tuple[str, ...], BoolArray]] | None = None

    def close(self, within_s: float) -> bool:
        """Stop the thread and free the memory; False: its last picture is still under way."""
        if not super().close(within_s):
            return False
        if self._looking.acquire(blocking=False):
            if self._engine is not None:
                self._engine.close()
                self._engine = None
            self._looking.release()
        return True

    async def get(self) -> ClusterPicture:
        """The newest picture; the first request waits for the first one.

        Raises:
            HistoryError: the history can't be read now.
            AnswerError: it was not read in time (503).
        """
        if self._thread is None:
            await self._workers.query(self.refresh)
        until = self._clock() + self._timeout_s
        while self._picture is None and self._failure is None and self._clock() < until:
            await asyncio.sleep(_POLL_S)
        if self._failure is not None:
            raise self._failure.with_traceback(None)
        if self._picture is None or self._clock() - self._looked_at > self._timeout_s:
            raise AnswerError(
                503, f"the history was not read within {self._timeout_s:g} s", {"Retry-After": "1"}
            )
        return self._picture

    def visible(self, picture: ClusterPicture, tenants: list[str] | None) -> BoolArray:
        """(g,) whether each group of a picture belongs to one of these tenants; None: to any."""
        if tenants is None:
            return np.ones(len(picture.names), np.bool_)
        if self._mine is None or self._mine[0] is not picture or len(self._mine[1]) > _MOST_KEPT:
            self._mine = (picture, {})
        kept, key = self._mine[1], tuple(tenants)
        if key not in kept:
            kept[key] = belongs(picture.names, tenants)
        return kept[key]

    def refresh(self) -> float:
        """Make a picture if the tables have changed; returns the seconds that it took."""
        with self._looking:
            begun = self._clock()
            try:
                if self._is_due(begun):
                    versions = [self._version(name) for name in _TABLES]
                    self._picture, self._versions = self._read(), versions
                    self._made_at = begun
                self._failure = None
            except QuotaplaneError as error:
                self._failure, self._versions = error, None
            except (DeltaError, OSError, ValueError) as error:
                self._failure, self._versions = HistoryError(one_line(error)), None
            self._looked_at = self._clock()
            return self._looked_at - begun

    def repeat(self) -> float:
        """See ``Repeated``."""
        return max(EVERY_S, REST * self.refresh())

    def _is_due(self, now: float) -> bool:
        if self._versions is None or now - self._made_at > MOST_AGE_S:
            return True
        return not all(
            self._is_newest(name, known)
            for name, known in zip(_TABLES, self._versions, strict=True)
        )

    def _version(self, name: str) -> _Version:
        folder = local_folder(table_uri(self._history, name))
        version = open_table(self._history, name).version()
        return _Version(version, None if folder is None else stamp(folder, version))

    def _is_newest(self, name: str, known: _Version) -> bool:
        folder = local_folder(table_uri(self._history, name))
        if folder is None or known.version is None:
            return self._version(name).version == known.version
        return known.stamp is not None and stamp(folder, known.version) == known.stamp

    def _read(self) -> ClusterPicture:
        from quotaplane.query.cluster_picture import cluster_picture
        from quotaplane.query.duckdb_engine import DuckDBEngine

        if self._engine is None:
            self._engine = DuckDBEngine(self._history, threads=1)
        now = self._now()
        return cluster_picture(self._engine, now - timedelta(microseconds=now.microsecond % 1000))


FRESH_S: Final = 0.02
"""Greatest age of the last read of the table, in seconds."""


class FreshGroups:
    """The groups, at most ``FRESH_S`` old; changes made by this server are always included."""

    def __init__(
        self,
        current: CurrentGroups,
        workers: Workers,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._current, self._workers, self._clock = current, workers, clock
        self._groups: GroupSnapshot | None = None
        self._fresh_until = -float("inf")
        self._looking: asyncio.Task[GroupSnapshot] | None = None

    async def get(self) -> GroupSnapshot:
        """The groups.

        Raises:
            HistoryError: they can't be read.
            AnswerError: not in time.
        """
        if self._groups is not None and self._clock() < self._fresh_until:
            return self._groups
        if self._looking is None:
            self._looking = asyncio.create_task(self._look())
        return await asyncio.shield(self._looking)

    def expire(self) -> None:
        """Drop the last read and one under way, after a change by this server."""
        self._looking = None
        self._fresh_until = -float("inf")

    async def _look(self) -> GroupSnapshot:
        begun, me = self._clock(), asyncio.current_task()
        try:
            groups = await self._workers.read(self._current.read)
            if self._looking is me:
                self._groups, self._fresh_until = groups, begun + FRESH_S
            return groups
        finally:
            if self._looking is me:
                self._looking = None
