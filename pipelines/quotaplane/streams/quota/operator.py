"""The stateful operator: transformWithStateInPandas by shard, around ``rounds.run_round``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import dump, load
from quotaplane.quota.step import next_due_ms
from quotaplane.streams.partition import partition_of
from quotaplane.streams.quota.round import Output, RoundConfig, run_round

EVENT_SCHEMA = "kind string, key int, payload binary"
OUTPUT_SCHEMA = "kind string, payload binary"
_BATCH_ID = "streaming.sql.batchId"


class QuotaOperator(StatefulProcessor):
    """Keeps one shard's state as one blob, read once and written once a round.

    A list rather than a value: PySpark moves a list's elements as Arrow but pickles a value, which
    for a blob of 10 MB costs several times as much. Its second element is when the timer rings.
    """

    def __init__(self, config: RoundConfig, shards: int) -> None:
        self._config = config
        self._shards = shards

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._blob = handle.getListState("shard", "blob binary")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        yield self._round(key, by_kind(rows), timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        yield self._round(key, {}, timerValues)

    def close(self) -> None:
        pass

    def _round(self, key: Any, arrived: dict[str, list[bytes]], timers: Any) -> pd.DataFrame:
        now_ms = timers.getCurrentProcessingTimeInMs()
        kept = self._blob.get()
        blob, due = next(kept, None), next(kept, None)
        state = ShardState() if blob is None else load(blob[0])
        outputs: list[Output] = []
        awaited_ms = next_due_ms(state, self._config.step)
        # A timer that rings early, or in a batch that brought reports as well, finds nothing to do.
        if arrived or (awaited_ms is not None and awaited_ms <= now_ms):
            state, outputs = run_round(
                state,
                arrived,
                shard=int(partition_of([key[0]], self._shards)[0]),
                seq=_batch_id(),
                now_ms=now_ms,
                config=self._config,
            )
        due_ms = self._schedule(state, now_ms, -1 if due is None else int.from_bytes(due[0], "big"))
        self._blob.put([(dump(state),), (due_ms.to_bytes(8, "big"),)])
        return pd.DataFrame(outputs, columns=list(Output._fields))

    def _schedule(self, state: ShardState, now_ms: int, pending_ms: int) -> int:
        """When the shard's one timer rings; 0 for never. It may ring early, when reports came
        meanwhile: then it is set anew, which is cheaper than moving it with every round.
        """
        due_ms = next_due_ms(state, self._config.step)
        if due_ms is None or now_ms < pending_ms <= due_ms:
            return max(pending_ms, 0)
        if pending_ms > now_ms:
            self._handle.deleteTimer(pending_ms)
        due_ms = max(due_ms, now_ms + 1)
        self._handle.registerTimer(due_ms)
        return due_ms


def by_kind(rows: Iterator[pd.DataFrame]) -> dict[str, list[bytes]]:
    """The payloads that arrived for a shard; none of a kind is an empty list."""
    arrived: dict[str, list[bytes]] = defaultdict(list)
    for frame in rows:
        for kind, payload in zip(frame["kind"], frame["payload"], strict=True):
            arrived[kind].append(payload)
    return arrived


def _batch_id() -> int:
    context = TaskContext.get()
    batch = None if context is None else context.getLocalProperty(_BATCH_ID)
    if batch is None:
        raise RuntimeError("the quota operator runs inside a streaming task only")
    return int(batch)
