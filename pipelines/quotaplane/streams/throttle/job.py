"""The throttle job: request events from a topic, decisions to a topic and to the history."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from quotaplane.arrow_ipc import pack, unpack
from quotaplane.history.store import ensure_tables, table_uri
from quotaplane.history.tables import THROTTLED
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import DIMENSIONS, Round
from quotaplane.settings import KafkaTransport, PulsarTransport, Settings, Throttle
from quotaplane.streams.batch_attempts import open_attempts
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.job_output import (
    absolute,
    own_signal_handlers,
    speaking,
    transport_in_words,
)
from quotaplane.streams.lifecycle import StreamingJob, run_until_stopped
from quotaplane.streams.lone_batches import Alone, nothing, skipped
from quotaplane.streams.sources import group_events
from quotaplane.streams.spark_log import SparkLog
from quotaplane.streams.status import JobStatus, RoundCounts
from quotaplane.streams.throttle.frames import PIECE, throttle_stream
from quotaplane.terminal import tell, warn
from quotaplane.throttle.requests import Bounds
from quotaplane.transport import open_transport
from quotaplane.transport.base import Message, Topics, Transport
from quotaplane.wire.json_rows import json_rows
from quotaplane.wire.reasons import SKIPPED_BATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_NAME = "quotaplane-throttle"

COUNTERS: Final = ("events", "refused", "delayed")
GAUGES: Final = ("lag_s", "backlog")
"""What the status line shows; docs/runbook.md says what each means."""

SESSION: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(PIECE // 10)}
"""Rows are small here, as they are not in the quota loop."""

_EVENT: Final = "id string, entity string, at_ms long, units double, dimension string"
_END: Final = "what ends the message"
_LAST_MS: Final = 253_402_300_799_000
"""The end of the year 9999; later times would overflow."""
_RAW_BYTES: Final = 4096
_MOST_EVENT_BYTES: Final = 64 << 10
"""Of an event; a larger message is not read. Events of a micro-batch are in memory together."""
_MOST_RECORD_BYTES: Final = 1 << 20
"""That the topic should take: many events come in one batch of records. Kafka's default."""


def bounds_of(throttle: Throttle) -> Bounds:
    """The settings in milliseconds."""
    return Bounds(round(throttle.max_lateness_s * 1000), round(throttle.max_clock_skew_s * 1000))


def topics_of(throttle: Throttle) -> Topics:
    """What the job reads and what it writes."""
    return Topics(throttle.events_topic, throttle.decisions_topic)


def open_topics(settings: Settings) -> Transport:
    """The transport of the settings, with events in place of reports and decisions of limits."""
    transport = settings.transport
    if isinstance(transport, (KafkaTransport, PulsarTransport)):
        most = {"max_reports_per_trigger": settings.throttle.max_events_per_trigger}
        transport = transport.model_copy(update=most)
    return open_transport(transport, topics_of(settings.throttle))


def request_events(rows: DataFrame) -> DataFrame:
    """Events out of messages (``value``, ``position``) of JSON: see docs/dry-run.md.

    What is missing or of another type is null, and so is all of a message that is not one object
    and nothing else, or too large; then, or where units are no finite number, ``raw`` has the
    message, cut off.
    """
    fits = F.octet_length("value") <= _MOST_EVENT_BYTES
    text = F.when(fits, F.col("value")).cast("string")
    # Spark reads the first object and leaves what follows; in a list it can't.
    listed = F.concat(F.lit("["), text, F.lit(f',{{"{_END}":true}}]'))
    ends = F.from_json(listed, f"array<struct<`{_END}`:boolean>>")[_END]
    whole = (F.size(ends) == 2) & F.element_at(ends, -1)
    said = F.when(whole, F.from_json(text, _EVENT))
    read = rows.select(said.alias("said"), "value", "position").select(
        "said.*", "position", "value"
    )
    at_ms = F.col("at_ms")
    at = F.when(at_ms.between(0, _LAST_MS), F.timestamp_millis(at_ms))
    finite = F.abs("units") < float("inf")  # NaN is above all
    unclear = F.col("entity").isNull() | F.col("at").isNull() | ~F.coalesce(finite, F.lit(False))
    raw = F.when(unclear, F.substring("value", 1, _RAW_BYTES))
    return read.withColumn("at", at).withColumn("raw", raw).drop("at_ms", "value")


