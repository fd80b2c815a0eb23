"""The end of a micro-batch: its outputs go to the history, then to the job's topic."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from quotaplane.arrow_ipc import unpack
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.status import StatusUpdate
from quotaplane.transport.base import Message, Transport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Packed = Mapping[str, Sequence[bytes]]
"""The payloads of all shards, by kind; each kind has at least one."""


class Finished(NamedTuple):
    """What a job makes of a batch's outputs."""

    tables: Mapping[str, pa.Table]
    """Rows by history table."""
    messages: Sequence[Message]
    """For the job's topic."""
    status: StatusUpdate


class Finisher(ABC):
    """The part of the end of a micro-batch that each job has of its own."""

    def begin(self) -> None:  # noqa: B027 (nothing by default)
        """Called before a batch is run.

        Raises:
            QuotaplaneError: the job must end; the batch is not run.
        """

    @abstractmethod
    def finish(self, stamp: Round, packed: Packed) -> Finished:
        """Make rows, messages and counts of a batch's outputs; a batch without any is left out."""

    def end(self) -> Iterable[tuple[str, str]]:
        """Called after each batch: lines for the operator, as ``JobLines.say`` takes them."""
        return ()


class BatchSink:
    """``foreachBatch``'s function.

    The micro-batch is run once, by the collect; its outputs are small (bytes packed by shard).
    The history comes first, so that nobody acts on a decision that nobody can audit. Both may
    happen again after a crash: the history drops what it has, and messages are the same again.
    ``now_ms``: the time of a batch, also when it is run again.
    """

    def __init__(
        self,
        finisher: Finisher,
        history: HistoryWriter,
        transport: Transport,
        now_ms: Callable[[int], int],
        epoch: int,
        lines: JobLines,
    ) -> None:
        self._finisher = finisher
        self._history = history
        self._transport = transport
        self._now_ms = now_ms
        self._epoch = epoch
        self._lines = lines

    def __call__(self, outputs: DataFrame, seq: int) -> None:
        self._finisher.begin()
        packed = _collected(outputs)
        if packed:
            stamp = Round(self._epoch, seq, self._now_ms(seq))
            finished = self._finisher.finish(stamp, packed)
            self._history.append_round(stamp, finished.tables)
            if finished.messages:
                self._transport.publish(finished.messages)
            self._lines.status.add(finished.status)
        for kind, text in self._finisher.end():
            self._lines.say(kind, text)


def _collected(outputs: DataFrame) -> dict[str, list[bytes]]:
    packed: dict[str, list[bytes]] = defaultdict(list)
    # As Arrow: rows would be pickled in the JVM and be read one by one here.
    for kind, payload in zip(*map(pa.ChunkedArray.to_pylist, outputs.toArrow()), strict=True):
        packed[kind].append(payload)
    return dict(packed)


def joined(payloads: Sequence[bytes]) -> pa.Table:
    """The rows of packed tables; a column that only some of them have is null in the others."""
    tables = [table for payload in payloads for table in unpack(payload)]
    return pa.concat_tables(tables, promote_options="permissive")
