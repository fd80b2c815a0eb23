"""Throttle laws as DataFrame functions: a dry run over a table, or decisions on a stream.

Both run the pure step ``throttle.step``. A table is partitioned by entity, sorted by time, and
processed in pieces; a stream keeps the entities' states of each shard in Spark's state.
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
"""Events per step: enough to use arrays efficiently, few enough for the processor's cache."""

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
    """All results in one frame: ``outputs`` has the columns ``kind`` and ``payload``.

    To use more than one kind, ``persist()`` the frame first, or it is computed again for each. On a
    stream do so inside ``foreachBatch``, with ``of`` for each batch's outputs.
    """

    outputs: DataFrame
    events: StructType
    """The columns of the events."""

    def of(self, outputs: DataFrame) -> Throttled:
        """The same for one micro-batch."""
        return replace(self, outputs=outputs)

    def decisions(self) -> DataFrame:
        """The events that could be used, with the columns ``throttle.step.DECIDED``."""
        return self._unpacked("decisions", _joined(self.events, DECIDED))

    def rejected(self) -> DataFrame:
        """The events that could not be used, with ``reason`` (``throttle.requests.REASONS``)."""
        return self._unpacked("rejected", StructType(list(self.events)).add("reason", "string"))

    def metrics(self) -> DataFrame:
        """Each entity's activity in each step (``throttle.step.METRICS``), times as timestamps."""
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
    """One row per entity from the metrics of several steps.

    Counts and units are summed; the other columns have the values after the entity's last event.
    """
    added = ("events", "refused", "delayed", "late", "units_asked", "units_admitted")
    times = F.min("since").alias("since"), F.max("until").alias("until")
    # Of steps that end at the same time the last counts; an entity has all in one partition.
    step = F.struct("until", "step")
    last = [F.max_by(name, step).alias(name) for name in ("rate_per_s", "tokens", "throttle_ms")]
    sums = [F.sum(name).alias(name) for name in added]
    numbered = metrics.withColumn("step", F.monotonically_increasing_id())
    return numbered.groupBy("entity", "dimension").agg(*times, *sums, *last)


def throttle_table(
    events: DataFrame, definitions: DataFrame | pd.DataFrame | pa.Table, bounds: Bounds
) -> Throttled:
    """Apply quotas to recorded events; evaluated lazily.

    Args:
        events: ``entity`` (string), ``at`` (timestamp), ``units`` (a number), and optionally
            ``dimension`` and ``position`` (strings, see ``throttle.requests.EVENTS``). Other
            columns are passed through.
        definitions: columns of ``throttle.entities.DEFINITIONS``; others are ignored.
        bounds: how late or early events may be; here events are in time order, so none is late.

    Raises:
        InputError: a column is missing, has another type, or the name of a column that is added; or
            a group is defined twice.
    """
    checked = _checked(events)
    checked_definitions = definitions_from(definitions)
    now_ms = time.time_ns() // 1_000_000

    def answers(batches: Batches) -> Iterator[pa.RecordBatch]:
        states = begin(checked_definitions)
        for piece in _pieces(batches):
            states, decided = decide(states, piece, now_ms, bounds)
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
    """Decide on a stream of events, each in the micro-batch that reads it.

    Args:
        events: as for ``throttle_table``, streaming.
        definitions: as for ``throttle_table``; or a stream, the result of ``sources.group_events``
            for the same number of shards: a change applies from its micro-batch on.
        bounds: how late or early events may be.
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
    """Definitions in the form that ``throttle.entities`` needs.

    Raises:
        InputError: the column ``group`` is missing, or a group is defined twice.
    """
    if isinstance(given, pd.DataFrame):
        table = pa.Table.from_pandas(given, preserve_index=False)
    else:
        table = given if isinstance(given, pa.Table) else given.toArrow()
    if "group" not in table.column_names:
        raise InputError("definitions: column group is missing")
    checked = begin(table).definitions
    names = pc.value_counts(checked["group"].combine_chunks())
    twice = names.filter(pc.greater(names.field("counts"), 1))
    if len(twice):
        raise InputError(f"definitions: group {twice[0]['values'].as_py()!r} is defined twice")
    return checked


def _checked(events: DataFrame) -> DataFrame:
    # Spark ignores the case of column names, Arrow does not.
    spelled = [name.lower() for name in events.columns]
    for name in events.columns:
        if spelled.count(name.lower()) > 1:
            raise InputError(f"events: column {name} occurs twice (case is ignored)")
        if name.lower() in _KINDS and name not in _KINDS:
            raise InputError(f"events: column {name} must be called {name.lower()}")
    for name, (kind, wanted) in _KINDS.items():
        if name in events.columns:
            actual = events.schema[name].dataType
            if not isinstance(actual, kind):
                raise InputError(
                    f"events: column {name} must be {wanted}, not {actual.simpleString()}"
                )
        elif name in _NEEDED:
            raise InputError(f"events: column {name} is missing")
    taken = [name for name in events.columns if name.lower() in _OWN]
    if taken:
        raise InputError(f"events: column {taken[0]} has the name of a column that is added")
    return events.withColumn("at_ms", F.unix_millis("at"))


def _pieces(batches: Batches) -> Iterator[pa.Table]:
    """A task's batches, joined into pieces of ``PIECE`` rows or more."""
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
    # The same shard as in the change feed, which brings the entity's definition.
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