class DecisionSink:
    """``foreachBatch``'s function: a micro-batch's outputs to the history, then to the topic.

    Both may happen again after a crash: the history drops what it has, and on the topic a decision
    is the same as before, and names its event's position.
    """

    def __init__(
        self,
        history: HistoryWriter,
        transport: Transport,
        now_ms: Callable[[int], int],
        epoch: int,
        status: JobStatus,
    ) -> None:
        self._history = history
        self._transport = transport
        self._now_ms = now_ms
        self._epoch = epoch
        self._status = status

    def __call__(self, outputs: DataFrame, seq: int) -> None:
        packed: dict[str, list[bytes]] = defaultdict(list)
        for kind, payload in zip(*map(pa.ChunkedArray.to_pylist, outputs.toArrow()), strict=True):
            packed[kind].append(payload)
        if not packed:
            return
        tables = {
            _TABLES[kind]: _ROWS[kind](pa.concat_tables(t for p in payloads for t in unpack(p)))
            for kind, payloads in packed.items()
        }
        self._history.append_round(Round(self._epoch, seq, self._now_ms(seq)), tables)
        if "decisions" in tables:
            self._transport.publish(messages(tables["decisions"]))
        self._status.add(_shown(tables))


def _shown(tables: Mapping[str, pa.Table]) -> RoundCounts:
    """What a round adds to the status line."""
    counts = dict.fromkeys(COUNTERS, 0)
    gauges: dict[str, float] = {}
    if "decisions" in tables:
        told = tables["decisions"]
        newest_ms = pc.max(told["requested_at_ms"]).as_py()
        counts["events"] = len(told)
        counts["refused"] = int(pc.sum(pc.invert(told["admitted"])).as_py() or 0)
        counts["delayed"] = int(pc.sum(pc.greater(told["throttle_ms"], 0)).as_py() or 0)
        gauges["lag_s"] = time.time() - newest_ms / 1000
    rejected: dict[str, int] = {}
    if "rejected_events" in tables:
        reasons = pc.value_counts(tables["rejected_events"]["reason"]).to_pylist()
        rejected = {each["values"]: each["counts"] for each in reasons}
    return RoundCounts(counts, rejected, gauges, counts["events"] + sum(rejected.values()))


def messages(decisions: pa.Table) -> list[Message]:
    """A message for each decision: JSON, keyed by entity."""
    values = json_rows(decisions.rename_columns({"requested_at_ms": "at_ms"}))
    keys = decisions["entity"].to_pylist()
    return list(map(Message, keys, values.cast(pa.binary()).to_pylist()))


def _decisions(told: pa.Table) -> pa.Table:
    names = ["entity", "dimension", "at_ms", "units", "id", "position"]
    names += ["admitted", "throttle_ms", "balance", "error", "late_ms", "enforced"]
    dimension = told["dimension"].fill_null(DIMENSIONS[0])
    told = told.set_column(told.column_names.index("dimension"), "dimension", dimension)
    return told.select(names).rename_columns({"at_ms": "requested_at_ms"})


def _rejected(told: pa.Table) -> pa.Table:
    names = ["id", "position", "reason", "entity", "dimension", "at_ms", "units", "raw"]
    at_ms = told["at_ms"].fill_null(-1)  # what the history takes for null
    told = told.set_column(told.column_names.index("at_ms"), "at_ms", at_ms)
    return told.select(names).rename_columns({"at_ms": "requested_at_ms"})


_TABLES: Final = {
    "decisions": "decisions",
    "rejected": "rejected_events",
    "metrics": "throttle_metrics",
}
_ROWS: Final[dict[str, Callable[[pa.Table], pa.Table]]] = {
    "decisions": _decisions,
    "rejected": _rejected,
    "metrics": lambda told: told,
}


