"""Closed loops with the job's finisher: rounds are written to a history, as the job writes them."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from quotaplane.agents.conditions import Conditions
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.quota.config import EarlierLimits
from quotaplane.settings import History
from quotaplane.streams.quota.finisher import QuotaFinisher
from quotaplane.streams.quota.job import recorded_settings
from quotaplane.streams.quota.recorded_program import RecordedProgram
from quotaplane.streams.quota.report_watch import ReportWatch
from quotaplane.streams.sink import Packed
from tests.closed_loop.conftest import Loop
from tests.histories import make_history


class FinishedLoop(Loop):
    """``Loop`` that gives each round's rows to ``_write``.

    ``records``: also what a replay needs.
    """

    def __init__(self, history: History, *args: Any, records: bool, **more: Any) -> None:
        make_history(history)
        self.history, self._records = history, records
        super().__init__(*args, **more)

    def _start(self, earlier: EarlierLimits) -> None:
        super()._start(earlier)
        self._program = RecordedProgram(self._program, records=self._records)
        self._earlier = earlier
        self._open()

    def _open(self) -> None:
        """Begin a process."""
        reports = self.settings.reports
        watch = ReportWatch(reports.interval_s, reports.stop_when_unusable_intervals)
        recorded = {"settings": recorded_settings(self.settings), **self._earlier.noted()}
        self._finisher = QuotaFinisher(
            watch,
            lambda seq: {"end": seq},
            recorded if self._records else None,
            interval_s=reports.interval_s,
        )

    def _finish(self, stamp: Round, packed: Packed) -> list[bytes]:
        if packed:
            finished = self._finisher.finish(stamp, packed)
            tables, messages = finished.tables, finished.messages
        else:
            tables, messages = self._finisher.idle(stamp), []
        self._finisher.end(Conditions(str))
        self._write(stamp, tables, packed)
        return [message.value for message in messages]

    def _write(self, stamp: Round, tables: dict[str, pa.Table], packed: Packed) -> None:
        raise NotImplementedError


class RecordedLoop(FinishedLoop):
    """Writes a round at once; ``killed_after`` rounds run twice, as after a crash."""

    def __init__(
        self, history: History, *args: Any, killed_after: frozenset[int] = frozenset(), **more: Any
    ) -> None:
        self._killed_after = killed_after
        super().__init__(history, *args, records=True, **more)

    def _open(self) -> None:
        super()._open()
        self._writer = HistoryWriter(self.history, "checkpoint-1")

    def _write(self, stamp: Round, tables: dict[str, pa.Table], packed: Packed) -> None:
        if stamp.seq in self._killed_after:
            half = {name: tables[name] for name in ("usage", "limits") if name in tables}
            self._writer.append_round(stamp, half)
            self._writer.close()
            self._open()  # a new process: it records its settings again
            tables = self._finisher.finish(stamp, packed).tables
        self._writer.append_round(stamp, tables)
