"""The stateful operator: transformWithStateInPandas by shard, around a program."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, Generic

import pandas as pd
from pyspark import TaskContext
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from quotaplane.streams.partition import partition_of
from quotaplane.streams.shard_program import Batch, Output, ShardProgram, State

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

EVENT_SCHEMA: Final = "kind string, key int, payload binary"
"""What goes in: see ``partition`` for the key."""
OUTPUT_SCHEMA: Final = "kind string, payload binary"
_BATCH_ID: Final = "streaming.sql.batchId"


def operate(events: DataFrame, program: ShardProgram[State], shards: int) -> DataFrame:
    """The outputs of a program that is run on a stream of events."""
    # A batch has one time, which Spark logs before it runs; timers have the same.
    return (
        events.withColumn("now_ms", F.unix_millis(F.current_timestamp()))
        .groupBy("key")
        .transformWithStateInPandas(
            ShardOperator(program, shards),
            outputStructType=OUTPUT_SCHEMA,
            outputMode="append",
            timeMode="ProcessingTime" if program.has_timer else "None",
        )
    )


class ShardOperator(StatefulProcessor, Generic[State]):
    """Keeps each shard's state as one blob, read once and written once a micro-batch.

    A list rather than a value: PySpark moves a list's elements as Arrow but pickles a value, which
    for a blob of 10 MB costs several times as much. Its second element is when the timer rings.
    """

    def __init__(self, program: ShardProgram[State], shards: int) -> None:
        self._program = program
        self._shards = shards

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._blob = handle.getListState(self._program.name, "blob binary")

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

    def close(self) -> None:
        pass

    def _run(self, key: Any, arrived: dict[str, list[bytes]], now_ms: int) -> pd.DataFrame:
        kept = self._blob.get()
        blob, pending = next(kept, None), next(kept, None)
        program = self._program
        state = program.load(None if blob is None else blob[0])
        outputs: list[Output] = []
        due_ms = program.due_ms(state)
        # A timer that rings early, or in a batch that brought events as well, finds nothing to do.
        if arrived or (due_ms is not None and due_ms <= now_ms):
            shard = int(partition_of([key[0]], self._shards)[0])
            state, found = program.run(state, arrived, Batch(shard, _batch_id(), now_ms))
            outputs = list(found)
        elements = [(program.dump(state),)]
        if program.has_timer:
            pending_ms = -1 if pending is None else int.from_bytes(pending[0], "big")
            next_ms = self._schedule(program.due_ms(state), now_ms, pending_ms)
            elements.append((next_ms.to_bytes(8, "big"),))
        self._blob.put(elements)
        return pd.DataFrame(outputs, columns=list(Output._fields))

    def _schedule(self, due_ms: int | None, now_ms: int, pending_ms: int) -> int:
        """When the shard's one timer rings; 0 for never. It may ring early, when events came
        meanwhile: then it is set anew, which is cheaper than moving it with every round.
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
