"""Recorded rounds, run again: bit for bit, and with something changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable

from quotaplane.model import RATE_COLUMNS
from quotaplane.replay.player import Changes
from quotaplane.replay.quota_what_if import what_if
from quotaplane.replay.recorded import recorded_rounds
from quotaplane.replay.verify import Verified, verify
from quotaplane.settings import History
from tests.closed_loop.conftest import at, group_row, group_table, settings_with
from tests.closed_loop.recorded_loop import RecordedLoop
from tests.examples import in_nightly

WANTS = {
    "orders": {"a": [(0, 80.0)], "b": [(0, 80.0)], "c": [(0, 0.0), (20, 60.0)]},
    "batch": {"a": [(0, 30.0), (15, 5.0)], "b": [(0, 10.0)]},
}
QUOTAS = {"orders": {"publish_messages": 100.0}, "batch": {"publish_messages": 25.0}}


def record(folder: Path, **limits: Any) -> History:
    """Forty rounds with a changed and a deleted quota, a broker that wakes, and two crashes."""
    history = History(path=str(folder / "history"))
    limits = {"lease_s": 10.0, "refresh_rounds": 5, **limits}
    settings, killed = settings_with(limits=limits), frozenset({7, 22})
    loop = RecordedLoop(history, WANTS, QUOTAS, settings=settings, killed_after=killed)
    loop.run(10)
    loop.put("orders", {"publish_messages": 120.0})
    loop.run(15)
    loop.delete("batch")
    loop.run(15)
    return history


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> History:
    return record(tmp_path_factory.mktemp("strict"), transition="strict")


@pytest.fixture(scope="module", params=["strict", *in_nightly("fast")])
def recorded(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> History:
    if request.param == "strict":
        return request.getfixturevalue("strict")
    return record(tmp_path_factory.mktemp("fast"), transition="fast")


def found(history: History, since: float, until: float) -> tuple[list[str], Verified]:
    verified = Verified()
    differences = [one.problem for one in verify(history, at(since), at(until), verified)]
    return differences, verified


def test_a_replay_gives_the_recorded_limits_bit_for_bit(recorded: History) -> None:
    differences, verified = found(recorded, 0, 60)
    assert differences == []
    assert verified.rounds == 40
    assert verified.limits > 10


@pytest.mark.nightly
def test_limits_over_the_quota_are_replayed_and_can_be_tried(tmp_path: Path) -> None:
    history = record(tmp_path, over=0.1)
    differences, verified = found(history, 0, 60)
    assert (differences, verified.rounds) == ([], 40)
    assert len(what_if(history, at(0), at(40), Changes({"limits.over": 0.1}))) == 0
    within = what_if(history, at(0), at(40), Changes({"limits.over": 0.0})).to_pylist()
    assert sum(row["changed_limit_per_s"] - row["limit_per_s"] for row in within) < 0.0


def test_a_replay_of_a_part_begins_with_the_last_recorded_state(recorded: History) -> None:
    differences, verified = found(recorded, 30, 35)
    assert differences == []
    assert verified.rounds == 5


@pytest.mark.nightly
def test_rounds_without_a_usable_report_are_replayed(tmp_path: Path) -> None:
    """The job starts before its brokers, and then all are silent for two rounds."""
    history, numbers = History(path=str(tmp_path / "history")), iter(range(20))
    silent = {0, 1, 2, 10, 11}
    RecordedLoop(
        history,
        WANTS,
        QUOTAS,
        mangle=lambda reports: reports if next(numbers) not in silent else [],
    ).run(20)
    differences, verified = found(history, 0, 60)
    assert differences == []
    assert verified.limits > 0
    assert len(what_if(history, at(0), at(20), Changes({"law.name": "static"})))


def test_one_changed_bit_in_the_record_is_found(strict: History, tmp_path: Path) -> None:
    history = History(path=str(shutil.copytree(strict.path, tmp_path / "history")))
    column, table = RATE_COLUMNS[0], DeltaTable(f"{history.path}/limits")
    of_orders = (pc.field("resource_group") == "orders") & (pc.field(column) > 0)
    rows = table.to_pyarrow_table().filter(of_orders & (pc.field("seq") >= 10))
    row = rows.sort_by("seq").to_pylist()[0]
    table.update(
        updates={column: f"{column} * 1.0000000000000002"},
        predicate=f"seq = {row['seq']} AND broker = '{row['broker']}' "
        "AND resource_group = 'orders'",
    )
    differences, _ = found(history, 0, 60)
    assert len(differences) == 1
    assert f"group orders: {column} is" in differences[0]


def changed_group(name: str, quota: float) -> pa.Table:
    return group_table([group_row(name, **{RATE_COLUMNS[0]: quota})])


def test_a_lower_quota_would_have_allowed_less(strict: History) -> None:
    changes = Changes(groups=changed_group("orders", 50.0))
    rows = what_if(strict, at(0), at(40), changes).to_pylist()
    assert {row["group"] for row in rows} == {"orders"}
    losers = {row["broker"]: row for row in rows if row["less_units"] > 0}
    assert set(losers) == {"a", "b", "c"}
    # Together they used 100 to 120 a second in 40 s, and would have had 50.
    assert 1_500 < sum(row["less_units"] for row in rows) < 3_500
    assert losers["c"]["first_less_at"] >= at(20)


@pytest.mark.nightly
def test_a_higher_quota_would_have_allowed_more(strict: History) -> None:
    rows = what_if(strict, at(0), at(40), Changes(groups=changed_group("orders", 300.0)))
    assert sum(rows["less_units"].to_pylist()) == 0
    assert min(row["more_units"] for row in rows.to_pylist() if row["broker"] in "ab") > 500


@pytest.mark.nightly
def test_the_same_settings_change_nothing_and_others_do(strict: History) -> None:
    same = what_if(strict, at(0), at(40), Changes({"brokers.expire_after_intervals": 3.0}))
    assert len(same) == 0
    static = what_if(strict, at(0), at(40), Changes({"law.name": "static"}))
    assert len(static) > 0


def test_rounds_come_with_their_time_and_inputs(strict: History) -> None:
    rounds = [one for part in recorded_rounds(strict, at(0), at(60)) for one in part]
    assert [one.stamp.seq for one in rounds] == list(range(40))
    assert all(one.arrived for one in rounds)
    assert rounds[0].settings is not None
    assert sorted(rounds[0].states) == [0, 1]
