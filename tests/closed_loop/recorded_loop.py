"""A closed loop whose rounds are written to a history, as the quota job writes them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.quota.config import NO_EARLIER_LIMITS
from quotaplane.quota.state import ShardState
from quotaplane.settings import History
from quotaplane.streams.quota.finisher import QuotaFinisher
from quotaplane.streams.quota.job import recorded_settings
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.quota.recorded_program import RecordedProgram
from quotaplane.streams.quota.report_watch import ReportWatch
from quotaplane.streams.shard_program import Arrived, Batch, Output
from tests.closed_loop.conftest import Loop
from tests.histories import make_history


class RecordedLoop(Loop):
    """``Loop`` with a history; ``killed_after`` rounds run twice, as after a crash."""

    def __init__(
        self, history: History, *args: Any, killed_after: frozenset[int] = frozenset(), **more: Any
    ) -> None:
        super().__init__(*args, **more)
        make_history(history)
        self._history, self._killed_after = history, killed_after
        self._packed: dict[str, list[bytes]] = defaultdict(list)
        self._stamp: Round | None = None
        self._inner = RecordedProgram(quota_program(self.settings, epoch=1), records=True)
        self._program = self  # type: ignore[assignment]
        self._open()

    def _open(self) -> None:
        reports = self.settings.reports
        watch = ReportWatch(reports.interval_s, reports.stop_when_unusable_intervals)
        recorded = {"settings": recorded_settings(self.settings), **NO_EARLIER_LIMITS.noted()}
        self._finisher = QuotaFinisher(watch, lambda seq: {"seq": seq}, recorded, interval_s=1.0)
        self._writer = HistoryWriter(self._history, "checkpoint-1")

    # The program that the loop runs is this object itself: it notes the outputs.
    def run(self, *args: Any) -> Any:  # type: ignore[override]
        if len(args) == 1:
            return super().run(*args)
        return self._shard(*args)

    def _shard(
        self, state: ShardState, arrived: Arrived, batch: Batch
    ) -> tuple[ShardState, Sequence[Output]]:
        state, outputs = self._inner.run(state, arrived, batch)
        self._stamp = Round(1, batch.seq, batch.now_ms)
        for output in outputs:
            self._packed[output.kind].append(output.payload)
        return state, outputs

    def _round(self) -> None:
        super()._round()
        packed, self._packed = dict(self._packed), defaultdict(list)
        assert self._stamp is not None
        tables = self._finisher.finish(self._stamp, packed).tables
        if self._stamp.seq in self._killed_after:
            half = {name: tables[name] for name in ("usage", "limits") if name in tables}
            self._writer.append_round(self._stamp, half)
            self._writer.close()
            self._open()  # a new process: it records its settings again
            tables = self._finisher.finish(self._stamp, packed).tables
        self._writer.append_round(self._stamp, tables)
