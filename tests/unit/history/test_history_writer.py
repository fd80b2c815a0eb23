"""A round is in the history once, whole, and whatever else happens to the tables meanwhile."""

from __future__ import annotations

from datetime import date, datetime, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import HistoryError
from quotaplane.history.stamped_rows import stamped
from quotaplane.history.store import open_table
from quotaplane.history.tables import CHECKPOINT_INTERVAL, LIMITS, REJECTED_REPORTS, USAGE
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.settings import History
from tests.unit.history.history_cases import (
    DAY_MS,
    NOON_MS,
    full_round,
    limits,
    read,
    rejected,
    rounds,
    usage,
)

pytestmark = [pytest.mark.usefixtures("tables"), pytest.mark.slow]
NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


def at(seq: int, epoch: int = 1) -> Round:
    return Round(epoch, seq, NOON_MS + seq * 1000)


@pytest.fixture
def writer(history: History) -> HistoryWriter:
    return HistoryWriter(history, "checkpoint-1")


def test_rows_are_stamped_and_converted(history: History, writer: HistoryWriter) -> None:
    writer.append_round(
        at(3), {"usage": usage([("b1", "g1", 10.0)]), "limits": limits([("b1", "g", 5.0)])}
    )
    assert read(history, "usage").to_pylist() == [
        {
            **dict.fromkeys(USAGE.schema.names),
            "epoch": 1,
            "seq": 3,
            "round_at": NOON.replace(second=3),
            "date": date(2026, 3, 1),
            "broker": "b1",
            "resource_group": "g1",
            "published_at": NOON,
            "position": "0:1",
            "publish_messages_per_s": 10.0,
        }
    ]
    (limit,) = read(history, "limits").to_pylist()
    assert (limit["publish_messages_per_s"], limit["publish_bytes_per_s"]) == (5.0, None)
    assert (limit["publish_messages_reason_code"], limit["lease_ms"]) == (4, 120_000)


@pytest.mark.parametrize("absent", ["total_bytes_per_s", "controller_mutations_per_s"])
def test_what_may_be_null_may_be_absent(
    history: History, writer: HistoryWriter, absent: str
) -> None:
    """Nobody limits it, or speaks of it, in any shard."""
    writer.append("usage", usage([("b1", "g1", 10.0)]).drop_columns([absent]), at(0))
    assert read(history, "usage")[absent].to_pylist() == [None]
    with pytest.raises(HistoryError, match="missing column position"):
        writer.append("usage", usage([("b", "g", 1.0)]).drop_columns(["position"]), at(1))


def test_a_replayed_round_adds_nothing(history: History, writer: HistoryWriter) -> None:
    writer.append_round(at(0), full_round())
    writer.append_round(at(1), full_round())
    before = {name: read(history, name) for name in full_round()}
    writer.append_round(at(1), full_round())
    HistoryWriter(history, "checkpoint-1").append_round(at(0), full_round())
    assert {name: read(history, name) for name in full_round()} == before
    assert before["rounds"].num_rows == 2
    assert before["usage"].num_rows == 4


def test_a_round_cut_off_half_way_is_completed(history: History, writer: HistoryWriter) -> None:
    writer.append("usage", full_round()["usage"], at(0))
    writer.append("limits", full_round()["limits"], at(0))
    HistoryWriter(history, "checkpoint-1").append_round(at(0), full_round())
    counts = {name: read(history, name).num_rows for name in full_round()}
    assert counts == {"usage": 2, "limits": 1, "brokers": 1, "rejected_reports": 1, "rounds": 1}


def test_rounds_come_last(history: History, writer: HistoryWriter) -> None:
    broken = {**full_round(), "limits": full_round()["limits"].drop_columns(["lease_ms"])}
    with pytest.raises(HistoryError, match="missing column lease_ms"):
        writer.append_round(at(0), broken)
    assert read(history, "rounds").num_rows == 0
    assert writer.last_seq() is None
    writer.append_round(at(0), full_round())
    assert (writer.last_seq(), writer.last_seq("usage")) == (0, 0)


def test_a_new_checkpoint_counts_from_zero_again(history: History, writer: HistoryWriter) -> None:
    writer.append_round(at(7), full_round())
    HistoryWriter(history, "checkpoint-2").append_round(at(0, epoch=2), full_round())
    assert sorted(read(history, "rounds")["epoch"].to_pylist()) == [1, 2]


def test_empty_tables_make_no_commit(history: History, writer: HistoryWriter) -> None:
    assert writer.append("usage", usage([]), at(0)) is False
    writer.append_round(at(0), {"usage": usage([]), "rounds": rounds()})
    assert open_table(history, "usage").version() == 0
    assert open_table(history, "rounds").version() == 1


