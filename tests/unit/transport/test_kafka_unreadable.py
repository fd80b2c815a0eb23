"""Records that kafka-python can't read keep nobody from reading those behind them."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("kafka")

from kafka import TopicPartition
from kafka.errors import CorruptRecordError

from quotaplane.transport.kafka_client import records_between

PART = TopicPartition("r", 0)


class Batches:
    """A consumer of one partition, whose batches have unreadable records.

    A batch is read from its beginning up to the record, whatever the offset that is asked for.
    """

    def __init__(self, *lengths: int, bad: tuple[int, ...] = ()) -> None:
        self.bad, self.at, self.polls = bad, 0, 0
        ends = [0, *itertools.accumulate(lengths)]
        self.batches = list(itertools.starmap(range, itertools.pairwise(ends)))
        self.end = ends[-1]

    def assign(self, parts: list[TopicPartition]) -> None:
        assert parts == [PART]

    def beginning_offsets(self, parts: list[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return {PART: 0}

    def end_offsets(self, parts: list[TopicPartition], **_: Any) -> dict[TopicPartition, int]:
        return {PART: self.end}

    def seek(self, part: TopicPartition, offset: int) -> None:
        self.at = offset

    def position(self, part: TopicPartition) -> int:
        return self.at

    def poll(self, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        self.polls += 1
        found: list[int] = []
        for batch in self.batches:
            if self.at not in batch:
                continue
            for offset in batch:
                if offset in self.bad:
                    if not found:
                        raise CorruptRecordError
                    break
                if offset >= self.at:
                    found.append(offset)
        found = found[:max_records]
        self.at = found[-1] + 1 if found else self.at
        return {PART: [_record(offset) for offset in found]} if found else {}


def _record(offset: int) -> Any:
    return SimpleNamespace(
        topic="r", partition=0, offset=offset, value=b"x", key=None, timestamp=offset
    )


def read(consumer: Any, since: int = 0, last: int = 10**9) -> list[int]:
    batches = records_between(consumer, PART, since, last, wait_s=5.0)
    return [offset for rows in batches for offset in rows["published_at_ms"].to_pylist()]


def test_all_are_read_if_all_can_be() -> None:
    assert read(Batches(3, 4)) == [*range(7)]
    assert read(Batches(3, 4), 2, 5) == [2, 3, 4]


@pytest.mark.parametrize("bad", range(20))
def test_behind_a_batch_the_next_one_is_read(bad: int) -> None:
    consumer = Batches(3, 9, 1, 7, bad=(bad,))
    [broken] = [batch for batch in consumer.batches if bad in batch]
    lost = [offset for offset in broken if offset >= bad]
    assert read(consumer) == [offset for offset in range(20) if offset not in lost]


def test_several_batches_in_a_row() -> None:
    assert read(Batches(3, 9, 1, 7, bad=(3, 12))) == [0, 1, 2, *range(13, 20)]
    assert read(Batches(3, 9, bad=(0, 3))) == []
    assert read(Batches(3, 9, bad=(4,)), last=8) == [0, 1, 2, 3]


def test_the_end_of_a_long_batch_is_found_soon() -> None:
    consumer = Batches(1, 100_000, 5, bad=(1,))
    assert read(consumer, last=100_006) == [0, *range(100_001, 100_006)]
    assert consumer.polls < 60
