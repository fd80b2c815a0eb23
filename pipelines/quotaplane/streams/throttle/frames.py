"""Throttle laws on request events of any source: a dry run over a table, or decisions in a stream.

Both are Spark around one pure step (``throttle.decide``). A table is cut into parts by entity, each
sorted by time and answered piece by piece; a stream keeps each shard's ledger in its state.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import NumericType, StringType, StructType, TimestampType

from quotaplane.arrow_ipc import pack, unpack
from quotaplane.errors import InputError
from quotaplane.model import group_id, shard_of
from quotaplane.streams.operator import EVENT_SCHEMA, OUTPUT_SCHEMA, operate
from quotaplane.streams.partition import keys_of_shards
from quotaplane.streams.sources import Batches, Mapper, packed_events
from quotaplane.streams.throttle.program import ThrottleProgram, outputs_of
from quotaplane.throttle.entities import begin
from quotaplane.throttle.requests import Bounds
from quotaplane.throttle.step import DECIDED, METRICS, decide

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

PIECE: Final = 100_000
"""Events answered at once: enough that arrays pay, few enough for the processor's cache."""

_KINDS: Final[dict[str, tuple[type, str]]] = {
    "entity": (StringType, "a string"),
    "at": (TimestampType, "a timestamp"),
    "units": (NumericType, "a number"),
    "dimension": (StringType, "a string"),
    "position": (StringType, "a string"),
}
_NEEDED: Final = ("entity", "at", "units")
_OWN: Final = ("at_ms", "reason", *DECIDED.names)


@dataclass(frozen=True)
class Throttled:
    """What came of events, all in one: ``outputs`` has the columns ``kind`` and ``payload``.

    Who takes more than one kind of it should ``persist()`` it before, or it is computed anew; in a
    stream that is inside ``foreachBatch``, where ``of`` puts a batch's outputs in their place.
    """

    outputs: DataFrame
    events: StructType
    """Columns of the events."""

    def of(self, outputs: DataFrame) -> Throttled:
        """The same of one micro-batch."""
        return replace(self, outputs=outputs)

    def decisions(self) -> DataFrame:
        """The events that could be used, with the columns of ``throttle.decide.DECIDED``."""
        return self._unpacked("decisions", _joined(self.events, DECIDED))

    def rejected(self) -> DataFrame:
        """The events that could not be used, with ``reason`` (``throttle.events.REASONS``)."""
        return self._unpacked("rejected", StructType(list(self.events)).add("reason", "string"))

    def metrics(self) -> DataFrame:
        """What each entity did in each step: ``throttle.decide.METRICS``, its times timestamps."""
        rows = self._unpacked("metrics", from_arrow_schema(METRICS))
        for name in ("since", "until"):
            rows = rows.withColumn(f"{name}_ms", F.timestamp_millis(f"{name}_ms"))
            rows = rows.withColumnRenamed(f"{name}_ms", name)
        return rows

    def _unpacked(self, kind: str, schema: StructType) -> DataFrame:
        def rows(batches: Batches) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                for payload in batch["payload"].to_pylist():
                    for table in unpack(payload):
                        yield from table.select(schema.names).to_batches()

        return self.outputs.where(F.col("kind") == kind).select("payload").mapInArrow(rows, schema)


def totals(metrics: DataFrame) -> DataFrame:
    """Metrics of several steps as one row for each entity: counts and units over all of them, the
    others as of its last event.
    """
    added = ("events", "refused", "delayed", "late", "units_asked", "units_admitted")
    times = F.min("since").alias("since"), F.max("until").alias("until")
    # Of steps that end at the same time the last one counts; an entity's are all in one partition.
    step = F.struct("until", "step")
    last = [F.max_by(name, step).alias(name) for name in ("rate_per_s", "tokens", "throttle_ms")]
    sums = [F.sum(name).alias(name) for name in added]
    numbered = metrics.withColumn("step", F.monotonically_increasing_id())
    return numbered.groupBy("entity", "dimension").agg(*times, *sums, *last)


def throttle_table(
    events: DataFrame, definitions: DataFrame | pd.DataFrame | pa.Table, bounds: Bounds
) -> Throttled:
    """What quotas would have done to recorded events; nothing runs before the answer is read.

    Args:
        events: ``entity`` (string), ``at`` (timestamp), ``units`` (a number), and if they have it
            ``dimension`` and ``position`` (strings, see ``throttle.events.EVENTS``). Other columns
            are passed on.
        definitions: columns of ``throttle.ledger.DEFINITIONS``; others are not looked at.
        bounds: all events are in the order of time, so that none is late.

    Raises:
        InputError: a column is missing, of another type, or has the name of one that is added; or
            a group is defined twice.
    """
    checked = _checked(events)
    told = definitions_from(definitions)
    now_ms = time.time_ns() // 1_000_000

    def answers(batches: Batches) -> Iterator[pa.RecordBatch]:
        ledger = begin(told)
        for piece in _pieces(batches):
            ledger, decided = decide(ledger, piece, now_ms, bounds)
            rows = [output._asdict() for output in outputs_of(decided)]
            yield pa.RecordBatch.from_pylist(rows, _OUTPUT)

    tie = [F.length("position"), "position"] if "position" in checked.columns else ["units"]
    parts = int(checked.sparkSession.conf.get("spark.sql.shuffle.partitions") or 1)
    outputs = (
        checked.repartition(parts, "entity")
        .sortWithinPartitions("at_ms", *tie)
        .mapInArrow(answers, OUTPUT_SCHEMA)
    )
    return Throttled(outputs, events.schema)


