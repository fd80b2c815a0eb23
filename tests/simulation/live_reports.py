"""Reports of a non-persistent topic under strict: the real spool, between a topic and a batch.

``PulsarStreamReader`` and ``Spool`` are real, in a folder beside the checkpoint. A process gets
only what arrives while it is connected (``_Received``, in place of ``TopicPool``). The process can
be killed or frozen between any two steps of a write.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Final
from unittest.mock import patch

import pyarrow as pa

from quotaplane.pulsar import spool
from quotaplane.pulsar.message import Row
from quotaplane.pulsar.position import Offset, Received
from quotaplane.pulsar.source import PulsarStreamReader
from quotaplane.pulsar.spool import Spool
from tests.simulation.storage import StoredReport

_TOPIC: Final = "non-persistent://acme/fleet/reports"


class _Received:
    """Messages that one process receives of the topic: ``TopicPool`` with one ``LiveReader``."""

    def __init__(self, topic: list[StoredReport], now_ms: Callable[[], int]) -> None:
        self._topic, self._now_ms = topic, now_ms
        self._read = 0
        self._position: Received | None = None

    def _open(self, position: Received) -> None:
        """Connect: what arrived before is lost."""
        self._position, self._read = position, len(self._topic)

    def begin(self) -> Offset:
        """The offset where a query without a checkpoint starts."""
        start = Received(self._now_ms(), 0)
        self._open(start)
        return {_TOPIC: str(start)}

    def read(self, start: Offset) -> tuple[list[Row], Offset]:
        """The messages since the last call, and the offset after them."""
        if str(self._position) != start[_TOPIC]:
            self._open(Received.parse(start[_TOPIC]))
        assert self._position is not None
        rows = []
        for report in self._topic[self._read :]:
            self._position = self._position._replace(seen=self._position.seen + 1)
            at_ms, place = report.published_at_ms, str(self._position)
            rows.append(Row(None, report.value, _TOPIC, place, at_ms, None, {}))
        self._read = len(self._topic)
        return rows, {_TOPIC: str(self._position)}


class LiveReports:
    """One process's reader of such a topic.

    Args:
        folder: of the spool.
        topic: all reports that ever arrived.
        now_ms: the clock of the process.
        point: a labelled point of the process.
    """

    def __init__(
        self,
        folder: str,
        topic: list[StoredReport],
        now_ms: Callable[[], int],
        point: Callable[[str], None],
    ) -> None:
        self._folder, self._point = folder, point
        self._source = PulsarStreamReader.__new__(PulsarStreamReader)
        self._source._spool = Spool(folder)
        self._source._follower = _Received(topic, now_ms)  # type: ignore[assignment]
        self._rows: Iterable[pa.RecordBatch] = ()

    def plan(self, start: Offset | None) -> Offset:
        """Read what arrived, for the batch after ``start``; returns the batch's end."""
        with self._in_steps():
            self._rows, end = self._source.read(start or self._source.initialOffset())
        self._point("spooled")
        return end

    def read(self, start: Offset | None, end: Offset, *, again: bool) -> list[tuple[str, Any, int]]:
        """The reports of a batch, as (position, value, publish time in ms).

        Raises:
            TransportError: the batch runs again, and its reports are not there any more.
        """
        rows = self._rows
        if again:
            rows = Spool(self._folder).read(start or self._source.initialOffset(), end)
        with self._in_steps():
            pieces = list(rows)
        if not pieces:
            return []
        table = pa.Table.from_batches(pieces)
        times = table["publish_time"].cast(pa.timestamp("ms", "UTC")).cast(pa.int64()).to_pylist()
        return list(
            zip(table["message_id"].to_pylist(), table["value"].to_pylist(), times, strict=True)
        )

    @contextmanager
    def _in_steps(self) -> Iterator[None]:
        """A context in which the process may end or be frozen at each sync of the spool.

        Nothing is synced: what a process has written stays when it is killed.
        """

        def synced(_: object) -> None:
            self._point("amid the spool")

        names = ("O_CREAT", "O_NOFOLLOW", "O_TRUNC", "O_WRONLY", "open", "replace")
        system = SimpleNamespace(**{name: getattr(os, name) for name in names}, fsync=synced)
        with patch.object(spool, "os", system), patch.object(spool, "fsync", synced):
            yield
