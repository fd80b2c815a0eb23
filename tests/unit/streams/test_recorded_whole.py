"""A job that was away for 30 intervals records each report once.

All of the job runs here but Spark: the decoding tasks, the program, the end of a round, the tables.
``tests/unit/history/test_recorder.py`` ends it at every step, and
``tests/contract/test_kafka_backlog.py`` has it with Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.arrow import pack
from quotaplane.history.left_out import Stretch
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.quota.state import ShardState
from quotaplane.streams.checkpoint import Checkpoint
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.letters import letters_of
from quotaplane.streams.quota.finisher import LATE_ROUNDS, QuotaFinisher
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.quota.recorder import BACKLOG_SKIPPED, Recorder
from quotaplane.streams.quota.report_watch import ReportWatch
from quotaplane.streams.shard_program import Batch, Output
from quotaplane.streams.sink import BatchSink
from quotaplane.transport.base import READ_AGAIN
from quotaplane.wire.reasons import STALE
from tests.histories import make_history
from tests.job import history_table, put_quotas
from tests.unit.history.history_cases import NOON_MS
from tests.unit.streams.shard_cases import dataframe, group_changes, job_settings, usage_report
from tests.unit.wire.source_cases import events_of, rows

BROKERS = ("a", "b", "c")
INTERVAL_S, LEASE_S = 60, 360
"""Long, because the real time that a round takes is compared with them."""
PER_ROUND = 12
"""Most reports that a round reads: less than what waits after the pause."""


class Topic:
    """One partition, in memory, with offsets as of Kafka's source."""

    def __init__(self) -> None:
        self.reports: list[tuple[bytes, int]] = []

    def send(self, broker: str, sequence: int, at_ms: int) -> None:
        value = usage_report(
            broker,
            sequence=sequence,
            window_ms=INTERVAL_S * 1000,
            usage=np.array([[float(sequence)]]),
        )
        self.reports.append((value, at_ms))

    def read_between(self, begin: Any, end: Any) -> Iterator[pa.RecordBatch]:
        for offset in range(begin["r"]["0"], end["r"]["0"]):
            value, at_ms = self.reports[offset]
            row = [[value], [at_ms], [f"r/0@{offset}"], [None], ["r"]]
            yield pa.record_batch(row, schema=READ_AGAIN)

    def publish(self, messages: Any) -> None:
        pass

    publish_attachments = publish


