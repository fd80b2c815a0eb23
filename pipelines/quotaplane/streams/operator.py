"""The stateful operator: transformWithStateInPandas by shard, around ``rounds.run_round``."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pandas as pd
from pyspark import TaskContext
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from quotaplane.control import next_due_ms
from quotaplane.settings import Settings
from quotaplane.state import ShardState
from quotaplane.streams.rounds import Output, RoundConfig, round_config, run_round

EVENT_SCHEMA = "kind string, shard int, payload binary"
OUTPUT_SCHEMA = "kind string, key string, payload binary"
_BATCH_ID = "streaming.sql.batchId"


class QuotaOperator(StatefulProcessor):
    """Keeps one shard's state as one blob, read once and written once a round.

    A list of one element rather than a value: PySpark moves a list's elements as Arrow but pickles
    a value, which for a blob of 10 MB costs several times as much.
    """

    def __init__(self, settings: Settings, epoch: int) -> None:
        self._settings = settings
        self._epoch = epoch

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._config: RoundConfig = round_config(self._settings, self._epoch)
        self._handle = handle
        self._blob = handle.getListState("shard", "blob binary")
        self._due = handle.getValueState("due", "at_ms long")

    def handleInputRows(
        self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any
    ) -> Iterator[pd.DataFrame]:
        arrived: dict[str, list[bytes]] = defaultdict(list)
        for frame in rows:
            for kind, payload in zip(frame["kind"], frame["payload"], strict=True):
                arrived[kind].append(payload)
        yield self._round(key, arrived, timerValues)

    def handleExpiredTimer(
        self, key: Any, timerValues: Any, expiredTimerInfo: Any
    ) -> Iterator[pd.DataFrame]:
        self._due.clear()
        yield self._round(key, {}, timerValues)

    def close(self) -> None:
        pass

    def _round(self, key: Any, arrived: dict[str, list[bytes]], timers: Any) -> pd.DataFrame:
        now_ms = timers.getCurrentProcessingTimeInMs()
        blob = next(iter(self._blob.get()), None)
        state, outputs = run_round(
            ShardState() if blob is None else ShardState.from_bytes(blob[0]),
            arrived,
            shard=int(key[0]),
            seq=_batch_id(),
            now_ms=now_ms,
            config=self._config,
        )
        self._blob.put([(state.to_bytes(),)])
        self._schedule(state, now_ms)
        return pd.DataFrame(outputs, columns=list(Output._fields))

    def _schedule(self, state: ShardState, now_ms: int) -> None:
        """One timer at a time. It may ring early, when reports came meanwhile: then it is set anew,
        which is cheaper than moving it with every round."""
        due_ms = next_due_ms(state, self._config.step)
        if due_ms is None:
            return
        pending = self._due.get()
        if pending is None or pending[0] > due_ms or pending[0] <= now_ms:
            if pending is not None:
                self._handle.deleteTimer(pending[0])
            due_ms = max(due_ms, now_ms + 1)
            self._handle.registerTimer(due_ms)
            self._due.update((due_ms,))


def _batch_id() -> int:
    context = TaskContext.get()
    if context is None:
        raise RuntimeError("the quota operator runs inside a Spark task only")
    return int(context.getLocalProperty(_BATCH_ID))