def test_of_two_writers_with_one_id_the_second_adds_nothing(history: History) -> None:
    one, other = (HistoryWriter(history, "checkpoint-1") for _ in range(2))
    assert one.append("rounds", rounds(reports=1), at(0)) is True
    assert other.append("rounds", rounds(reports=2), at(0)) is False
    assert other.append("rounds", rounds(reports=3), at(1)) is True
    assert one.append("rounds", rounds(reports=4), at(1)) is False
    assert sorted(read(history, "rounds")["reports"].to_pylist()) == [1, 3]


def test_several_checkpoints_of_the_log(history: History, writer: HistoryWriter) -> None:
    rows = 2 * CHECKPOINT_INTERVAL + 3
    for seq in range(rows):
        writer.append("rounds", rounds(), at(seq))
    checkpoints = list(Path(history.path, "rounds", "_delta_log").glob("*.checkpoint.parquet"))
    assert len(checkpoints) == 2
    # What stood only in commits before the checkpoint is still known: the replay is dropped.
    assert HistoryWriter(history, "checkpoint-1").append("rounds", rounds(), at(rows - 1)) is False
    assert sorted(read(history, "rounds")["seq"].to_pylist()) == list(range(rows))


def test_appends_go_on_beside_compaction_and_delete(
    history: History, writer: HistoryWriter
) -> None:
    for seq in range(10):
        writer.append("usage", usage([("b", "g", float(seq))]), at(seq))
    other = open_table(history, "usage")
    assert other.optimize.compact()["numFilesRemoved"] == 10
    writer.append("usage", usage([("b", "g", 10.0)]), at(10))
    open_table(history, "usage").delete("seq < 5")
    writer.append("usage", usage([("b", "g", 11.0)]), at(11))
    assert sorted(read(history, "usage")["seq"].to_pylist()) == list(range(5, 12))


def test_a_table_that_was_removed_is_told(history: History, writer: HistoryWriter) -> None:
    for file in Path(history.path, "rounds", "_delta_log").iterdir():
        file.unlink()
    with pytest.raises(HistoryError, match=r"^history table rounds"):
        writer.append("rounds", rounds(), at(0))


def test_an_unknown_table_is_refused_before_anything_is_written(
    history: History, writer: HistoryWriter
) -> None:
    with pytest.raises(HistoryError, match="no table load"):
        writer.append_round(at(0), {**full_round(), "load": rounds()})
    assert read(history, "usage").num_rows == 0


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        (lambda t: t.append_column("colour", t["broker"]), "unknown column colour"),
        (lambda t: t.drop_columns(["position"]), "missing column position"),
        (lambda t: t.set_column(0, "broker", pa.array([None, "b"])), "broker has a null"),
        (lambda t: t.set_column(3, "position", pa.array([[1], [2]])), "position: "),
        (lambda t: t.set_column(2, "published_at_ms", pa.array(["x", "y"])), "published_at: "),
    ],
)
def test_rows_of_another_shape_are_refused(rows: object, problem: str) -> None:
    good = usage([("b1", "g", 1.0), ("b2", "g", 1.0)])
    assert stamped(USAGE, good, at(0)).num_rows == 2
    with pytest.raises(HistoryError, match=f"^rows for history table usage: {problem}"):
        stamped(USAGE, rows(good), at(0))  # type: ignore[operator]


def test_absurd_times_of_reports_are_kept_as_far_as_they_can_be() -> None:
    times = [-1, 0, NOON_MS, 2**63 - 1]
    kept = stamped(REJECTED_REPORTS, rejected(times), at(0))["published_at"].to_pylist()
    assert kept[:3] == [None, datetime(1970, 1, 1, tzinfo=timezone.utc), NOON]
    assert kept[3].year == 9999


@pytest.mark.parametrize(
    ("now_ms", "day"),
    [(DAY_MS - 1, date(1970, 1, 1)), (DAY_MS, date(1970, 1, 2)), (NOON_MS, date(2026, 3, 1))],
)
def test_the_date_is_the_utc_day(now_ms: int, day: date) -> None:
    rows = stamped(LIMITS, limits([("b", "g", 1.0)]), Round(1, 1, now_ms))
    assert rows["date"].to_pylist() == [day]
    assert pc.cast(rows["round_at"], pa.int64()).to_pylist() == [now_ms * 1000]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=1))
def test_no_table_ever_holds_nan_or_infinity(values: list[float]) -> None:
    rates = stamped(LIMITS, limits([("b", "g", v) for v in values]), at(0))[
        "publish_messages_per_s"
    ]
    wanted = [v if np.isfinite(v) else None for v in values]
    assert rates.to_pylist() == wanted
    assert rates.type == pa.float64()
