"""Dead letters are bounded in number and bytes, whatever comes."""

from __future__ import annotations

import pyarrow as pa

from quotaplane.streams.letter_budget import LETTERS, LetterBudget
from quotaplane.streams.letters import letters_of
from quotaplane.streams.quota.dead_letters import UNKNOWN_GROUP
from quotaplane.wire.shard_inputs import REJECTED

HOUR_MS = 3_600_000


def letters(*rows: tuple[str, int], raw: bytes = b"?") -> pa.Table:
    """``(reason, how many)`` each."""
    reasons = [reason for reason, count in rows for _ in range(count)]
    return letters_of(
        len(reasons),
        reason=pa.array(reasons, pa.string()),
        position=pa.array([f"reports/0@{n}" for n in range(len(reasons))], pa.string()),
        published_at_ms=1,
        detail="no report",
        counts_as_bad=True,
        raw=raw,
    )


def test_few_letters_are_kept_as_they_are() -> None:
    few = letters(("empty", 2), ("stale", 3))
    assert LetterBudget().cut(few, 0).equals(few)
    assert LetterBudget().cut(few.slice(0, 0), 0).num_rows == 0


def test_the_rest_of_a_reason_is_one_letter_that_says_how_many() -> None:
    made = letters(("empty", 5), ("stale", 1))
    made = made.set_column(
        made.column_names.index("reports"), REJECTED.field("reports"), pa.array([1, 1, 1, 2, 45, 1])
    )
    kept = LetterBudget(letters=3).cut(made, 0)
    assert kept["reason"].to_pylist() == ["empty"] * 3 + ["stale", "empty"]
    summary = kept.to_pylist()[-1]
    assert summary["position"] == "reports/0@3"
    assert summary["reports"] == 47
    assert summary["detail"] == (
        "47 more reports for this reason, the last one at reports/0@4; at most 3 letters of each "
        "reason are kept per hour"
    )
    assert (summary["raw"], summary["counts_as_bad"]) == (b"", True)


def test_letters_of_undefined_groups_have_a_bound_of_their_own() -> None:
    many = letters(("unknown_group", 5 * LETTERS))
    assert LetterBudget(exempt={UNKNOWN_GROUP}).cut(many, 0).equals(many)
    assert len(LetterBudget().cut(many, 0)) < len(many)


def test_a_reason_with_many_letters_takes_nothing_from_another() -> None:
    budget = LetterBudget(letters=10)
    budget.cut(letters(("not_protobuf", 10_000)), 0)
    kept = budget.cut(letters(("not_protobuf", 10_000), ("bad_definition", 7)), 1000)
    assert kept["reason"].to_pylist().count("bad_definition") == 7
    assert kept["reason"].to_pylist().count("not_protobuf") == 1


def test_letters_over_the_bytes_are_kept_without_raw_bytes() -> None:
    kept = LetterBudget(raw_bytes=25).cut(letters(("empty", 4), raw=b"x" * 10), 0)
    assert [len(raw) for raw in kept["raw"].to_pylist()] == [10, 10, 0, 0]
    assert (
        kept["detail"].to_pylist()
        == ["no report"] * 2 + ["no report; raw bytes left out, there are too many"] * 2
    )


def test_letters_and_bytes_come_back_in_an_hour_and_not_with_a_clock_that_goes_back() -> None:
    budget = LetterBudget(letters=10, raw_bytes=100)
    times_ms = (0, HOUR_MS // 2, 0, 9 * HOUR_MS)
    found = [budget.cut(letters(("empty", 30), raw=b"x" * 20), now_ms) for now_ms in times_ms]
    assert [len(kept) - 1 for kept in found] == [10, 5, 0, 10]  # and one for the rest
    raw = [sum(map(len, kept["raw"].to_pylist())) for kept in found]
    assert raw == [100, 40, 0, 100]
