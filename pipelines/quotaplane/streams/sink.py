"""The end of a micro-batch: writes its outputs to the history, then to the job's topic."""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import HISTORY_BY_TASKS
from quotaplane.arrow import unpack
from quotaplane.history.data_files import Written
from quotaplane.history.writer import HistoryWriter
from quotaplane.metrics.traces import RoundTraces
from quotaplane.model import Round
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.status import StatusUpdate
from quotaplane.streams.task_files import FILES, NOT_WRITTEN
from quotaplane.transport.base import Message, Transport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

Packed = Mapping[str, Sequence[bytes]]
"""Payloads of all shards, by kind; no kind is empty."""


class Finished(NamedTuple):
    """A batch's outputs, ready to be written."""

    tables: Mapping[str, pa.Table]
    """Rows by history table."""
    messages: Sequence[Message]
    """Messages for the job's output topic."""
    status: StatusUpdate


class Finisher(ABC):
    """The part of the end of a micro-batch that differs between jobs."""

    def connect(self, history: HistoryWriter, transport: Transport) -> None:  # noqa: B027
        """Called once before the first batch, with what it may use between batches."""

    def begin(self) -> None:  # noqa: B027 (nothing by default)
        """Called before a batch runs.

        Raises:
            QuotaplaneError: the job must end; the batch does not run.
        """

    @abstractmethod
    def finish(self, stamp: Round, packed: Packed) -> Finished:
        """Turn a batch's outputs into rows, messages and counts; not called without outputs."""

    def idle(self, stamp: Round) -> Mapping[str, pa.Table]:
        """Rows by history table for a batch without outputs; none by default."""
        return {}

    def end(self, conditions: Conditions) -> Iterable[tuple[str, str]]:
        """Called after each batch: states what is wrong; returns lines for ``JobLines.say``."""
        return ()


class BatchSink:
    """The function for ``foreachBatch``.

    Collecting the outputs runs the micro-batch, exactly once; they are small (packed bytes).
    The history is written before the messages, so that every published decision can be audited.
    After a crash both may happen again: the history drops rows that it has, and the repeated
    messages are identical. ``now_ms`` returns a batch's time, also when the batch runs again.
    ``still_leads`` raises if another process has been started in place of this one. ``before`` is
    called with each batch and its seq before the batch runs. ``sync_input`` returns when the record
    of a batch's input survives a power loss.
    """

    def __init__(
        self,
        finisher: Finisher,
        history: HistoryWriter,
        transport: Transport,
        now_ms: Callable[[int], int],
        epoch: int,
        lines: JobLines,
        traces: RoundTraces | None = None,
        *,
        still_leads: Callable[[], None] = lambda: None,
        before: Callable[[DataFrame, int], None] = lambda *_: None,
        sync_input: Callable[[int], None] = lambda seq: None,
    ) -> None:
        self._before = before
        self._still_leads = still_leads
        self._sync_input = sync_input
        self._finisher = finisher
        self._history = history
        self._transport = transport
        self._now_ms = now_ms
        self._epoch = epoch
        self._lines = lines
        self._traces = traces or RoundTraces()

    def __call__(self, outputs: DataFrame, seq: int) -> None:
        self._finisher.begin()
        with self._traces.round(epoch=self._epoch, seq=seq):
            with self._stage("decide"):
                self._before(outputs, seq)
                packed = _collected(outputs)
            self._still_leads()
            self._sync_input(seq)
            stamp = Round(self._epoch, seq, self._now_ms(seq))
            written = written_by_tasks(packed.pop(FILES, ()))
            self._note_not_written(packed.pop(NOT_WRITTEN, []))
            if packed:
                self._write(stamp, packed, written)
            else:
                self._history.append_round(stamp, self._finisher.idle(stamp))
        for kind, text in self._finisher.end(self._lines.conditions):
            self._lines.say(kind, text)

    def _note_not_written(self, reasons: Sequence[bytes]) -> None:
        why = f"{reasons[0].decode()}; the driver writes the rows instead" if reasons else None
        self._lines.conditions.note(HISTORY_BY_TASKS, "", why)

    def _write(self, stamp: Round, packed: Packed, written: Mapping[str, Written]) -> None:
        status = self._lines.status
        with self._stage("prepare"):
            finished = self._finisher.finish(stamp, packed)
        with self._stage("history"):
            self._history.append_round(stamp, finished.tables, written)
        if finished.messages:
            with self._stage("publish"):
                try:
                    self._transport.publish(finished.messages)
                except Exception:
                    status.count("publish_failures")
                    raise
            status.count("published", len(finished.messages))
        status.add(finished.status)

    @contextmanager
    def _stage(self, name: str) -> Iterator[None]:
        began_s = time.monotonic()
        with self._traces.stage(name):
            yield
        self._lines.status.stage_ended(name, time.monotonic() - began_s)


def _collected(outputs: DataFrame) -> dict[str, list[bytes]]:
    packed: dict[str, list[bytes]] = defaultdict(list)
    # Through Arrow: rows would be pickled in the JVM and unpickled one by one here.
    for kind, payload in zip(*map(pa.ChunkedArray.to_pylist, outputs.toArrow()), strict=True):
        packed[kind].append(payload)
    return dict(packed)


def written_by_tasks(payloads: Sequence[bytes]) -> dict[str, Written]:
    """The files of all tasks of a batch, by table, from their outputs of the kind ``FILES``."""
    written: defaultdict[str, Written] = defaultdict(Written)
    for payload in payloads:
        for name, found in json.loads(payload).items():
            written[name] += Written.from_json(found)
    return dict(written)


def joined(payloads: Sequence[bytes]) -> pa.Table:
    """The rows of all packed tables; a column that some of them lack is null in their rows."""
    tables = [table for payload in payloads for table in unpack(payload)]
    return pa.concat_tables(tables, promote_options="permissive")
