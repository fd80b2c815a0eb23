"""The end of a micro-batch: what is written of it, what is said of it, and what ends the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.errors import DeposedError, NoUsableReportsError, QuotaplaneError
from quotaplane.model import IntArray, Round
from quotaplane.quota.state import ShardState
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.letter_budget import LETTERS
from quotaplane.streams.quota.finisher import QuotaFinisher
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.quota.report_watch import ReportWatch
from quotaplane.streams.shard_program import Batch, Output
from quotaplane.streams.sink import BatchSink
from quotaplane.streams.task_files import NOT_WRITTEN
from tests.unit.streams.shard_cases import PROGRAM, SETTINGS, dataframe, usage_report
from tests.unit.wire.source_cases import events_of, rows

LIVE = "non-persistent://a/b/reports"
"""A topic that does not store reports: those that are too old are refused."""


class Written:
    """In place of the history and of the transport: what came."""

    def __init__(self) -> None:
        self.tables: list[Mapping[str, pa.Table]] = []

    def append_round(self, stamp: Round, tables: Mapping[str, pa.Table], _: object = None) -> None:
        self.tables.append(tables)

    def publish(self, messages: Sequence[Any]) -> None:
        pass


class Job:
    """A sink, and one shard whose rounds it gets; the clock stands where a test puts it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, stop_after: float | None = None) -> None:
        self.said: list[str] = []
        self.now_ms = 1_000_000
        self.written = Written()
        self.lines = JobLines(
            QuotaSpec(SETTINGS).status(), write=self._hear, clock=lambda: self.now_ms / 1000
        )
        self._seq = 0
        self._state = ShardState()
        watch = ReportWatch(SETTINGS.reports.interval_s, stop_after)
        self._finisher = QuotaFinisher(
            watch, lambda seq: {}, interval_s=1.0, lease_s=SETTINGS.limits.lease_s
        )
        self._times_ms: dict[int, int] = {}
        self.open_sink()
        monkeypatch.setattr("time.monotonic", lambda: self.now_ms / 1000)
        monkeypatch.setattr("time.time", lambda: self.now_ms / 1000)

    def open_sink(self, **more: Any) -> None:
        written: Any = self.written
        self.sink = BatchSink(
            self._finisher, written, written, self._times_ms.__getitem__, 1, self.lines, **more
        )

    def _hear(self, line: str) -> None:
        # A group without a quota: the job waits for one in all of these tests.
        if " quotaplane: waiting: " not in line:
            self.said.append(line)

    def round(
        self,
        *values: bytes,
        published_at_ms: int | IntArray | None = None,
        more: Sequence[Output] = (),
    ) -> None:
        """A round a second after the one before, of reports that were just published."""
        self.now_ms += 1000
        self._seq += 1
        times = self.now_ms - 100 if published_at_ms is None else published_at_ms
        ages_s = np.broadcast_to((self.now_ms - np.asarray(times)) / 1000, len(values)).tolist()
        batch = rows(values, ages_s, at=LIVE, now_ms=self.now_ms)
        arrived = events_of([batch], SETTINGS.reports, SETTINGS.limits.lease_s) if values else {}
        self._times_ms[self._seq] = self.now_ms
        self._state, outputs = PROGRAM.run(self._state, arrived, Batch(0, self._seq, self.now_ms))
        self.sink(dataframe([*outputs, *more]), self._seq)

    def letters(self) -> list[dict[str, Any]]:
        tables = [each["rejected_reports"] for each in self.written.tables]
        return [letter for table in tables for letter in table.to_pylist()]

    def report(self, broker: str = "b1", **fields: Any) -> bytes:
        """A heartbeat, unless ``fields`` has groups."""
        return usage_report(broker, **{"groups": (), "sequence": self._seq + 1, **fields})


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Job:
    return Job(monkeypatch)


def test_a_deposed_job_writes_and_publishes_nothing(job: Job) -> None:
    def deposed() -> None:
        raise DeposedError("deposed")

    job.open_sink(still_leads=deposed)
    for reports in ([job.report()], []):  # also a round in which nothing arrived
        with pytest.raises(DeposedError):
            job.round(*reports)
    assert job.written.tables == []


