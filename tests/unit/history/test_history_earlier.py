"""What a job learns of the runs before it."""

from __future__ import annotations

import pyarrow as pa
import pytest

from quotaplane.history.previous_run import Earlier, read_earlier
from quotaplane.history.store import ensure_tables
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.settings import History
from tests.unit.history.history_cases import DAY_MS, NOON_MS, limits, rounds


@pytest.fixture(autouse=True)
def tables(history: History) -> None:
    ensure_tables(history)


def lasting(lease_ms: int) -> pa.Table:
    table = limits([("b1", "g", 5.0)])
    at = table.column_names.index("lease_ms")
    return table.set_column(at, "lease_ms", pa.array([lease_ms]))


def test_without_a_round_there_was_nothing(history: History) -> None:
    assert read_earlier(history) == Earlier(0, 0)


def test_limits_of_the_last_epoch_are_over_a_lease_after_its_last_round(history: History) -> None:
    written = (
        (3, 1, NOON_MS - DAY_MS, 9_999_000),  # an epoch before
        (4, 1, NOON_MS, 600_000),
        (4, 2, NOON_MS + 1_000, 60_000),
    )
    for epoch, seq, at_ms, lease_ms in written:
        with HistoryWriter(history, app_id=f"epoch {epoch}") as writer:
            tables = {"limits": lasting(lease_ms), "rounds": rounds()}
            writer.append_round(Round(epoch, seq, at_ms), tables)
    with HistoryWriter(history, app_id="epoch 4") as writer:
        writer.append_round(Round(4, 3, NOON_MS + 5_000), {"rounds": rounds()})
    assert read_earlier(history) == Earlier(4, NOON_MS + 5_000 + 600_000)


def test_an_epoch_that_told_nothing_is_over_with_its_last_round(history: History) -> None:
    with HistoryWriter(history, app_id="x") as writer:
        writer.append_round(Round(4, 1, NOON_MS), {"rounds": rounds()})
    assert read_earlier(history) == Earlier(4, NOON_MS)


def test_an_epoch_that_ran_briefly_does_not_hide_the_leases_of_the_one_before(
    history: History,
) -> None:
    """A broker out of reach may still have limits of the one before."""
    for epoch, at_ms, lease_ms in ((4, NOON_MS, 3_600_000), (5, NOON_MS + 60_000, 120_000)):
        with HistoryWriter(history, app_id=f"epoch {epoch}") as writer:
            tables = {"limits": lasting(lease_ms), "rounds": rounds()}
            writer.append_round(Round(epoch, 1, at_ms), tables)
    assert read_earlier(history) == Earlier(5, NOON_MS + 3_600_000)


def test_rounds_of_a_clock_that_was_ahead_count_as_of_now(history: History) -> None:
    """Else the next job would wait for an hour, and under strict nobody had a limit meanwhile."""
    with HistoryWriter(history, app_id="ahead") as writer:
        tables = {"limits": lasting(60_000), "rounds": rounds()}
        writer.append_round(Round(4, 1, NOON_MS + 3_600_000), tables)
    assert read_earlier(history, NOON_MS) == Earlier(4, NOON_MS + 60_000)
