"""Dead letters: a few of each reason, and one that stands for all the others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.streams.letters import letters_of
from quotaplane.wire.reasons import ABSURD, NOT_PROTOBUF, STALE, UnusableReportError
from quotaplane.wire.rejected_reports import (
    MOST_LETTERS,
    Refusal,
    condensed,
    first_defects,
    letters_of_batch,
    median_time_ms,
    refusal,
)
from quotaplane.wire.shard_inputs import REJECTED


def batch(count: int, *refusals: Refusal) -> pa.Table:
    values = [f"{n}".encode() for n in range(count)]
    places = [f"t/0@{n}" for n in range(count)]
    return letters_of_batch(refusals, values, np.arange(count) * 10, places)


def test_each_refused_report_has_a_letter_in_the_order_of_the_batch() -> None:
    late = Refusal(np.arange(70, 73), STALE, lambda index: f"number {index}")
    broken = refusal(3, UnusableReportError(NOT_PROTOBUF, "why"))
    rows = batch(100, late, broken).to_pylist()
    assert [row["position"] for row in rows] == ["t/0@3", "t/0@70", "t/0@71", "t/0@72"]
    assert [*rows[0].values()] == [NOT_PROTOBUF, "why", "t/0@3", 30, True, 1, b"3", None]
    assert (rows[1]["detail"], rows[1]["counts_as_bad"]) == ("number 70", False)


def test_a_report_with_several_defects_is_refused_for_the_first_one() -> None:
    usable = np.ones(4, bool)
    checks = [(np.array([1, 1, 0, 0], bool), "a", str), (np.array([0, 1, 1, 0], bool), "b", str)]
    found = {one.reason: one.which.tolist() for one in first_defects(usable, checks)}
    assert found == {"a": [0, 1], "b": [2]}
    assert usable.tolist() == [False, False, False, True]


def test_a_report_with_bad_entries_has_a_letter_that_does_not_count_as_bad() -> None:
    whole = Refusal(np.arange(2), ABSURD, str)
    in_part = Refusal(np.arange(2, 5), ABSURD, str, lambda index: b"part of %d" % index)
    rows = batch(5, whole, in_part).to_pylist()
    assert [row["counts_as_bad"] for row in rows] == [True] * 2 + [False] * 3
    assert [row["raw"] for row in rows][1:3] == [b"1", b"part of 2"]


@pytest.mark.parametrize("batches", [1, 7, 40])
def test_letters_of_many_batches_become_those_of_one(batches: int) -> None:
    made = [
        batch(
            200,
            Refusal(np.arange(150), NOT_PROTOBUF, str),
            Refusal(np.arange(150, 150 + number), STALE, str),
        )
        for number in range(batches)
    ]
    table = condensed(pa.concat_tables([REJECTED.empty_table(), *made]))
    assert table.schema == REJECTED
    rows = table.to_pylist()
    for reason, total in ((NOT_PROTOBUF, 150 * batches), (STALE, sum(range(batches)))):
        mine = [row["reports"] for row in rows if row["reason"] == reason]
        assert sum(mine) == total
        assert mine.count(1) <= MOST_LETTERS
        assert len(mine) <= MOST_LETTERS + 1
    if batches == 1:
        assert rows[-1] == {
            "reason": NOT_PROTOBUF,
            "detail": "50 more reports for this reason, the last one at t/0@149",
            "position": "t/0@100",
            "published_at_ms": 1240,  # in the middle of 1000 to 1490
            "counts_as_bad": True,
            "reports": 50,
            "raw": b"",
            "sender": None,
        }


def test_one_report_that_is_too_large_to_be_kept_costs_no_other_its_bytes() -> None:
    values = [b"x" * (5 << 20), b"small", b"y" * (3 << 20), b"z" * (2 << 20), b"?"]
    all_of_them = Refusal(np.arange(5), NOT_PROTOBUF, str)
    table = letters_of_batch([all_of_them], values, np.zeros(5, np.int64), [*"01234"])
    assert [len(raw) for raw in table["raw"].to_pylist()] == [0, 5, 3 << 20, 0, 0]
    details = table["detail"].to_pylist()
    left_out = [text.endswith("raw bytes left out, there are too many") for text in details]
    assert left_out == [True, False, False, True, True]


def test_letters_that_stand_for_many_keep_their_positions() -> None:
    """As those of reports that were passed over: one a partition, with its range."""
    letters = batch(250, Refusal(np.arange(150), NOT_PROTOBUF, str))
    ranges = letters_of(
        60,
        reason=STALE,
        detail="5000 reports, not read",
        position=pa.array([f"t/{n}@0 to 4999" for n in range(60)]),
        published_at_ms=-1,
        reports=5000,
    )
    rows = condensed(pa.concat_tables([letters, ranges])).to_pylist()
    told = [(row["position"], row["reports"]) for row in rows if row["reason"] == STALE]
    assert told == [(f"t/{n}@0 to 4999", 5000) for n in range(60)]
    assert sum(row["reports"] for row in rows if row["reason"] == NOT_PROTOBUF) == 150


@given(st.lists(st.tuples(st.integers(-3, 60), st.integers(1, 5)), min_size=1, max_size=40))
def test_the_median_time_counts_every_report_whose_time_is_known(
    letters: list[tuple[int, int]],
) -> None:
    times = sorted(time for time, reports in letters if time >= 0 for _ in range(reports))
    found = median_time_ms(*np.array(letters, np.int64).T)
    assert found == (times[(len(times) - 1) // 2] if times else -1)


def test_few_old_reports_do_not_move_the_time_of_the_letter_that_stands_for_many() -> None:
    times = np.r_[np.full(101, 1_000), np.full(700, 1_000_000)]
    stale = Refusal(np.arange(len(times)), STALE, str)
    one = letters_of_batch([stale], [b""] * len(times), times, [""] * len(times))
    table = condensed(pa.concat_tables([one] * 7).sort_by("published_at_ms"))
    (all_others,) = [row for row in table.to_pylist() if row["reports"] > 1]
    assert all_others["published_at_ms"] == 1_000_000
    assert median_time_ms(*(table[n].to_numpy() for n in ("published_at_ms", "reports"))) == 10**6
