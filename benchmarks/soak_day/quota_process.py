"""The process of the quota job: its real program, finisher, sink and history, without Spark.

Spark's part is here: a checkpoint file with the states of the shards, and the source's changes of
``resource_groups``. The process may be killed at any time; a round that was not committed is run
again with the same input.
"""

from __future__ import annotations

import os
import pickle
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable
from prometheus_client import generate_latest

from quotaplane.history.store import table_uri
from quotaplane.history.writer import HistoryWriter
from quotaplane.metrics.exposition import registry_of
from quotaplane.settings import Settings
from quotaplane.streams.checkpoint import Checkpoint
from quotaplane.streams.group_events import _to_group_events
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.partition import keys_of_shards
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.shard_program import Batch
from quotaplane.streams.sink import BatchSink
from quotaplane.streams.sources import _to_report_events
from quotaplane.transport.base import READ_AGAIN, Message

_KEPT_BYTES: Final = 64 << 20
"""Bytes of reports that the topic retains."""


class Reported(NamedTuple):
    """A report as it came over the topic."""

    key: str
    value: bytes
    published_at_ms: int


class RoundDone(NamedTuple):
    """Result of a round."""

    messages: list[Message]
    state_bytes: int
    metrics: int
    """Lines of the page of metrics."""


class _Checkpoint(NamedTuple):
    id: str
    epoch: int
    note: Mapping[str, Any]
    """Made with the checkpoint, see ``JobSpec.checkpoint_note``."""
    seq: int
    """Number of the next round."""
    groups_version: int
    """Version of ``resource_groups`` up to which it is read."""
    states: dict[int, bytes]


class QuotaProcess:
    """One life of the process; ``folder`` outlives it."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._settings, self._file = settings, folder / "checkpoint.pickle"
        spec = QuotaSpec(settings)
        self._checkpoint = self._opened(spec)
        spec.leadership.claim(self._checkpoint.id, self._checkpoint.epoch)
        opened = Checkpoint(
            self._checkpoint.id, self._checkpoint.epoch, settings.shards, self._checkpoint.note
        )
        spec.accept(opened)
        self._program = spec.program(self._checkpoint.epoch)
        self._shard_of = {
            key: shard for shard, key in enumerate(keys_of_shards(settings.shards).tolist())
        }
        self._reports = _to_report_events(
            settings.reports, settings.shards, settings.limits.lease_s
        )
        self._changes = _to_group_events(settings.shards)
        self._published: list[Message] = []
        self._now_ms = 0
        self._status = spec.status()
        self._metrics = registry_of("quota", self._status.readings)
        self._topic = _ReportTopic()
        no_positions: Any = SimpleNamespace(
            positions=lambda seq: {}, reports_between=self._topic.between
        )
        topic: Any = SimpleNamespace(
            publish=self._published.extend,
            publish_attachments=lambda messages: None,
            read_between=self._topic.read_between,
        )
        history = HistoryWriter(settings.history, self._checkpoint.id, spec.tables, spec.last_table)
        finisher = spec.finisher(no_positions)
        finisher.connect(history, topic)
        self._sink = BatchSink(
            finisher,
            history,
            topic,
            lambda seq: self._now_ms,
            self._checkpoint.epoch,
            JobLines.silent(self._status),
            still_leads=spec.leadership.check,
        )

    def _opened(self, spec: QuotaSpec) -> _Checkpoint:
        if self._file.exists():
            found: _Checkpoint = pickle.loads(self._file.read_bytes())
            return found
        epoch = spec.new_epoch("soak-day")
        return self._kept(_Checkpoint("soak-day", epoch, spec.checkpoint_note, 0, -1, {}))

    def _kept(self, checkpoint: _Checkpoint) -> _Checkpoint:
        new = self._file.with_suffix(".new")
        new.write_bytes(pickle.dumps(checkpoint))
        os.replace(new, self._file)
        self._checkpoint = checkpoint
        return checkpoint

    def run(self, seq: int, now_ms: int, reports: Sequence[Reported]) -> RoundDone:
        """Run a round, or what is left of it."""
        before = self._checkpoint
        self._published.clear()
        self._now_ms = now_ms
        if before.seq == seq:  # else it was committed, but not answered
            arrived, version = self._arrived(seq, now_ms, reports)
            states: dict[int, bytes] = {}
            outputs = []
            for shard in range(self._settings.shards):
                state = self._program.load(before.states.get(shard))
                due_ms = self._program.due_ms(state)
                if arrived[shard] or (due_ms is not None and due_ms <= now_ms):
                    batch = Batch(shard, seq, now_ms)
                    state, of_shard = self._program.run(state, arrived[shard], batch)
                    outputs.extend(of_shard)
                states[shard] = self._program.dump(state)
            self._status.round_began(seq)
            self._sink(_collectable(outputs), seq)
            self._status.round_ended()
            self._kept(before._replace(seq=seq + 1, groups_version=version, states=states))
        return RoundDone(
            list(self._published),
            sum(map(len, self._checkpoint.states.values())),
            generate_latest(self._metrics).count(b"\n"),
        )

    def _arrived(
        self, seq: int, now_ms: int, reports: Sequence[Reported]
    ) -> tuple[list[dict[str, list[bytes]]], int]:
        arrived: list[dict[str, list[bytes]]] = [
            defaultdict(list) for _ in range(self._settings.shards)
        ]
        batch = _batch_of(reports, now_ms)
        self._topic.keep(seq, batch)
        batches = [*self._reports([batch])] if reports else []
        changes, version = self._changed()
        for batch in [*batches, *self._changes(changes)]:
            columns = (batch[name].to_pylist() for name in ("kind", "key", "payload"))
            for kind, key, payload in zip(*columns, strict=True):
                arrived[self._shard_of[key]][kind].append(payload)
        return arrived, version

    def _changed(self) -> tuple[list[pa.RecordBatch], int]:
        """Changes of ``resource_groups`` since the last round, as Spark's source reads them."""
        table = DeltaTable(table_uri(self._settings.history, "resource_groups"))
        version = table.version()
        since = self._checkpoint.groups_version
        if version == since:
            return [], version
        found = _without_views(pa.table(table.load_cdf(since + 1, version)))
        wanted = found.filter(pc.not_equal(found["_change_type"], "update_preimage"))
        return wanted.combine_chunks().to_batches(), version


