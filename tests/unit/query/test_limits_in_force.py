"""The list of limits is that of the newest round, although leases are recorded less often."""

from __future__ import annotations

import json

import pytest

from quotaplane.cli.main import main
from quotaplane.history.store import open_table
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.query.limits_in_force import limits_in_force
from quotaplane.settings import History
from tests.unit.cli.refusals import refused
from tests.unit.sim.recorded_history import Recording, at

WANTS = {"g": {"a": [(0, 80.0)], "b": [(0, 80.0)]}}


def listed(history: History) -> dict[str, tuple[float, str]]:
    with DuckDBEngine(history) as engine:
        rows = limits_in_force(engine, "g", None, 10)
    assert all(row["lease_ends_at"] > row["since"] for row in rows)
    return {row["broker"]: (row["limit_per_s"], row["reason"]) for row in rows}


def snapshot_second(history: History) -> float:
    times = open_table(history, "leases").to_pyarrow_table()["round_at"].to_pylist()
    return (max(times) - at(0)).total_seconds()


def test_a_limit_that_is_newer_than_the_recorded_lease_counts(history: History) -> None:
    recording = Recording(history, WANTS, shards=1).put("g", 100.0).run(21).write()
    limits = listed(history)
    assert {name: limit for name, (limit, _) in limits.items()} == {"a": 50.0, "b": 50.0}
    before = snapshot_second(history)
    recording.put("g", 60.0).run(2).write()
    assert snapshot_second(history) == before, "or the test shows nothing"
    limits = listed(history)
    assert {name: limit for name, (limit, _) in limits.items()} == {"a": 30.0, "b": 30.0}
    assert all(reason.startswith("saturated at 30") for _, reason in limits.values())


def test_a_limit_that_ended_since_the_lease_was_recorded_is_not_listed(history: History) -> None:
    recording = Recording(history, WANTS, shards=1).put("g", 100.0).run(21).write()
    before = snapshot_second(history)
    recording.delete("g").run(2).write()
    assert snapshot_second(history) == before, "or the test shows nothing"
    assert listed(history) == {}


def test_a_name_that_nothing_has_is_refused(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    Recording(history, WANTS, shards=1).put("g", 100.0).put("unused", 5.0).run(21).write()

    for words, limits in ((["unused"], 0), (["g", "--broker", "a"], 1)):
        assert main(["limits", *words, "--json", "--history", history.path]) == 0
        assert len(json.loads(capsys.readouterr().out)) == limits
    for command in ("limits", "groups history", "groups get"):
        line = refused(capsys, *command.split(), "NOPE", "--history", history.path)
        assert line == "quotaplane: error: group 'NOPE' does not exist\n"
    line = refused(capsys, "limits", "g", "--broker", "NOPE", "--history", history.path)
    assert "there is no broker 'NOPE'" in line
