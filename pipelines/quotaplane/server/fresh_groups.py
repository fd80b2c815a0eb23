"""The groups for requests: one read of the table serves all requests of the same moment."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from quotaplane.registry.current_groups import CurrentGroups, GroupSnapshot
from quotaplane.server.workers import Workers

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
