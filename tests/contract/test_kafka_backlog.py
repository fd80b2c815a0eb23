"""A start after a pause, with more reports waiting that are too old than a micro-batch takes."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from contextlib import redirect_stderr
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer, TopicPartition
from pyspark.sql import SparkSession

from quotaplane.errors import QuotaplaneError
from quotaplane.history.writer import HistoryWriter
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.quota.recorder import Recorder
from quotaplane.streams.run_job import run_stream_job
from quotaplane.transport import open_transport
from tests.contract.rigs import KafkaRig
from tests.job import history_table, put_quotas, report_of, settings_in, stopped_when
from tests.spark.loops import cut_off

pytestmark = pytest.mark.nightly

OLD = 40
PER_BATCH = 5


def test_offsets_of_a_time_are_told_by_partition(kafka_rig: KafkaRig) -> None:
    topic, other = kafka_rig.report_topics
    producer = KafkaProducer(bootstrap_servers=kafka_rig.server.bootstrap_servers)
    for at_ms in (1000, 2000, 3000, 2500):
        producer.send(topic, b"x", partition=0, timestamp_ms=at_ms).get(60)
    producer.send(topic, b"x", partition=1, timestamp_ms=1000).get(60)
    producer.close(timeout=60)
    transport = open_transport(kafka_rig.settings())
    nothing = {"0": 0, "1": 0}
    assert transport.offset_since(500) == {topic: nothing, other: nothing}
    assert transport.offset_since(2000) == {topic: {"0": 1, "1": 1}, other: nothing}
    # A later record may be older: what comes before the first one that is not is older for sure.
    assert transport.offset_since(2600) == {topic: {"0": 2, "1": 1}, other: nothing}
    assert transport.offset_since(4000) == {topic: {"0": 4, "1": 1}, other: nothing}


class Job:
    """The quota job in this process, and what is sent to it."""

    def __init__(self, spark: SparkSession, rig: KafkaRig, folder: Path) -> None:
        self._spark = spark
        self._topic, self._other_topic = rig.report_topics
        self._producer = KafkaProducer(bootstrap_servers=rig.server.bootstrap_servers)
        self._sent = 0
        self.settings = settings_in(
            folder,
            rig.settings(per_batch=PER_BATCH).model_dump(mode="json"),
            reports={"interval_s": 60},
            limits={"lease_s": 1200},
            trigger={"interval_s": 0.1},
        )
        put_quotas(self.settings, g=100.0)

    def send(
        self, broker: str, age_s: float, partition: int = 0, *, other_topic: bool = False
    ) -> None:
        self._sent += 1
        value = report_of(broker, 10.0, sequence=self._sent)
        at_ms = int((time.time() - age_s) * 1000)
        topic = self._other_topic if other_topic else self._topic
        self._producer.send(topic, value, partition=partition, timestamp_ms=at_ms).get(60)

    def run(self, until: Callable[[], object]) -> None:
        # The job leaves what is printed redirected to its log.
        with stopped_when(until), redirect_stderr(sys.stderr):
            run_stream_job(QuotaSpec(self.settings), lambda log: self._spark)

    def used(self) -> int:
        return int(history_table(self.settings, "usage").num_rows)

    def delete_before(self, offset: int) -> None:
        """Retention deletes the first records of the topic's first partition."""
        admin = KafkaAdminClient(bootstrap_servers=self.settings.transport.bootstrap_servers)  # type: ignore[union-attr]
        admin.delete_records({TopicPartition(self._topic, 0): offset})
        admin.close()

    def recorded(self) -> dict[str, list[bool]]:
        """Whether each row of ``usage`` counted, by broker."""
        found: dict[str, list[bool]] = {}
        for row in history_table(self.settings, "usage").to_pylist():
            found.setdefault(row["broker"], []).append(row["counted"])
        return found

    def letters(self) -> list[dict[str, Any]]:
        table = history_table(self.settings, "rejected_reports")
        found: list[dict[str, Any]] = table.sort_by("position").to_pylist()
        return found


def not_counted(letter: str) -> dict[str, list[bool]]:
    """Brokers whose old report was recorded, and did not count."""
    return {f"{letter}{number}": [False] for number in range(OLD)}


@pytest.fixture
def paused(spark: SparkSession, kafka_rig: KafkaRig, tmp_path: Path) -> Job:
    """A job that ran, and was down for an hour in which brokers went on to report."""
    job = Job(spark, kafka_rig, tmp_path)
    # Not in the partitions where old ones will be: nothing is passed over behind a fresh report.
    job.send("a", age_s=0, other_topic=True)
    job.run(lambda: job.used() == 1)
    for number in range(OLD):
        job.send(f"b{number}", age_s=3600, partition=number % 2)
    job.send("fresh", age_s=0)
    return job


def test_old_reports_are_passed_over_the_newest_used_at_once_and_the_old_ones_recorded(
    paused: Job,
) -> None:
    paused.run(lambda: paused.used() == 2 + OLD)
    assert paused.recorded() == {"a": [True], "fresh": [True], **not_counted("b")}
    rows = history_table(paused.settings, "usage").sort_by("seq").to_pylist()
    seqs = {row["broker"]: row["seq"] for row in rows}
    assert all(seqs["fresh"] <= seqs[f"b{number}"] for number in range(OLD))
    assert {row["broker"]: row["position"] for row in rows}["b2"].endswith("/0@1")
    left_out = history_table(paused.settings, "left_out")
    assert left_out["reports"].to_pylist() == [20, 20]
    assert paused.letters() == []


def test_a_start_that_is_cut_off_amid_that_passes_over_the_same(
    paused: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        cut_off(patch, HistoryWriter, "append_round")
        with pytest.raises(QuotaplaneError, match="killed"):
            paused.run(lambda: False)
    noted = history_table(paused.settings, "left_out")
    assert noted["reports"].to_pylist() == [20, 20]
    for number in range(OLD):
        paused.send(f"c{number}", age_s=3600, partition=1)
    paused.send("later", age_s=0, partition=1)
    paused.run(lambda: paused.used() == 3 + 2 * OLD)
    counted = {broker: [True] for broker in ("a", "fresh", "later")}
    assert paused.recorded() == {**counted, **not_counted("b"), **not_counted("c")}
    assert paused.letters() == []


def test_what_retention_took_before_it_was_recorded_is_counted_in_a_letter(
    paused: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Recorder, "record", lambda *_: [])
        paused.run(lambda: paused.used() == 2)
    paused.delete_before(15)
    paused.send("fresh", age_s=0)
    paused.run(lambda: paused.used() == 3 + OLD - 15)
    (letter,) = paused.letters()
    assert (letter["reason"], letter["reports"]) == ("gone", 15)
    assert "15 of 20 reports" in letter["detail"]
