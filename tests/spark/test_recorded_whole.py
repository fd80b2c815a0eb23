"""A job that was down for 30 intervals, and is killed again and again, records each report once."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from quotaplane.history.left_out import RECORDER
from quotaplane.history.writer import HistoryWriter
from quotaplane.settings import DeltaTransport, parse_settings
from quotaplane.streams.job import StreamJob, prepare
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.quota.recorder import Recorder
from quotaplane.transport import open_broker_link
from quotaplane.transport.delta import maintain
from quotaplane.wire.reports import encode_report
from tests.job import history_table, put_quotas
from tests.waiting import wait_beside

pytestmark = pytest.mark.nightly

BROKERS = ("a", "b", "c")
INTERVAL_S, INTERVALS = 60.0, 30
LEASE_S = 300.0
"""Lease with which some four of the 30 intervals are young enough to decide with."""


class CutOffError(RuntimeError):
    """The job ends here, as if it were killed."""


Patch = Callable[[pytest.MonkeyPatch], None]


def cut_off_before(table: str, *, of_recorder: bool) -> Patch:
    def patched(patch: pytest.MonkeyPatch) -> None:
        append = HistoryWriter.append

        def cut_off(self: HistoryWriter, name: str, *args: Any, **more: Any) -> bool:
            of = args[2].app_id if len(args) > 2 else ""
            if name == table and (of == RECORDER) is of_recorder:
                raise CutOffError
            return append(self, name, *args, **more)

        patch.setattr(HistoryWriter, "append", cut_off)

    return patched


def cut_off_after_a_portion(patch: pytest.MonkeyPatch) -> None:
    record = Recorder.record

    def cut_off(self: Recorder, *args: Any) -> Any:
        before = self.reports_waiting
        lines = record(self, *args)
        if self.reports_waiting < before:
            raise CutOffError
        return lines

    patch.setattr(Recorder, "record", cut_off)


STEPS: tuple[Patch, ...] = (
    cut_off_before("left_out", of_recorder=False),
    cut_off_before("rounds", of_recorder=False),
    cut_off_before("usage", of_recorder=True),
    cut_off_after_a_portion,
    cut_off_after_a_portion,
)


class Loop:
    """A quota job in this process, and brokers whose reports have a time and a number."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self._spark = spark
        self.settings = parse_settings(
            {
                "transport": {
                    "kind": "delta",
                    "path": str(folder / "topics"),
                    "max_files_per_trigger": 10,  # several rounds, each with a stretch of its own
                },
                "history": {"path": str(folder / "history")},
                "checkpoint": str(folder / "checkpoint"),
                "shards": 2,
                "trigger": {"interval_s": 0.1},
                "reports": {"interval_s": INTERVAL_S},
                "limits": {"lease_s": LEASE_S, "refresh_rounds": 1},
            }
        )
        put_quotas(self.settings, g=90.0)
        self._transport = prepare(QuotaSpec(self.settings))
        self._link = open_broker_link(self.settings.transport, limits_from="earliest")
        self.sent = 0

    def send(self, age_s: float) -> None:
        """A report of each broker."""
        at_ms = int((time.time() - age_s) * 1000)
        usage = np.array([[float(self.sent + 1)]])
        self._link.send_reports(
            [
                (
                    broker,
                    encode_report(
                        broker=broker,
                        started_at_ms=1,
                        sequence=self.sent + 1,
                        window_ms=int(INTERVAL_S * 1000),
                        groups=["g"],
                        usage=usage,
                    ),
                    at_ms,
                )
                for broker in BROKERS
            ]
        )
        self.sent += 1

    def run(self, until: Callable[[], object]) -> None:
        job = StreamJob(self._spark, QuotaSpec(self.settings), self._transport)
        try:
            wait_beside(job, until)
        finally:
            job.stop()

    def run_a_round(self) -> None:
        """A batch that fails three times is not run again; nothing is recorded beside the round."""
        before = history_table(self.settings, "rounds").num_rows
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Recorder, "record", lambda *_: [])
            self.run(until=lambda: history_table(self.settings, "rounds").num_rows > before)

    def recorded(self) -> list[tuple[str, float]]:
        """Broker and number of each row of ``usage``."""
        rows = history_table(self.settings, "usage")
        names = ("broker", "publish_messages_per_s")
        return list(zip(*(rows[name].to_pylist() for name in names), strict=True))

    def counted(self) -> Counter[bool]:
        return Counter(history_table(self.settings, "usage")["counted"].to_pylist())


def test_a_pause_of_30_intervals_and_5_kills_leave_every_report_in_usage_once(
    spark: SparkSession, tmp_path: Path
) -> None:
    loop = Loop(spark, tmp_path)
    loop.send(age_s=0)
    loop.run(until=loop.recorded)
    for interval in range(INTERVALS):
        loop.send(age_s=(INTERVALS - interval - 1) * INTERVAL_S)
    for step in STEPS:
        for age_s in (2 * LEASE_S, 0.0):  # there is something to decide with, and to record later
            loop.send(age_s)
        with pytest.MonkeyPatch.context() as patch:
            step(patch)
            with pytest.raises(StreamingQueryException, match="CutOffError"):
                loop.run(until=lambda: False)
        loop.send(age_s=0)
        loop.run_a_round()
    loop.send(age_s=0)
    expected = sorted((broker, float(n + 1)) for broker in BROKERS for n in range(loop.sent))
    loop.run(until=lambda: len(loop.recorded()) >= len(expected))
    assert sorted(loop.recorded()) == expected
    late = sum(age * INTERVAL_S > LEASE_S for age in range(INTERVALS))
    assert loop.counted()[False] >= late * len(BROKERS)
    assert history_table(loop.settings, "rejected_reports").num_rows == 0
    assert history_table(loop.settings, "left_out").num_rows > 1


def test_reports_that_the_topic_does_not_have_any_more_are_counted_in_a_letter(
    spark: SparkSession, tmp_path: Path
) -> None:
    loop = Loop(spark, tmp_path)
    loop.send(age_s=0)
    loop.run(until=loop.recorded)
    for _ in range(2):
        loop.send(age_s=2 * LEASE_S)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Recorder, "record", lambda *_: [])
        loop.run(until=lambda: history_table(loop.settings, "left_out").num_rows)
    transport = loop.settings.transport
    assert isinstance(transport, DeltaTransport)
    maintain(transport, keep_s=0)
    loop.send(age_s=0)
    expected = sorted((b, n) for b in BROKERS for n in (1.0, 4.0))
    loop.run(
        until=lambda: (
            history_table(loop.settings, "rejected_reports").num_rows
            and len(loop.recorded()) >= len(expected)
        )
    )
    (letter,) = history_table(loop.settings, "rejected_reports").to_pylist()
    assert (letter["reason"], letter["reports"]) == ("gone", 2 * len(BROKERS))
    assert sorted(loop.recorded()) == expected
