"""Reports as they come from the source, to events of a shard: what is refused unread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.streams.sender_checks import SenderChecks
from quotaplane.wire.intake import BYTES_PER_ENTRY, BYTES_PER_MESSAGE, Intake
from quotaplane.wire.reports import encode_stock_report
from tests.unit.wire.source_cases import MOST, Letter, Taken, rows


def report(broker: str, size: int = 0) -> bytes:
    groups = [f"{'x' * 90}{number}" for number in range(max(1, size // 100))]
    return encode_stock_report(broker, groups, np.ones((len(groups), 4)))


def taken(batches: Sequence[pa.RecordBatch], **bounds: int) -> tuple[list[str], list[Letter]]:
    """The brokers of the reports that are used, and the dead letters, also of those left out."""
    found = divided(batches, **bounds)
    return found.brokers, found.refused


def divided(batches: Sequence[pa.RecordBatch], **bounds: int) -> Taken:
    return Taken(batches, Intake(message_bytes=MOST, **bounds))


def test_of_a_report_that_is_too_large_the_beginning_and_the_length_are_kept() -> None:
    used, (letter,) = taken([rows([report("a"), b"\x00" * 900_000, report("b")])])
    assert used == ["a", "b"]
    assert letter["reason"] == "too_large"
    assert letter["position"] == "t/0@1"
    assert str(letter["detail"]).startswith("900000 bytes; reports.max_report_bytes is 1024")
    assert letter["raw"] == b"\x00" * 4096
    assert letter["counts_as_bad"]


def test_a_task_decodes_so_many_bytes_and_refuses_the_rest() -> None:
    batches = [rows([report(f"b{n}", 900)], first=n) for n in range(5)]
    used, letters = taken(batches, task_bytes=1500)
    assert used == ["b0", "b1"]
    assert [letter["position"] for letter in letters] == ["t/0@2", "t/0@3", "t/0@4"]
    assert {letter["reason"] for letter in letters} == {"too_much"}
    assert not any(letter["counts_as_bad"] or letter["raw"] for letter in letters)


def test_what_is_not_decoded_takes_no_room() -> None:
    """A backlog of late reports, or of large ones, does not push the fresh ones out."""
    late = [rows([report("late", 900)] * 9, [3600.0] * 9), rows([b"x" * 2000] * 9)]
    used, letters = taken([*late, rows([report("fresh", 900)])], task_bytes=100)
    assert used == ["fresh"]
    assert Counter(letter["reason"] for letter in letters) == {"stale": 9, "too_large": 9}


def test_small_entries_take_more_room_than_their_bytes() -> None:
    """All that is decoded of a micro-batch is in memory together, as entries."""
    names = [f"{n:02d}" for n in range(100)]
    dense = [encode_stock_report(f"b{n}", names, np.full((100, 4), np.nan)) for n in range(9)]
    most = 3 * 100 * BYTES_PER_ENTRY
    assert most > BYTES_PER_MESSAGE * 5
    batches = [rows([value], first=n) for n, value in enumerate(dense)]
    used, letters = taken(batches, task_bytes=most)
    assert used == ["b0", "b1", "b2"]
    assert Counter(letter["reason"] for letter in letters) == {"too_much": 6}


def test_tiny_messages_take_more_room_than_their_bytes() -> None:
    """Each takes time to read, however small it is."""
    flood = rows([encode_stock_report(f"b{n}", [], np.empty((0, 4))) for n in range(500)])
    used, letters = taken([flood], task_bytes=200 * BYTES_PER_MESSAGE)
    assert len(used) == 200
    assert Counter(letter["reason"] for letter in letters) == {"too_much": 300}


def test_of_a_flood_each_brokers_newest_is_read_and_older_ones_as_far_as_there_is_room() -> None:
    size = len(report("b0", 900))
    # Ten reports of each of two brokers, spread over batches; a third broker reports once.
    batches = [
        rows([report("b0", 900), report("b1", 900)], [9.0 - n, 9.0 - n], first=2 * n)
        for n in range(10)
    ]
    batches = [rows([report("b2", 900)], [9.5], first=20), *batches]
    used, letters = taken(batches, older_bytes=1000)
    # The room is half of what the newest take: one older report, the newest of these.
    assert 1000 < 3 * size / 2 < 2 * size
    assert Counter(used) == {"b0": 2, "b1": 1, "b2": 1}
    assert {letter["position"] for letter in letters} == {
        f"t/0@{n}" for n in range(20) if n not in (16, 18, 19)
    }
    assert {letter["reason"] for letter in letters} == {"too_many_reports"}
    assert not any(letter["counts_as_bad"] for letter in letters)


def test_a_small_flood_is_read_completely_and_so_is_what_names_no_broker() -> None:
    used, letters = taken([rows([report("b0", 900)] * 10, [0.1 * n for n in range(10)])])
    assert len(used) == 10
    assert letters == []
    nothing = [b"\xff" * 900] * 2000
    _, letters = taken([rows(nothing)])
    assert {letter["reason"] for letter in letters} == {"not_protobuf"}


def test_what_is_left_out_of_a_topic_that_stores_it_is_recorded_later_and_has_no_letter() -> None:
    """Late, over the task's budget, or not the newest of a flood; but not what was sent twice."""
    bounds = {"older_bytes": 1000, "task_bytes": 5 * BYTES_PER_MESSAGE // 2}

    def flood(topic: str) -> list[pa.RecordBatch]:
        values = [report("b0", 900)] * 6
        ages_s = [3600.0, 5.0, 4.0, 3.0, 2.0, 4.0]  # the last one repeats the third
        others = [rows([report(f"c{n}", 900)], first=6 + n, at=topic) for n in range(3)]
        return [rows(values, ages_s, at=topic), *others]

    stored = divided(flood("persistent://public/default/t"), **bounds)
    assert stored.brokers == ["b0", "b0", "c0"]
    places = {each["position"].rpartition("@")[2]: each["reason"] for each in stored.left_out}
    assert places == {
        "0": "stale",
        **dict.fromkeys("12", "too_many_reports"),
        **dict.fromkeys("78", "too_much"),
    }
    assert [letter["position"][-2:] for letter in stored.letters] == ["@5"]
    live = divided(flood("non-persistent://pulsar/system/t"), **bounds)
    assert (live.brokers, live.left_out) == (stored.brokers, [])
    assert Counter(letter["reason"] for letter in live.letters) == {
        "stale": 1,
        "too_many_reports": 3,
        "too_much": 2,
    }


def test_late_reports_are_not_held_whole_however_many_arrive() -> None:
    """A pause of the job ends with thousands of them in one micro-batch."""
    value = report("b", 1 << 20)
    before = pa.total_allocated_bytes()

    def arriving() -> Iterator[pa.RecordBatch]:
        for first in range(0, 200, 5):
            assert pa.total_allocated_bytes() - before < 40 << 20
            yield rows([value] * 5, [180.0] * 5, first, most=len(value))

    assert len(Taken(arriving()).left_out) == 200


@pytest.mark.parametrize("junk", [b"", b"0123456789", b"\x00" * 500])
def test_late_junk_takes_no_room_of_reports_that_are_recorded_later(junk: bytes) -> None:
    found = divided([rows([junk, report("b")], [300.0, 300.0])])
    assert found.brokers == []
    assert [row["position"] for row in found.left_out] == ["t/0@1"]
    assert [(row["position"], row["reason"]) for row in found.letters] == [("t/0@0", "stale")]


def test_late_reports_of_brokers_that_no_pattern_allows_are_letters() -> None:
    batch = rows([report("broker-1"), report("ghost")], [300.0, 300.0])
    found = Taken([batch], checks=SenderChecks(patterns=("broker-*",)))
    assert [row["position"] for row in found.left_out] == ["t/0@0"]
    assert [row["position"] for row in found.letters] == ["t/0@1"]
