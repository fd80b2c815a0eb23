"""A third kind of job on the one stream mechanism: what it costs to write one.

It counts words. A message is words; each word's count is published when it changes. The counts
survive restarts, a batch that runs again counts nothing twice, and a word may be asked for later.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from quotaplane.model import Round, group_id, shard_of
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.job import JobSpec
from quotaplane.streams.operator import EVENT_SCHEMA
from quotaplane.streams.partition import keys_of_shards
from quotaplane.streams.shard_program import Arrived, Batch, Output
from quotaplane.streams.sink import Finished, Finisher, Packed
from quotaplane.streams.skipped_batches import SkippedInput
from quotaplane.streams.sources import Batches, packed_events
from quotaplane.streams.status import JobStatus, StatusUpdate
from quotaplane.transport import open_broker_link, open_transport
from quotaplane.transport.base import Message, Transport
from tests.contract.rigs import limits_of
from tests.job import settings_in
from tests.spark.loops import running
from tests.waiting import wait_beside


@dataclass(frozen=True)
class WordProgram:
    """Counts of words. It takes ``words`` and emits the ``counts`` that changed, as JSON."""

    name: str = "words"
    has_timer: bool = False

    def load(self, blob: bytes | None) -> Counter[str]:
        return Counter(json.loads(blob or b"{}"))

    def dump(self, state: Counter[str]) -> bytes:
        return json.dumps(state).encode()

    def due_ms(self, state: Counter[str]) -> int | None:
        return None

    def run(
        self, state: Counter[str], arrived: Arrived, batch: Batch
    ) -> tuple[Counter[str], Sequence[Output]]:
        words = Counter(word for text in arrived["words"] for word in json.loads(text))
        state = state + words
        changed = {word: state[word] for word in words}
        return state, [Output("counts", json.dumps(changed).encode())]


class WordFinisher(Finisher):
    def finish(self, stamp: Round, packed: Packed) -> Finished:
        counts = [json.loads(payload) for payload in packed.get("counts", ())]
        messages = [
            Message(word, str(count).encode()) for each in counts for word, count in each.items()
        ]
        seen = {"words": len(messages)}
        return Finished({}, messages, StatusUpdate(seen, {}, {}, arrived=len(messages)))


class WordSpec(JobSpec):
    name = "words"
    query_name = "word-counts"
    inputs_noun = "texts"
    tables = ()

    def open_transport(self) -> Transport:
        return open_transport(self.settings.transport)

    def program(self, epoch: int) -> WordProgram:
        return WordProgram()

    def inputs(self, spark: SparkSession, arriving: DataFrame) -> DataFrame:
        shards, keys = self.settings.shards, keys_of_shards(self.settings.shards)

        def to_events(batches: Batches) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                by_shard: dict[int, list[str]] = {}
                for word in b" ".join(batch["value"].to_pylist()).decode().split():
                    by_shard.setdefault(int(shard_of(group_id(word), shards)), []).append(word)
                pairs = [(shard, json.dumps(words).encode()) for shard, words in by_shard.items()]
                yield packed_events("words", pairs, keys)

        return arriving.mapInArrow(to_events, EVENT_SCHEMA)

    def finisher(self, folder: CheckpointFolder) -> WordFinisher:
        return WordFinisher()

    def letters(
        self, epoch: int, batch: Batch, left_out: Sequence[SkippedInput]
    ) -> Sequence[Output]:
        return [Output("left_out", each.detail.encode()) for each in left_out]

    def status(self) -> JobStatus:
        return JobStatus(["words"], (), time.monotonic)

    def in_words(self) -> Sequence[str]:
        return "reads texts", "follows nothing"


@pytest.fixture
def spec(tmp_path: Path) -> WordSpec:
    return WordSpec(settings_in(tmp_path, trigger={"interval_s": 0.1}, shards=2))


@pytest.mark.nightly
def test_a_third_job_costs_about_a_hundred_lines(spark: SparkSession, spec: WordSpec) -> None:
    link = open_broker_link(spec.settings.transport, limits_from="earliest")
    told: dict[str, int] = {}

    def send_and_wait(text: str, **expected: int) -> None:
        link.send_reports([("text", text.encode(), 0)])

        def counted() -> bool:
            told.update((word, int(count)) for word, count in limits_of(link))
            return expected.items() <= told.items()

        wait_beside(job, counted)

    for text, expected in (("a rose is a rose", {"a": 2, "rose": 2}), ("a b", {"a": 3, "b": 1})):
        with running(spark, spec) as job:
            send_and_wait(text, **expected)
    assert told == {"a": 3, "b": 1, "rose": 2, "is": 1}
