"""Facts that a job reads of the runs before it."""

from __future__ import annotations

import pytest

from quotaplane.history.previous_run import Earlier, read_earlier
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.settings import History
from tests.unit.history.history_cases import DAY_MS, NOON_MS, limits, rounds

pytestmark = pytest.mark.usefixtures("tables")


def write(history: History, epoch: int, seq: int, at_ms: int, lease_ms: int | None) -> None:
    """A round, with a limit of this lease; None: without limits."""
    tables = {"rounds": rounds()}
    if lease_ms is not None:
        tables["limits"] = limits([("b1", "g", 5.0)], lease_ms=lease_ms)
    with HistoryWriter(history, app_id=f"epoch {epoch}") as writer:
        writer.append_round(Round(epoch, seq, at_ms), tables)


def test_without_a_round_there_was_nothing(history: History) -> None:
    assert read_earlier(history) == Earlier(0, 0)


def test_limits_of_the_last_epoch_are_over_a_lease_after_its_last_round(history: History) -> None:
    write(history, 3, 1, NOON_MS - DAY_MS, 9_999_000)  # an epoch before
    write(history, 4, 1, NOON_MS, 600_000)
    write(history, 4, 2, NOON_MS + 1_000, 60_000)
    write(history, 4, 3, NOON_MS + 5_000, None)
    assert read_earlier(history) == Earlier(4, NOON_MS + 5_000 + 600_000)


def test_an_epoch_without_limits_is_over_with_its_last_round(history: History) -> None:
    write(history, 4, 1, NOON_MS, None)
    assert read_earlier(history) == Earlier(4, NOON_MS)


def test_an_epoch_that_ran_briefly_does_not_hide_the_leases_of_the_one_before(
    history: History,
) -> None:
    """A broker out of reach may still have limits of the one before."""
    write(history, 4, 1, NOON_MS, 3_600_000)
    write(history, 5, 1, NOON_MS + 60_000, 120_000)
    assert read_earlier(history) == Earlier(5, NOON_MS + 3_600_000)


def test_rounds_of_a_clock_that_was_ahead_count_as_of_now(history: History) -> None:
    """Else the next job would wait for an hour, and under strict nobody had a limit meanwhile."""
    write(history, 4, 1, NOON_MS + 3_600_000, 60_000)
    assert read_earlier(history, NOON_MS) == Earlier(4, NOON_MS + 60_000)