class Job:
    """A quota job with one shard, and what of it outlives a process."""

    def __init__(self, folder: Path) -> None:
        limits = {"lease_s": LEASE_S, "refresh_rounds": 1}
        self.settings = job_settings(folder, reports={"interval_s": INTERVAL_S}, limits=limits)
        make_history(self.settings.history)
        put_quotas(self.settings, g=100.0)
        self.topic = Topic()
        self.state, self.seq = ShardState(), 0
        self.note: dict[str, Any] = {}
        self.ends: dict[int, tuple[int, int, bool]] = {}
        """(end in the topic, time, whether it passes over its input) of each round."""
        self.now_ms = NOON_MS
        self.start()

    def start(self) -> None:
        spec = QuotaSpec(self.settings)
        self.note = self.note or dict(spec.checkpoint_note)
        spec.accept(Checkpoint("checkpoint-1", 1, 1, self.note))
        spec.leadership.claim("checkpoint-1", 1)
        topic: Any = self.topic
        self.history = HistoryWriter(
            self.settings.history, "checkpoint-1", spec.tables, spec.last_table
        )
        folder: Any = SimpleNamespace(positions=lambda seq: {}, reports_between=self._between)
        self.finisher = spec.finisher(folder)
        self.finisher.connect(self.history, topic)
        self.sink = BatchSink(
            self.finisher,
            self.history,
            topic,
            lambda seq: self.ends[seq][1],
            1,
            JobLines.silent(spec.status()),
        )
        self.program = spec.program(1)

    def _begin(self, seq: int) -> int:
        return self.ends[seq - 1][0] if seq else 0

    def _between(self, seq: int) -> tuple[Any, Any]:
        return {"r": {"0": self._begin(seq)}}, {"r": {"0": self.ends[seq][0]}}

    def plan(self, end: int | None = None, *, passes_over: bool = False) -> None:
        """As Spark: what a round reads, and its time, are logged before it runs."""
        if self.seq not in self.ends:
            most = min(len(self.topic.reports), self._begin(self.seq) + PER_ROUND)
            self.ends[self.seq] = most if end is None else end, self.now_ms, passes_over

    def round(self) -> None:
        """Run the next round, or the one that was cut off."""
        self.plan()
        end, now_ms, passes_over = self.ends[self.seq]
        arrived = {} if self.seq else {"groups": group_changes("g")}
        if not passes_over:
            arrived |= self._events(self._begin(self.seq), end, now_ms)
        batch = Batch(0, self.seq, now_ms)
        state, outputs = self.program.run(self.state, arrived, batch)
        if passes_over:
            outputs = [*outputs, Output(BACKLOG_SKIPPED, b"")]
        self.sink(dataframe(outputs), self.seq)
        self.state, self.seq = state, self.seq + 1

    def _events(self, begin: int, end: int, now_ms: int) -> dict[str, list[bytes]]:
        read = self.topic.reports[begin:end]
        ages_s = [(now_ms - at_ms) / 1000 for _, at_ms in read]
        arrived = rows([value for value, _ in read], ages_s, begin, "r/0", now_ms=now_ms)
        return events_of([arrived] if read else [], self.settings.reports, LEASE_S)

    def recorded(self) -> Counter[tuple[str, float]]:
        rows = history_table(self.settings, "usage")
        names = ("broker", "publish_messages_per_s")
        return Counter(zip(*(rows[name].to_pylist() for name in names), strict=True))


def paused(folder: Path) -> Job:
    """A job that was away for 30 intervals; the reports of that time wait."""
    job = Job(folder)
    for broker in BROKERS:
        job.topic.send(broker, 1, job.now_ms)
    job.round()
    for interval in range(2, 32):
        job.now_ms += INTERVAL_S * 1000
        for broker in BROKERS:
            job.topic.send(broker, interval, job.now_ms)
    return job


def goes_on(job: Job, rounds: int) -> int:
    """Rounds while brokers report; returns the number of each one's reports."""
    sequence = 31
    for _ in range(rounds):
        sequence += 1
        job.now_ms += INTERVAL_S * 1000
        for broker in BROKERS:
            job.topic.send(broker, sequence, job.now_ms)
        job.round()
    return sequence


def once_each(last: int) -> Counter[tuple[str, float]]:
    return Counter((broker, float(n)) for broker in BROKERS for n in range(1, last + 1))


def test_reports_of_a_pause_are_recorded_and_the_newest_decide(tmp_path: Path) -> None:
    job = paused(tmp_path)
    last = goes_on(job, 12)
    assert job.recorded() == once_each(last)
    rows = history_table(job.settings, "usage").to_pylist()
    counted = {(row["broker"], row["publish_messages_per_s"]) for row in rows if row["counted"]}
    # The pause's reports until about a lease before the job came back do not count.
    assert min(number for _, number in counted - {(b, 1.0) for b in BROKERS}) > 20
    assert history_table(job.settings, "rejected_reports").num_rows == 0
    rounds = history_table(job.settings, "rounds").sort_by("seq").to_pylist()
    assert sum(row["uncounted"] for row in rounds) == len(rows) - len(counted)
    assert all(row["rejected"] == 0 for row in rounds)


