"""An upgrade of an earlier version's history: names, codes of reasons, all versions of groups."""

from __future__ import annotations

import json
import shutil
import tarfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from quotaplane.cli.main import main
from quotaplane.history.store import ensure_tables, writing
from quotaplane.history.table_upgrade import upgrade
from quotaplane.history.tables import TABLES
from quotaplane.laws import Reason
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import list_groups
from quotaplane.settings import History

EARLIER = Path(__file__).parents[1] / "spark" / "job_before_one_mechanism.tar.gz"


@pytest.fixture
def earlier(tmp_path: Path) -> History:
    """Group g has 100; brokers a and b want 80 each."""
    with tarfile.open(EARLIER) as archive:
        archive.extractall(tmp_path, filter="data")
    return History(path=str(tmp_path / "history"))


def test_nothing_is_lost_and_a_second_time_there_is_nothing_to_do(earlier: History) -> None:
    rows = {
        name: len(DeltaTable(f"{earlier.path}/{name}").to_pyarrow_table())
        for name in TABLES
        if Path(earlier.path, name).exists()
    }
    said: list[str] = []
    assert upgrade(earlier, said.append)
    assert said[0] == f"upgraded resource_groups: {rows['resource_groups']} rows"
    ensure_tables(earlier)
    for name, count in rows.items():
        assert len(DeltaTable(f"{earlier.path}/{name}").to_pyarrow_table()) == count, name
    assert upgrade(earlier, said.append) == []


def test_reasons_get_codes_and_groups_keep_their_changes(earlier: History) -> None:
    upgrade(earlier, lambda _: None)
    limits = DeltaTable(f"{earlier.path}/limits").to_pyarrow_table().to_pylist()
    codes = {row["publish_messages_reason_code"] for row in limits if not row["ended"]}
    assert Reason.FAIR_SHARE in codes
    assert {row["resource_group"] for row in limits} == {"g"}
    changes = group_changes(earlier)
    assert {change["group"] for change in changes} == {*list_groups(earlier)["group"].to_pylist()}
    assert changes[-1]["to"] is not None
    versions = range(1, DeltaTable(f"{earlier.path}/resource_groups").version() + 1)
    for version in versions:  # each earlier version can be read under the new names
        then = DeltaTable(f"{earlier.path}/resource_groups", version=version).to_pyarrow_table()
        assert "resource_group" in then.column_names
        assert RATE_COLUMNS[0] in then.column_names


def test_until_then_commands_say_what_to_do(
    earlier: History, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["groups", "list", "--history", earlier.path]) == 4
    assert "run `quotaplane upgrade`" in capsys.readouterr().err
    assert main(["upgrade", "--history", earlier.path]) == 0
    assert "upgraded limits: " in capsys.readouterr().out
    assert main(["groups", "list", "--history", earlier.path]) == 0
    capsys.readouterr()
    assert main(["upgrade", "--history", earlier.path]) == 0
    assert capsys.readouterr().out == f"the history at {earlier.path} is up to date\n"


def test_not_while_a_job_writes(earlier: History, capsys: pytest.CaptureFixture[str]) -> None:
    with writing(earlier):
        assert main(["upgrade", "--history", earlier.path]) == 4
    assert "stop it first" in capsys.readouterr().err


def test_an_upgrade_that_was_killed_is_finished(earlier: History) -> None:
    groups = Path(earlier.path, "resource_groups")
    upgrade(earlier, lambda _: None)
    shutil.move(groups, groups.with_name("resource_groups.upgraded"))
    upgrade(earlier, lambda _: None)
    assert list_groups(earlier)["group"].to_pylist() == ["a", "g"]


def with_checkpoint(history: History) -> Path:
    """The log of the groups, whose first commit no reader of the newest version looks at."""
    table = DeltaTable(f"{history.path}/resource_groups")
    table.create_checkpoint()
    return Path(history.path, "resource_groups", "_delta_log")


def edited(file: Path, kind: str, **values: Any) -> None:
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    for line in lines:
        line.get(kind, {}).update(values)
    file.write_text("".join(json.dumps(line) + "\n" for line in lines), "utf-8")


FIRST = "00000000000000000000.json"


@pytest.mark.parametrize(
    "damage",
    [
        lambda commit: commit.write_bytes(b""),
        lambda commit: commit.write_bytes(commit.read_bytes()[:-9]),
        lambda commit: commit.write_bytes(b"\xff" + commit.read_bytes()),
        lambda commit: commit.write_text("[" * 200_000),
        lambda commit: commit.write_text("5\n"),
        lambda commit: edited(commit, "metaData", schemaString="{"),
        lambda commit: edited(commit, "metaData", schemaString='{"fields": 5}'),
        lambda commit: edited(commit, "metaData", schemaString=None),
    ],
)
def test_a_damaged_commit_is_one_line_with_its_name(
    earlier: History, damage: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    log = with_checkpoint(earlier)
    damage(log / FIRST)
    assert main(["upgrade", "--history", earlier.path]) == 4
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert f"history table resource_groups: _delta_log/{FIRST} is " in err
    assert not Path(earlier.path, "resource_groups.before-upgrade").exists()


def test_a_damaged_checkpoint_is_one_line_with_its_name(
    earlier: History, capsys: pytest.CaptureFixture[str]
) -> None:
    log = with_checkpoint(earlier)
    [newest] = log.glob("*.checkpoint.parquet")
    rows = pq.read_table(newest)
    older = log / f"{0:020}.checkpoint.parquet"
    at = rows.column_names.index("metaData")
    pq.write_table(rows.set_column(at, "metaData", pa.array([5] * len(rows))), older)
    assert main(["upgrade", "--history", earlier.path]) == 4
    err = capsys.readouterr().err
    assert f"history table resource_groups: _delta_log/{older.name} is damaged" in err
