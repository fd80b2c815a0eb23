"""The stateful operator: runs a program per shard with transformWithStateInPandas."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Generic

from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle
from pyspark.sql.types import BinaryType, StructField, StructType

from quotaplane.streams.batch_inputs import batch_inputs
from quotaplane.streams.partition import partition_of
from quotaplane.streams.shard_program import Batch, Output, ShardProgram, State
from quotaplane.streams.task_files import TaskFiles

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame

EVENT_SCHEMA: Final = "kind string, key int, payload binary"
"""Columns of the input; for ``key`` see ``partition``."""
OUTPUT_SCHEMA: Final = "kind string, payload binary"
INITIAL_SCHEMA: Final = "key int, blob binary"
"""A shard's state as its program dumps it."""
_STATE_SCHEMA: Final = StructType([StructField("blob", BinaryType())])
"""As text, the JVM would parse it in each task."""
_BATCH_ID: Final = "streaming.sql.batchId"


def operate(
    events: DataFrame,
    program: ShardProgram[State],
    shards: int,
    files: TaskFiles | None = None,
    initial: DataFrame | None = None,
) -> DataFrame:
    """Run a program on a stream of events; returns its outputs.

    ``files`` writes some of the outputs into the history; None: all are returned. ``initial``
    (``INITIAL_SCHEMA``): the states with which a query's first batch begins; None: it has none.
    """
    # Spark logs a batch's time before it runs the batch; timers use the same time.
    return (
        events.withColumn("now_ms", F.unix_millis(F.current_timestamp()))
        .groupBy("key")
        .transformWithStateInPandas(
            ShardOperator(program, shards, files),
            outputStructType=OUTPUT_SCHEMA,
            outputMode="append",
            timeMode="ProcessingTime" if program.has_timer else "None",
            initialState=None if initial is None else initial.groupBy("key"),
        )
    )


class ShardOperator(StatefulProcessor, Generic[State]):
    """Keeps each shard's state as one blob, read and written once per micro-batch.

    The blob is in a list state, not a value state: PySpark moves list elements as Arrow but pickles
    values, which for 10 MB costs several times as much. The list's second element is the time of
    the pending timer.
    """

    def __init__(
        self, program: ShardProgram[State], shards: int, files: TaskFiles | None = None
    ) -> None:
        self._program = program
        self._shards = shards
        self._files = files

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._blob = handle.getListState(self._program.name, _STATE_SCHEMA)

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        now_ms, arrived = 0, defaultdict[str, list[bytes]](list)
        for frame in rows:
            now_ms = int(frame["now_ms"].iloc[0])
            for kind, payload in zip(frame["kind"], frame["payload"], strict=True):
                arrived[kind].append(payload)
        yield self._run(key, arrived, now_ms)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        yield self._run(key, {}, timerValues.getCurrentProcessingTimeInMs())

    def handleInitialState(self, key: Any, rows: pd.DataFrame, timerValues: Any) -> None:
        state = self._program.load(bytes(rows["blob"].iloc[0]))
        self._keep(state, timerValues.getCurrentProcessingTimeInMs(), pending_ms=-1)

    def close(self) -> None:
        pass

    def _run(self, key: Any, arrived: dict[str, list[bytes]], now_ms: int) -> pd.DataFrame:
        import pandas as pd  # a process that only plans the query does without

        elements_read = self._blob.get()
        blob, pending = next(elements_read, None), next(elements_read, None)
        program = self._program
        state = program.load(None if blob is None else blob[0])
        outputs: list[tuple[str, bytes]] = []
        due_ms = program.due_ms(state)
        # A timer that fires early, or in a batch with events, has nothing to do.
        if arrived or (due_ms is not None and due_ms <= now_ms):
            shard = int(partition_of([key[0]], self._shards)[0])
            inputs = {**arrived, **batch_inputs()}
            batch = Batch(shard, _batch_id(), now_ms)
            state, emitted = program.run(state, inputs, batch)
            outputs = self._without_written(emitted, batch)
        self._keep(state, now_ms, -1 if pending is None else int.from_bytes(pending[0], "big"))
        return pd.DataFrame(outputs, columns=["kind", "payload"])

    def _keep(self, state: State, now_ms: int, pending_ms: int) -> None:
        """Store the state, and set its timer; ``pending_ms``: the one that is set, -1: none."""
        program = self._program
        elements = [(program.dump(state),)]
        if program.has_timer:
            next_ms = self._schedule(program.due_ms(state), now_ms, pending_ms)
            elements.append((next_ms.to_bytes(8, "big"),))
        self._blob.put(elements)

    def _without_written(self, outputs: Sequence[Output], batch: Batch) -> list[tuple[str, bytes]]:
        left = outputs if self._files is None else self._files.without_written(outputs, batch)
        return [(output.kind, output.payload) for output in left]

    def _schedule(self, due_ms: int | None, now_ms: int, pending_ms: int) -> int:
        """Set the shard's one timer; returns its time, 0 for none.

        If the due time moves later, the pending timer stays, fires early, and is set again then:
        that is cheaper than moving it in every round.
        """
        if due_ms is None or now_ms < pending_ms <= due_ms:
            return max(pending_ms, 0)
        if pending_ms > now_ms:
            self._handle.deleteTimer(pending_ms)
        due_ms = max(due_ms, now_ms + 1)
        self._handle.registerTimer(due_ms)
        return due_ms


def _batch_id() -> int:
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH_ID)
    if batch is None:
        raise RuntimeError("the operator runs inside a streaming task only")
    return int(batch)