class _ReportTopic:
    """The newest reports, which the recorder reads again; it ends with the process."""

    def __init__(self) -> None:
        self._batches: dict[int, pa.RecordBatch] = {}
        self._kept_bytes = 0

    def keep(self, seq: int, batch: pa.RecordBatch) -> None:
        """Keep the reports of a round, and let go of the oldest ones."""
        self._batches[seq] = batch
        self._kept_bytes += batch.nbytes
        while self._kept_bytes > _KEPT_BYTES and len(self._batches) > 1:
            self._kept_bytes -= self._batches.pop(min(self._batches)).nbytes

    def between(self, seq: int) -> tuple[Any, Any]:
        """The offsets of a round's reports."""
        return seq, seq + 1

    def read_between(self, begin: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """See ``transport.base.Transport``."""
        for seq in range(begin, end):
            batch = self._batches.get(seq)
            if batch is not None:
                nothing = pa.nulls(len(batch), pa.binary()), pa.nulls(len(batch), pa.string())
                columns = [batch[name] for name in READ_AGAIN.names[:3]]
                yield pa.record_batch([*columns, *nothing], schema=READ_AGAIN)


def _without_views(table: pa.Table) -> pa.Table:
    """Texts as Spark gives them."""
    texts = pa.types.is_string_view
    fields = [pa.field(f.name, pa.string() if texts(f.type) else f.type) for f in table.schema]
    return table.cast(pa.schema(fields))


def _batch_of(reports: Sequence[Reported], now_ms: int) -> pa.RecordBatch:
    return pa.record_batch(
        {
            "value": pa.array([each.value for each in reports], pa.binary()),
            "size": pa.array([len(each.value) for each in reports], pa.int64()),
            "published_at_ms": pa.array([each.published_at_ms for each in reports], pa.int64()),
            "position": [f"reports/0@{now_ms}-{n}" for n in range(len(reports))],
            "now_ms": pa.array([now_ms] * len(reports), pa.int64()),
        }
    )


def _collectable(outputs: Sequence[Any]) -> Any:
    rows = pa.table(
        {
            "kind": pa.array([each.kind for each in outputs], pa.string()),
            "payload": pa.array([each.payload for each in outputs], pa.binary()),
        }
    )
    return SimpleNamespace(toArrow=lambda: rows)


def main(pipe: Connection, settings: Settings, folder: Path) -> None:
    """Answer rounds until the pipe ends."""
    process = QuotaProcess(settings, folder)
    pipe.send(time.time())
    while True:
        try:
            asked = pipe.recv()
        except EOFError:
            return
        pipe.send(process.run(*asked))
