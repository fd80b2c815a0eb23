"""The throttle job: request events from a topic, decisions to a topic and to the history."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812

from quotaplane.arrow_ipc import pack
from quotaplane.history.store import table_uri
from quotaplane.history.tables import THROTTLED
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
from quotaplane.throttle.requests import Bounds
from quotaplane.transport import open_transport
from quotaplane.transport.base import Message, Topics, Transport
from quotaplane.wire.json_rows import json_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


class ThrottleFinisher(Finisher):
    """See ``sink.Finisher``."""

    def finish(self, stamp: Round, packed: Packed) -> Finished:
        """Rows by history table, a message for each decision, and counts."""
        tables = {_TABLES[kind]: _ROWS[kind](joined(payloads)) for kind, payloads in packed.items()}
        decided = tables.get("decisions")
        return Finished(tables, [] if decided is None else messages(decided), status_update(tables))


def status_update(tables: Mapping[str, pa.Table]) -> StatusUpdate:
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
    return StatusUpdate(counts, rejected, gauges, counts["events"] + sum(rejected.values()))


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


class ThrottleSpec(JobSpec):
    """What the throttle job declares: see ``JobSpec``."""

    name = "throttle"
    query_name = "quotaplane-throttle"
    inputs_noun = "events"
    tables = THROTTLED

    def __init__(self, settings: Settings) -> None:
        super().__init__(settings)
        self.checkpoint = f"{settings.checkpoint.rstrip('/')}-throttle"
        """The quota job's own is beside it."""

    def open_transport(self) -> Transport:
        """The topics of request events, and of decisions."""
        return open_topics(self.settings)

    def program(self, epoch: int) -> ThrottleProgram:
        """Answers to request events."""
        return ThrottleProgram(bounds_of(self.settings.throttle))

    def inputs(self, spark: SparkSession, arriving: DataFrame) -> DataFrame:
        """Request events, and changes of the table of groups."""
        shards = self.settings.shards
        requests = request_inputs(request_events(arriving), shards)
        return requests.unionByName(group_events(spark, self.settings.history, shards))

    def finisher(self, folder: CheckpointFolder) -> ThrottleFinisher:
        """Rows, messages and counts."""
        return ThrottleFinisher()

    def letters(self, epoch: int, batch: Batch, left_out: Sequence[LeftOut]) -> Sequence[Output]:
        """Rejected events that stand for all that are left out."""
        count = len(left_out)
        columns = {
            "id": pa.array([each.detail for each in left_out]),
            "position": pa.array([each.position for each in left_out]),
            "reason": pa.array([each.reason for each in left_out]),
            "entity": pa.nulls(count, pa.string()),
            "dimension": pa.nulls(count, pa.string()),
            "at_ms": pa.nulls(count, pa.int64()),
            "units": pa.nulls(count, pa.float64()),
            "raw": pa.nulls(count, pa.binary()),
        }
        return [Output("rejected", pack(pa.table(columns)))]

    def status(self) -> JobStatus:
        """What the status line shows."""
        return JobStatus(COUNTERS, GAUGES, time.monotonic)

    def in_words(self) -> Sequence[str]:
        """Topics, and the table of quotas."""
        events, decisions = topics_of(self.settings.throttle)
        quotas = absolute(table_uri(self.settings.history, "resource_groups"))
        return (
            transport_in_words(self.settings.transport, [events], decisions),
            f"follows the quotas in {quotas}",
        )