def prepare(settings: Settings) -> Transport:
    """Everything that can be found wrong without Spark: the topics, the tables.

    Raises:
        QuotaplaneError: what is wrong, within seconds; nothing was started.
    """
    transport = open_topics(settings)
    for warning in transport.check(_MOST_RECORD_BYTES):
        warn(warning)
    ensure_tables(settings.history, say=tell)
    return transport


class ThrottleJob(StreamingJob):
    """A running throttle job; ``transport`` comes from ``prepare`` and is closed with it.

    ``skip_batch``: the batch that is to be committed without its events; see ``StreamingJob``.
    ``lines``: what it says; nothing by default.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        transport: Transport,
        skip_batch: int | None = None,
        *,
        lines: JobLines | None = None,
    ) -> None:
        path = _checkpoint(settings)
        folder = CheckpointFolder(spark, path)
        checkpoint = folder.open(settings.shards, next_epoch=int(time.time()), strict_lease_s=None)
        attempts = open_attempts(folder, "throttle", skip_batch)
        history = HistoryWriter(settings.history, app_id=checkpoint.id, tables=THROTTLED)
        lines = lines or JobLines.silent(throttle_status())
        super().__init__(attempts, history, transport, lines=lines)
        sink = DecisionSink(history, transport, folder.now_ms, checkpoint.epoch, lines.status)
        # The number of shuffle partitions is frozen into a checkpoint with its first batch.
        spark.conf.set("spark.sql.shuffle.partitions", settings.shards)
        alone = None if attempts.to_skip is None else _skipped(folder, attempts.to_skip)
        arriving = transport.read_reports(spark) if alone is None else nothing(spark)
        told = throttle_stream(
            request_events(arriving),
            group_events(spark, settings.history, settings.shards),
            bounds_of(settings.throttle),
            shards=settings.shards,
        )
        self.start(
            told.outputs,
            sink,
            name=QUERY_NAME,
            interval_s=settings.trigger.interval_s,
            alone=alone,
            ready=_ready(spark, settings, checkpoint.epoch),
        )


def run_throttle(
    settings: Settings, session: Callable[[SparkLog], SparkSession], skip_batch: int | None = None
) -> None:
    """Run the job until it is stopped (see ``running.run_until_stopped``)."""
    transport = prepare(settings)
    lines = JobLines(throttle_status())
    # One folder of logs for both jobs: their files have different names.
    with speaking("throttle", settings.checkpoint, lines) as log:
        with own_signal_handlers():
            spark = session(log)

        def start(skip: int | None) -> ThrottleJob:
            return ThrottleJob(spark, settings, transport, skip, lines=lines)

        lines.end(run_until_stopped(start, skip_batch))


def throttle_status() -> JobStatus:
    """What the status line shows."""
    return JobStatus(COUNTERS, GAUGES, time.monotonic)


def _checkpoint(settings: Settings) -> str:
    """The quota job's own is beside it."""
    return f"{settings.checkpoint.rstrip('/')}-throttle"


def _ready(spark: SparkSession, settings: Settings, epoch: int) -> str:
    """What the ready line says."""
    events, decisions = topics_of(settings.throttle)
    parts = (
        transport_in_words(settings.transport, [events], decisions),
        f"follows the quotas in {absolute(table_uri(settings.history, 'resource_groups'))}",
        f"history {absolute(settings.history.path)}",
        f"checkpoint {absolute(_checkpoint(settings))}",
        f"Spark UI {spark.sparkContext.uiWebUrl or 'off'}",
        f"epoch {epoch}",
    )
    return "; ".join(parts)


def _skipped(folder: CheckpointFolder, batch: int) -> Alone:
    """The batch that an operator skips, with one dead letter."""
    ranges = folder.ranges(batch)
    done = skipped(batch, ranges, "events")
    columns = {
        "id": pa.array([done]),
        "position": pa.array([", ".join(part.text for part in ranges)]),
        "reason": pa.array([SKIPPED_BATCH]),
        "entity": pa.nulls(1, pa.string()),
        "dimension": pa.nulls(1, pa.string()),
        "at_ms": pa.nulls(1, pa.int64()),
        "units": pa.nulls(1, pa.float64()),
        "raw": pa.nulls(1, pa.binary()),
    }
    return Alone(batch, [("rejected", pack(pa.table(columns)))], done=done)