def throttle_stream(
    events: DataFrame,
    definitions: DataFrame | pd.DataFrame | pa.Table,
    bounds: Bounds,
    *,
    shards: int,
) -> Throttled:
    """Decisions on a stream of events, each answered in the micro-batch that brings it.

    Args:
        events: as ``throttle_table`` takes them, streaming.
        definitions: as there; or streaming, what ``sources.group_events`` makes of the change feed
            of ``resource_groups`` for as many shards: a change holds from its micro-batch on.
        bounds: see ``throttle.decide``.
        shards: of the state; ``spark.sql.shuffle.partitions`` should be the same number.

    Raises:
        InputError: as ``throttle_table``.
    """
    arrived = request_inputs(events, shards)
    fixed = None
    if isinstance(definitions, pa.Table | pd.DataFrame) or not definitions.isStreaming:
        fixed = definitions_from(definitions)
    else:
        arrived = arrived.unionByName(definitions)
    outputs = operate(arrived, ThrottleProgram(bounds, fixed), shards)
    return Throttled(outputs, events.schema)


def request_inputs(events: DataFrame, shards: int) -> DataFrame:
    """Request events as the operator takes them.

    Raises:
        InputError: as ``throttle_table``.
    """
    return _checked(events).mapInArrow(_to_events(shards), EVENT_SCHEMA)


def definitions_from(given: DataFrame | pd.DataFrame | pa.Table) -> pa.Table:
    """Definitions as the ledger takes them.

    Raises:
        InputError: there is no column ``group``, or a group is there twice.
    """
    if isinstance(given, pd.DataFrame):
        table = pa.Table.from_pandas(given, preserve_index=False)
    else:
        table = given if isinstance(given, pa.Table) else given.toArrow()
    if "group" not in table.column_names:
        raise InputError("definitions: column group is missing")
    told = begin(table).definitions
    names = pc.value_counts(told["group"].combine_chunks())
    twice = names.filter(pc.greater(names.field("counts"), 1))
    if len(twice):
        raise InputError(f"definitions: group {twice[0]['values'].as_py()!r} is there twice")
    return told


def _checked(events: DataFrame) -> DataFrame:
    # To Spark they are the same names, whatever their case; to tables in Arrow they are not.
    spelled = [name.lower() for name in events.columns]
    for name in events.columns:
        if spelled.count(name.lower()) > 1:
            raise InputError(f"events: column {name} is there twice, in whatever case")
        if name.lower() in _KINDS and name not in _KINDS:
            raise InputError(f"events: column {name} must be called {name.lower()}")
    for name, (kind, wanted) in _KINDS.items():
        if name in events.columns:
            there = events.schema[name].dataType
            if not isinstance(there, kind):
                raise InputError(
                    f"events: column {name} must be {wanted}, not {there.simpleString()}"
                )
        elif name in _NEEDED:
            raise InputError(f"events: column {name} is missing")
    taken = [name for name in events.columns if name.lower() in _OWN]
    if taken:
        raise InputError(f"events: column {taken[0]} has the name of one that is added")
    return events.withColumn("at_ms", F.unix_millis("at"))


def _pieces(batches: Batches) -> Iterator[pa.Table]:
    """The batches of a task, as many together as make a piece."""
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in batches:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= PIECE:
            yield pa.Table.from_batches(waiting)
            waiting, rows = [], 0
    if rows:
        yield pa.Table.from_batches(waiting)


def _to_events(shards: int) -> Mapper:
    keys = keys_of_shards(shards)

    def to_events(batches: Batches) -> Iterator[pa.RecordBatch]:
        for piece in _pieces(batches):
            yield packed_events("requests", _by_shard(piece, shards), keys)

    return to_events


def _by_shard(events: pa.Table, shards: int) -> Iterator[tuple[int, bytes]]:
    names = events["entity"].fill_null("").combine_chunks().dictionary_encode()
    if isinstance(names, pa.ChunkedArray):
        names = names.chunk(0)
    # As the change feed's, where an entity's definition comes from.
    shard_of_name = [shard_of(group_id(name), shards) for name in names.dictionary.to_pylist()]
    shard = np.array(shard_of_name, np.int64)[names.indices.to_numpy()]
    order = np.argsort(shard, kind="stable")
    ends = np.cumsum(np.bincount(shard, minlength=shards))
    rows = events.take(pa.array(order))
    for number, (begun, end) in enumerate(
        zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True)
    ):
        if begun < end:
            yield number, pack(rows.slice(begun, end - begun))


def _joined(events: StructType, added: pa.Schema) -> StructType:
    return StructType([*events, *from_arrow_schema(added)])


_OUTPUT: Final = pa.schema([("kind", pa.string()), ("payload", pa.binary())])