def test_nothing_leaves_the_job_before_the_record_of_its_input_is_safe(job: Job) -> None:
    safe: list[int] = []
    append_round = job.written.append_round

    def sync(seq: int) -> None:
        if seq == 2:
            raise QuotaplaneError("not on the disk")
        safe.append(seq)

    def append(stamp: Round, tables: Mapping[str, pa.Table], _: object = None) -> None:
        assert safe[-1] == stamp.seq
        append_round(stamp, tables)

    job.written.append_round = append  # type: ignore[method-assign]
    job.open_sink(sync_input=sync)
    job.round(job.report())
    with pytest.raises(QuotaplaneError, match="not on the disk"):
        job.round(job.report())
    assert len(job.written.tables) == 1


def test_the_job_says_that_executors_cant_write(job: Job) -> None:
    job.round(job.report(), more=[Output(NOT_WRITTEN, b"Access Denied")])
    assert job.said[-1].endswith(
        "history by tasks: Access Denied; the driver writes the rows instead"
    )
    job.round(job.report())
    assert "history by tasks: over" in job.said[-1]


def test_junk_does_not_fill_the_disk(job: Job) -> None:
    for _ in range(60):
        job.round(*[b"\xff\xffjunk"] * 101)
    letters = job.letters()
    # What comes back within a minute, and one letter a round for the rest.
    assert len(letters) <= LETTERS + LETTERS / 60 + 60
    assert letters[-1]["detail"].startswith("101 more reports for this reason")
    rounds = [each["rounds"]["rejected"][0].as_py() for each in job.written.tables]
    assert rounds == [101] * 60


def test_few_reports_with_another_time_do_not_change_what_is_said_of_the_clock(job: Job) -> None:
    """The oldest have a letter each, and one letter stands for all others."""
    for _ in range(10):
        late_ms = job.now_ms + 1000 - 131_000
        times = np.r_[np.full(101, 1000), np.full(5000, late_ms)]
        job.round(*[job.report(f"b{n}") for n in range(len(times))], published_at_ms=times)
    (line,) = job.said
    assert "Their publish times are 131.0 s behind this host's clock" in line


def test_a_wrong_clock_is_told_with_its_difference_and_ends_the_job_if_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job = Job(monkeypatch, stop_after=5)
    for _ in range(6):
        job.round(job.report(), published_at_ms=job.now_ms + 1000 - 131_000)
    (line,) = job.said
    assert ": warning: time of reports: 0 of 4 reports could be used for 3 s: stale=4. " in line
    assert "131.0 s behind this host's clock" in line
    rounds = len(job.written.tables)
    with pytest.raises(NoUsableReportsError, match="0 of 6 reports could be used for 5 s"):
        job.round(job.report())
    assert len(job.written.tables) == rounds == 6  # all rounds before it are committed


def test_the_status_has_what_rounds_did(job: Job) -> None:
    job.round(job.report("b1"), job.report("b2"))
    job.round(job.report("b1"), job.report("b1"), job.report("b2"))
    period = job.lines.status.period
    job.lines.status.round_began(3)
    shown = {*period().split()}
    assert shown >= {"reports=4", "brokers_live=2", "brokers_stale=0", "lag_s=0.1"}
    assert "duplicate=1" in job.lines.status.total()
    for _ in range(3):
        job.round()
    assert "brokers_live=0 brokers_stale=2" in period()


def test_reports_with_a_part_refused_or_an_undefined_group_are_used(job: Job) -> None:
    for _ in range(30):
        job.round(job.report(groups=["g", "h"], usage=np.array([[1.0] * 4, [-1.0] * 4])))
    assert job.said == []
    total = job.lines.status.total()
    assert "reports=30 " in total
    assert "(negative=30 unknown_group=30)" in total


def test_a_time_below_0_is_no_time_of_a_clock(job: Job) -> None:
    for _ in range(6):
        job.round(job.report(), published_at_ms=-5)
    (line,) = job.said
    says = f"unusable reports: 0 of 4 reports could be used for 3 s: stale=4, for example at {LIVE}"
    assert says in line
    assert "clock" not in line
