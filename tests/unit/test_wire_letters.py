"""Dead letters: a few of each reason, and one that stands for all the others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.wire.reasons import ABSURD, NOT_PROTOBUF, STALE
from quotaplane.wire.rejected_reports import MOST_LETTERS, Letters, condensed, median_time_ms
from quotaplane.wire.shard_inputs import REJECTED


def batch(count: int) -> Letters:
    values = [f"{n}".encode() for n in range(count)]
    return Letters(values, np.arange(count) * 10, [f"t/0@{n}" for n in range(count)])


def test_a_few_have_a_letter_of_their_own_and_one_stands_for_the_others() -> None:
    letters = batch(1000)
    asked: list[int] = []

    def detail(index: int) -> str:
        asked.append(index)
        return f"number {index}"

    letters.refuse(np.arange(0, 500), NOT_PROTOBUF, detail)
    letters.refuse(np.arange(600, 700), NOT_PROTOBUF, detail)
    letters.refuse(np.arange(700, 703), STALE, detail)
    rows = letters.table().to_pylist()
    assert asked == [*range(MOST_LETTERS), 700, 701, 702]  # nothing is made for the others
    assert [row["position"] for row in rows[:MOST_LETTERS]] == [
        f"t/0@{n}" for n in range(MOST_LETTERS)
    ]
    assert rows[3] == {
        "reason": NOT_PROTOBUF,
        "detail": "number 3",
        "position": "t/0@3",
        "published_at_ms": 30,
        "counts_as_bad": True,
        "reports": 1,
        "raw": b"3",
        "sender": None,
    }
    assert rows[-1] == {
        "reason": NOT_PROTOBUF,
        "detail": f"{600 - MOST_LETTERS} more reports for this reason, the last one at t/0@699",
        "position": f"t/0@{MOST_LETTERS}",
        "published_at_ms": 2990,  # in the middle of 1000 to 4990, which most have
        "counts_as_bad": True,
        "reports": 600 - MOST_LETTERS,
        "raw": b"",
        "sender": None,
    }
    assert [row["counts_as_bad"] for row in rows if row["reason"] == STALE] == [False] * 3
    assert letters.usable.tolist() == [not (n < 500 or 600 <= n < 703) for n in range(1000)]


def test_entries_and_whole_reports_are_told_apart() -> None:
    letters = batch(300)
    letters.refuse(np.arange(150), ABSURD, str)
    letters.refuse_entries(np.arange(150, 300), ABSURD, lambda index: (f"part of {index}", b"part"))
    rows = letters.table().to_pylist()
    assert sum(row["reports"] for row in rows if row["counts_as_bad"]) == 150
    assert sum(row["reports"] for row in rows if not row["counts_as_bad"]) == 150
    assert letters.usable.tolist() == [False] * 150 + [True] * 150


@pytest.mark.parametrize("batches", [1, 7, 40])
def test_letters_of_many_batches_become_those_of_one(batches: int) -> None:
    made = []
    for number in range(batches):
        letters = batch(200)
        letters.refuse(np.arange(150), NOT_PROTOBUF, str)
        letters.refuse(np.arange(150, 150 + number), STALE, str)
        made.append(letters.table())
    table = condensed(pa.concat_tables([REJECTED.empty_table(), *made]))
    assert table.schema == REJECTED
    rows = table.to_pylist()
    for reason, total in ((NOT_PROTOBUF, 150 * batches), (STALE, sum(range(batches)))):
        mine = [row["reports"] for row in rows if row["reason"] == reason]
        assert sum(mine) == total
        assert mine.count(1) <= MOST_LETTERS
        assert len(mine) <= MOST_LETTERS + 1


def test_one_report_that_is_too_large_to_be_kept_costs_no_other_its_bytes() -> None:
    values = [b"x" * (5 << 20), b"small", b"y" * (3 << 20), b"z" * (2 << 20), b"?"]
    letters = Letters(values, np.zeros(5, np.int64), [str(n) for n in range(5)])
    letters.refuse(np.arange(5), NOT_PROTOBUF, str)
    table = letters.table()
    assert [len(raw) for raw in table["raw"].to_pylist()] == [0, 5, 3 << 20, 0, 0]
    out = [
        text.endswith("raw bytes left out, there are too many")
        for text in table["detail"].to_pylist()
    ]
    assert out == [True, False, False, True, True]


def test_letters_that_stand_for_many_keep_their_positions() -> None:
    """As those of reports that were passed over: one a partition, with its range."""
    letters = batch(250)
    letters.refuse(np.arange(150), NOT_PROTOBUF, str)
    ranges = pa.table(
        {
            "reason": [STALE] * 60,
            "detail": ["5000 reports, not read"] * 60,
            "position": [f"t/{n}@0 to 4999" for n in range(60)],
            "published_at_ms": [-1] * 60,
            "counts_as_bad": [False] * 60,
            "reports": [5000] * 60,
            "raw": [b""] * 60,
            "sender": [None] * 60,
        },
        schema=REJECTED,
    )
    rows = condensed(pa.concat_tables([letters.table(), ranges])).to_pylist()
    told = [(row["position"], row["reports"]) for row in rows if row["reason"] == STALE]
    assert told == [(f"t/{n}@0 to 4999", 5000) for n in range(60)]
    assert sum(row["reports"] for row in rows if row["reason"] == NOT_PROTOBUF) == 150


@given(
    st.lists(st.tuples(st.integers(-3, 60), st.integers(1, 5)), min_size=1, max_size=40),
)
def test_the_median_time_counts_every_report_whose_time_is_known(
    letters: list[tuple[int, int]],
) -> None:
    times = sorted(time for time, reports in letters if time >= 0 for _ in range(reports))
    found = median_time_ms(*np.array(letters, np.int64).T)
    assert found == (times[(len(times) - 1) // 2] if times else -1)
    assert median_time_ms(np.repeat(*np.array(letters, np.int64).T)) == found


@pytest.mark.parametrize("batches", [1, 7])
def test_few_old_reports_do_not_move_the_time_of_the_letter_that_stands_for_many(
    batches: int,
) -> None:
    made = []
    for _ in range(batches):
        times = np.r_[np.full(101, 1_000), np.full(700, 1_000_000)]
        letters = Letters([b""] * len(times), times, [""] * len(times))
        letters.refuse(np.arange(len(times)), STALE, str)
        made.append(letters.table())
    table = condensed(pa.concat_tables(made).sort_by("published_at_ms"))
    (all_others,) = [row for row in table.to_pylist() if row["reports"] > 1]
    assert all_others["published_at_ms"] == 1_000_000
    columns = (table[name].to_numpy() for name in ("published_at_ms", "reports"))
    assert median_time_ms(*columns) == 1_000_000