def test_a_start_passes_over_the_pause_and_control_rounds_come_first(tmp_path: Path) -> None:
    job = paused(tmp_path)
    job.start()
    job.plan(end=3 + 25 * len(BROKERS), passes_over=True)
    job.round()
    assert history_table(job.settings, "left_out")["chosen"].to_pylist() == [None]
    assert len(job.recorded()) == 3  # nothing is recorded in the round that passes over
    job.round()
    rows = history_table(job.settings, "usage").to_pylist()
    # Of the four intervals that the round read, the newest two are within a quarter of a lease.
    assert [row["counted"] for row in rows if row["seq"] == 2].count(True) == 2 * len(BROKERS)
    last = goes_on(job, 8)
    assert job.recorded() == once_each(last)


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rounds after which something may be recorded."""
    seqs: list[int] = []
    record = Recorder.record

    def noted(self: Recorder, stamp: Round, *others: Any) -> Any:
        seqs.append(stamp.seq)
        return record(self, stamp, *others)

    monkeypatch.setattr(Recorder, "record", noted)
    return seqs


@contextmanager
def slow_rounds() -> Iterator[None]:
    """Each look at the clock is an interval later, so all rounds are late."""
    now_s = iter(range(0, 100_000, INTERVAL_S))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("quotaplane.streams.quota.finisher.time.monotonic", lambda: next(now_s))
        yield


def test_a_late_job_records_nothing_and_the_next_rounds_in_time_do(
    tmp_path: Path, recorded: list[int]
) -> None:
    job = paused(tmp_path)
    recorded.clear()
    with slow_rounds():
        goes_on(job, 12)
    assert recorded == []
    goes_on(job, 1)
    assert recorded == [job.seq - 1]


@pytest.mark.nightly
def test_a_job_that_is_always_late_records_what_waits_after_20_rounds(
    tmp_path: Path, recorded: list[int]
) -> None:
    job = paused(tmp_path)
    first = job.seq
    recorded.clear()
    with slow_rounds():
        last = goes_on(job, 2 * LATE_ROUNDS + 2)
    assert job.recorded() == once_each(last)
    # One portion takes all that waits; after it nothing does, so no other one is due.
    assert recorded == [first + LATE_ROUNDS]


def test_a_broker_that_is_always_too_late_does_not_hold_up_the_recorder(tmp_path: Path) -> None:
    job = Job(tmp_path)
    for number in range(1, 5):
        job.now_ms += INTERVAL_S * 1000
        job.topic.send("a", number, job.now_ms)
        job.topic.send("late", number, job.now_ms - (LEASE_S + 1) * 1000)
        job.round()
    assert job.recorded() == Counter((b, float(n)) for b in ("a", "late") for n in range(1, 5))


def test_the_notes_of_what_is_recorded_later_are_bounded() -> None:
    """A sender of old reports must not fill the disk with their positions."""
    noted: list[Stretch] = []
    recorder: Any = SimpleNamespace(
        note=lambda stamp, stretches: noted.extend(stretches), reports_waiting=0
    )
    watch, nothing = ReportWatch(5.0), lambda *_: {}
    finisher = QuotaFinisher(
        watch,
        nothing,
        interval_s=5.0,
        most_noted=3,
        between=lambda seq: (None, {"r": {"0": 9}}),
        recorder_of=lambda *_: recorder,
    )
    finisher.connect(*cast("tuple[Any, Any]", (None, None)))

    def left_out(seq: int, at_ms: int) -> list[tuple[str, int]]:
        finisher.begin()
        letters = letters_of(
            2, reason=STALE, position=pa.array([f"{seq}a", f"{seq}b"]), published_at_ms=1, detail=""
        )
        found = finisher.finish(Round(1, seq, at_ms), {"left_out": [pack(letters)]})
        rejected = found.tables["rejected_reports"]
        names = ("reason", "position")
        return list(zip(*(rejected[name].to_pylist() for name in names), strict=True))

    assert left_out(0, NOON_MS) == []
    assert left_out(1, NOON_MS) == [(STALE, "1b")]
    assert left_out(2, NOON_MS) == [(STALE, "2a"), (STALE, "2b")]
    assert left_out(3, NOON_MS + 3_600_000) == []
    assert [each.chosen for each in noted] == [["0a", "0b"], ["1a"], ["3a", "3b"]]
