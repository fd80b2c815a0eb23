"""The throttle job: reads request events, writes decisions to a topic and to the history."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from quotaplane.arrow_ipc import pack
from quotaplane.history.store import table_uri
from quotaplane.history.throttle_tables import THROTTLED
from quotaplane.model import DIMENSIONS, Round
from quotaplane.settings import KafkaTransport, PulsarTransport, Settings, Throttle
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.job import JobSpec
from quotaplane.streams.job_output import absolute, transport_in_words
from quotaplane.streams.lone_batches import LeftOut
from quotaplane.streams.shard_program import Batch, Output
from quotaplane.streams.sink import Finished, Finisher, Packed, joined
from quotaplane.streams.sources import group_events
from quotaplane.streams.status import JobStatus, StatusUpdate
from quotaplane.streams.throttle.frames import PIECE, request_inputs
from quotaplane.streams.throttle.program import ThrottleProgram
from quotaplane.texts import LATEST_MS
from quotaplane.throttle.requests import Bounds
from quotaplane.transport import open_transport
from quotaplane.transport.base import Message, Topics, Transport
from quotaplane.wire.json_rows import json_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COUNTERS: Final = ("events", "refused", "delayed")
GAUGES: Final = ("lag_s", "backlog")
"""Fields of the status line; docs/runbook.md explains them."""

SESSION: Final = {"spark.sql.execution.arrow.maxRecordsPerBatch": str(PIECE // 10)}
"""Rows are smaller here than in the quota job."""

_EVENT: Final = "id string, entity string, at_ms long, units double, dimension string"
_END: Final = "what ends the message"
_RAW_BYTES: Final = 4096
_MOST_EVENT_BYTES: Final = 64 << 10
"""A larger message is not read: all events of a micro-batch are in memory together."""


def bounds_of(throttle: Throttle) -> Bounds:
    """The settings' bounds in milliseconds."""
    return Bounds(round(throttle.max_lateness_s * 1000), round(throttle.max_clock_skew_s * 1000))


def topics_of(throttle: Throttle) -> Topics:
    """The topics that the job reads and writes."""
    return Topics(throttle.events_topic, throttle.decisions_topic)


def open_topics(settings: Settings) -> Transport:
    """Open the settings' transport, with events for reports and decisions for limits."""
    transport = settings.transport
    if isinstance(transport, (KafkaTransport, PulsarTransport)):
        most = {"max_reports_per_trigger": settings.throttle.max_events_per_trigger}
        transport = transport.model_copy(update=most)
    return open_transport(transport, topics_of(settings.throttle))


def request_events(rows: DataFrame) -> DataFrame:
    """Parse messages (``value``, ``position``) of JSON into events: see docs/dry-run.md.

    A field that is missing or has another type is null. All fields are null if the message is too
    large, or not exactly one JSON object. ``raw`` has the message, cut off, if the event can't be
    used.
    """
    fits = F.octet_length("value") <= _MOST_EVENT_BYTES
    text = F.when(fits, F.col("value")).cast("string")
    # from_json reads the first object and ignores the rest; inside a list it rejects the rest.
    listed = F.concat(F.lit("["), text, F.lit(f',{{"{_END}":true}}]'))
    ends = F.from_json(listed, f"array<struct<`{_END}`:boolean>>")[_END]
    whole = (F.size(ends) == 2) & F.element_at(ends, -1)
    parsed = F.when(whole, F.from_json(text, _EVENT))
    read = rows.select(parsed.alias("parsed"), "value", "position").select(
        "parsed.*", "position", "value"
    )
    at_ms = F.col("at_ms")
    at = F.when(at_ms.between(0, LATEST_MS), F.timestamp_millis(at_ms))
    finite = F.abs("units") < float("inf")  # NaN compares greater than inf
    unusable = F.col("entity").isNull() | F.col("at").isNull() | ~F.coalesce(finite, F.lit(False))
    raw = F.when(unusable, F.substring("value", 1, _RAW_BYTES))
    return read.withColumn("at", at).withColumn("raw", raw).drop("at_ms", "value")


class ThrottleFinisher(Finisher):
    """See ``sink.Finisher``."""

    def finish(self, stamp: Round, packed: Packed) -> Finished:
        """Rows by history table, a message for each decision, and counts."""
        tables = {_TABLES[kind]: _ROWS[kind](joined(payloads)) for kind, payloads in packed.items()}
        decided = tables.get("decisions")
        return Finished(tables, [] if decided is None else messages(decided), status_update(tables))


