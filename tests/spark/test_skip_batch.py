"""A batch that fails again and again: how often it is tried, and how the job goes on without it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from quotaplane.errors import ConfigError, FailedBatchError, TransportError
from quotaplane.history.writer import HistoryWriter
from quotaplane.streams.job import StreamJob
from quotaplane.streams.lifecycle import run_until_stopped
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.sink import BatchSink
from quotaplane.wire.limits import decode_limits
from tests.job import put_quotas, settings_in, stopped_when
from tests.spark.loops import QuotaLoop, cut_off

pytestmark = pytest.mark.nightly

POISON = 1
"""The batch that fails."""


class Loop(QuotaLoop):
    """The job on the embedded transport, and brokers that want 80 each."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        settings = settings_in(
            folder,
            trigger={"interval_s": 3600},  # a start runs one batch
            reports={"interval_s": 3600},
            limits={"lease_s": 72_000},
        )
        super().__init__(spark, settings, quota=100.0)
        self._commits = folder / "checkpoint/commits"
        self.limits: dict[str, float] = {}

    def start(self, skip_batch: int | None = None) -> StreamJob:
        return StreamJob(self.spark, QuotaSpec(self.settings), self.transport, skip_batch)

    def run(self, until: Callable[[], object], skip_batch: int | None = None) -> None:
        """The job as its script runs it, stopped when something holds."""
        with stopped_when(until):
            run_until_stopped(self.start, skip_batch)

    def listen(self) -> dict[str, float]:
        for message in self.link.poll_limits().messages:
            update = decode_limits(message.value)
            if len(update.limits):
                self.limits[update.broker] = float(update.limits[0, 0])
        return self.limits

    def committed(self) -> int:
        return max((int(file.name) for file in self._commits.glob("[0-9]*")), default=-1)


@pytest.fixture
def loop(spark: SparkSession, tmp_path: Path) -> Loop:
    """After its first round: both brokers have a half."""
    found = Loop(spark, tmp_path)
    found.report("a", "b")
    found.run(lambda: found.committed() == 0)
    assert found.listen() == {"a": pytest.approx(50), "b": pytest.approx(50)}
    return found


def fails(monkeypatch: pytest.MonkeyPatch, error: Exception, tried: list[int]) -> None:
    """From now on the batch fails before anything of it is read."""
    sink = BatchSink.__call__

    def failing(self: BatchSink, outputs: DataFrame, seq: int) -> None:
        tried.append(seq)
        if seq == POISON:
            raise error
        sink(self, outputs, seq)

    monkeypatch.setattr(BatchSink, "__call__", failing)


def test_a_batch_is_tried_three_times_then_skipped_and_nothing_else_is_lost(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_quotas(loop.settings, g=60.0)
    loop.report("a", "b", "c")
    tried: list[int] = []
    with monkeypatch.context() as patch:
        fails(patch, RuntimeError("no memory for this"), tried)
        for _ in range(2):
            with pytest.raises(StreamingQueryException):
                loop.run(lambda: False)
        for _ in range(2):
            with pytest.raises(FailedBatchError) as caught:
                loop.run(lambda: False)
            said = str(caught.value)
            assert "batch 1 failed 3 times" in said
            assert "reservoirVersion from" in said
            assert "no memory for this" in said
            assert "./spark-submit.sh quota --conf FILE --skip-batch 1" in said
    assert tried == [POISON] * 3  # the fourth start runs nothing

    for wrong in (0, 2):
        with pytest.raises(ConfigError, match="the batch that runs next is 1"):
            loop.start(wrong)
    loop.run(lambda: loop.committed() == POISON, skip_batch=POISON)
    # The quota changed in the batch that was skipped, and `a` and `b` are still known.
    assert loop.listen() == {"a": pytest.approx(30), "b": pytest.approx(30)}
    (letter,) = loop.rows("rejected_reports")
    assert (letter["seq"], letter["reason"]) == (POISON, "skipped_batch")
    assert letter["position"].startswith("reservoirVersion from")
    assert not letter["counts_as_bad"]
    assert len(loop.rows("usage")) == 2

    with pytest.raises(ConfigError, match="there is none to skip"):
        loop.start(POISON)
    loop.report("a", "b", "c")
    loop.run(lambda: loop.committed() > POISON)
    loop.listen()
    assert loop.limits == dict.fromkeys("abc", pytest.approx(20))
    assert sorted(row["seq"] for row in loop.rows("rounds")) == [0, POISON, POISON + 1]


def test_a_skip_that_is_cut_off_is_done_by_the_next_start(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by kill -9: with its reports the batch would publish other limits than before."""
    loop.report("a", "b", "c")
    with monkeypatch.context() as patch:
        fails(patch, RuntimeError("once"), [])
        with pytest.raises(StreamingQueryException):
            loop.run(lambda: False)
    with monkeypatch.context() as patch:
        cut_off(patch, HistoryWriter, "append_round")
        with pytest.raises(StreamingQueryException):
            loop.run(lambda: False, skip_batch=POISON)
    assert loop.committed() == 0
    loop.run(lambda: loop.committed() == POISON)
    (letter,) = loop.rows("rejected_reports")
    assert letter["reason"] == "skipped_batch"
    assert "c" not in loop.listen()


def test_failures_whose_cause_is_outside_do_not_count(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop.report("a", "b")
    with monkeypatch.context() as patch:
        fails(patch, TransportError("Kafka is away"), [])
        for _ in range(5):
            with pytest.raises(TransportError, match="Kafka is away"):
                loop.run(lambda: False)
    loop.run(lambda: loop.committed() >= POISON)
    assert loop.rows("rejected_reports") == []
