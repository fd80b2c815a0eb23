"""The job's last round is found wherever it is, and the counts are of the last minute."""

from __future__ import annotations

from datetime import timedelta

import pyarrow as pa

from quotaplane.cli.show_status import _job_lines
from quotaplane.query.cluster_status import RoundStatus, job_status, rejected_reasons
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.settings import History
from quotaplane.streams.letters import letters_of
from tests.histories import make_history
from tests.unit.history.history_cases import NOON_MS, rounds
from tests.unit.query.audit_cases import write
from tests.unit.sim.recorded_history import at

AGAIN = pa.array([2])


def write_rounds(history: History, epoch: int, *seconds: int) -> None:
    write(history, {second: {"rounds": round_row()} for second in seconds}, epoch)


def round_row() -> pa.Table:
    row = rounds(reports=3)
    for name in ("duplicates", "outdated"):
        row = row.set_column(row.column_names.index(name), name, AGAIN)
    return row


def status(history: History, second: int) -> RoundStatus | None:
    with DuckDBEngine(history) as engine:
        return job_status(engine, at(second))


def test_counts_are_of_the_last_minute_and_the_last_round_of_any_time(history: History) -> None:
    write_rounds(history, 1, 0, 30, 60)
    found = status(history, 70)
    assert found is not None
    assert (found.seq, found.age_s, found.rounds, found.reports) == (2, 10.0, 2, 6)
    assert found.outdated == 8
    later = status(history, 7200)
    assert later is not None
    assert (later.seq, later.age_s, later.rounds, later.reports) == (2, 7140.0, 0, 0)


def test_a_job_that_never_ran_has_no_status(history: History) -> None:
    make_history(history)
    assert status(history, 0) is None


def test_an_earlier_job_whose_clock_was_ahead_is_not_taken_for_the_last(history: History) -> None:
    ahead = int(timedelta(hours=1).total_seconds())
    write_rounds(history, 1, ahead)
    write_rounds(history, 2, 0)
    found = status(history, 600)
    assert found is not None
    assert (found.epoch, found.age_s) == (2, 600.0)


def test_refused_reports_are_counted_by_reason_as_far_as_they_are_of_the_last_minute(
    history: History,
) -> None:
    def refused(reason: str, count: int) -> pa.Table:
        about = {"position": "r/0@1", "published_at_ms": NOON_MS, "detail": "", "sender": None}
        return letters_of(1, reason=reason, reports=count, **about)

    happened = {}
    for seq, second in enumerate((0, 30, 60)):
        letters = [refused("too_many_brokers", 1000), refused("other_broker", seq)]
        tables = {"rounds": round_row(), "rejected_reports": pa.concat_tables(letters)}
        happened[second] = tables
    write(history, happened)
    with DuckDBEngine(history) as engine:
        assert rejected_reasons(engine, at(70)) == {"too_many_brokers": 2000, "other_broker": 3}
        assert rejected_reasons(engine, at(7200)) == {}
        lines = _job_lines(job_status(engine, at(70)), rejected_reasons(engine, at(70)))
    assert lines[2] == "rejected too_many_brokers=2000 other_broker=3"