def status_update(tables: Mapping[str, pa.Table]) -> StatusUpdate:
    """A round's contribution to the status line."""
    counts = dict.fromkeys(COUNTERS, 0)
    gauges: dict[str, float] = {}
    if "decisions" in tables:
        decisions = tables["decisions"]
        newest_ms = pc.max(decisions["requested_at_ms"]).as_py()
        counts["events"] = len(decisions)
        counts["refused"] = int(pc.sum(pc.invert(decisions["admitted"])).as_py() or 0)
        counts["delayed"] = int(pc.sum(pc.greater(decisions["throttle_ms"], 0)).as_py() or 0)
        gauges["lag_s"] = time.time() - newest_ms / 1000
    rejected: dict[str, int] = {}
    if "rejected_events" in tables:
        reasons = pc.value_counts(tables["rejected_events"]["reason"]).to_pylist()
        rejected = {reason["values"]: reason["counts"] for reason in reasons}
        counts["dead_letters"] = len(tables["rejected_events"])
    return StatusUpdate(counts, rejected, gauges, counts["events"] + sum(rejected.values()))


def messages(decisions: pa.Table) -> list[Message]:
    """One message per decision: JSON, keyed by entity."""
    values = json_rows(decisions.rename_columns({"requested_at_ms": "at_ms"}))
    keys = decisions["entity"].to_pylist()
    return list(map(Message, keys, values.cast(pa.binary()).to_pylist()))


def _decisions(decided: pa.Table) -> pa.Table:
    names = ["entity", "dimension", "at_ms", "units", "id", "position"]
    names += ["admitted", "throttle_ms", "balance", "error", "late_ms", "enforced"]
    dimension = decided["dimension"].fill_null(DIMENSIONS[0])
    decided = decided.set_column(decided.column_names.index("dimension"), "dimension", dimension)
    return decided.select(names).rename_columns({"at_ms": "requested_at_ms"})


def _rejected(rejected: pa.Table) -> pa.Table:
    names = ["id", "position", "reason", "entity", "dimension", "at_ms", "units", "raw"]
    at_ms = rejected["at_ms"].fill_null(-1)  # the history's value for null
    rejected = rejected.set_column(rejected.column_names.index("at_ms"), "at_ms", at_ms)
    return rejected.select(names).rename_columns({"at_ms": "requested_at_ms"})


_TABLES: Final = {
    "decisions": "decisions",
    "rejected": "rejected_events",
    "metrics": "throttle_metrics",
}
_ROWS: Final[dict[str, Callable[[pa.Table], pa.Table]]] = {
    "decisions": _decisions,
    "rejected": _rejected,
    "metrics": lambda metrics: metrics,
}


class ThrottleSpec(JobSpec):
    """The throttle job's declarations: see ``JobSpec``."""

    name = "throttle"
    query_name = "quotaplane-throttle"
    inputs_noun = "events"
    tables = THROTTLED

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.checkpoint = f"{settings.checkpoint.rstrip('/')}-throttle"
        """A folder beside the quota job's checkpoint."""

    def open_transport(self) -> Transport:
        """Open the topics of request events and decisions."""
        return open_topics(self.settings)

    def program(self, epoch: int) -> ThrottleProgram:
        """The program that answers request events."""
        return ThrottleProgram(bounds_of(self.settings.throttle))

    def inputs(self, spark: SparkSession, arriving: DataFrame) -> DataFrame:
        """Request events, and changes of the table ``resource_groups``."""
        shards = self.settings.shards
        requests = request_inputs(request_events(arriving), shards)
        return requests.unionByName(group_events(spark, self.settings.history, shards))

    def finisher(self, folder: CheckpointFolder) -> ThrottleFinisher:
        """Rows, messages and counts."""
        return ThrottleFinisher()

    def letters(self, epoch: int, batch: Batch, left_out: Sequence[LeftOut]) -> Sequence[Output]:
        """Rejected events that stand for the input left out."""
        count = len(left_out)
        columns = {
            "id": pa.array([part.detail for part in left_out]),
            "position": pa.array([part.position for part in left_out]),
            "reason": pa.array([part.reason for part in left_out]),
            "entity": pa.nulls(count, pa.string()),
            "dimension": pa.nulls(count, pa.string()),
            "at_ms": pa.nulls(count, pa.int64()),
            "units": pa.nulls(count, pa.float64()),
            "raw": pa.nulls(count, pa.binary()),
        }
        return [Output("rejected", pack(pa.table(columns)))]

    def status(self) -> JobStatus:
        """Counters and gauges of the status line."""
        return JobStatus(COUNTERS, GAUGES, time.monotonic)

    def in_words(self) -> Sequence[str]:
        """Topics, and the table of quotas."""
        events, decisions = topics_of(self.settings.throttle)
        quotas = absolute(table_uri(self.settings.history, "resource_groups"))
        return (
            transport_in_words(self.settings.transport, [events], decisions),
            f"follows the quotas in {quotas}",
        )
