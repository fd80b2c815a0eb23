"""A log that a power loss cut off is told, where delta-rs and Spark would read what is left."""

from __future__ import annotations

import shutil
from datetime import datetime, timedelta, timezone
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.cli.main import main
from quotaplane.deltalog.diagnose import diagnose
from quotaplane.deltalog.faults import find_fault
from quotaplane.deltalog.log import inside, list_log, local_folder, parse_commit
from quotaplane.deltalog.mend import mend
from quotaplane.deltalog.read import read_rows
from quotaplane.errors import HistoryError, TransportError
from quotaplane.history.maintenance import maintain
from quotaplane.history.store import ensure_tables, open_table
from quotaplane.history.tables import TABLES
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import RATE_COLUMNS, Round
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.registry.table import delete_groups, list_groups, put_groups
from quotaplane.settings import DeltaTransport, History, Settings, parse_settings
from quotaplane.streams.job import prepare
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.transport import delta, open_broker_link, open_transport
from tests.unit.deltalog.broken_cases import (
    BREAKS,
    LAST,
    checkpointed,
    commit,
    cut,
    expected,
    harmless,
)
from tests.unit.history.history_cases import DAY_MS, NOON_MS, limits, rounds, usage


def put(history: History, quota: float) -> None:
    put_groups(history, ["g"], np.full((1, len(RATE_COLUMNS)), quota), "ann")


@pytest.fixture(scope="module")
def changed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history with five changes of a quota: 10, 20, ... 50."""
    history = History(path=str(tmp_path_factory.mktemp("changed")))
    for quota in range(1, LAST + 1):
        put(history, 10.0 * quota)
    return Path(history.path)


@pytest.fixture
def groups_history(changed: Path, tmp_path: Path) -> History:
    return History(path=str(shutil.copytree(changed, tmp_path / "history")))


@pytest.mark.parametrize("kind", BREAKS)
def test_a_broken_table_is_told_in_one_line_and_no_old_quota_is_given_back(
    groups_history: History, capsys: pytest.CaptureFixture[str], kind: str
) -> None:
    break_it, problem = BREAKS[kind]
    table = Path(groups_history.path) / "resource_groups"
    break_it(table)
    assert expected(problem) in str(find_fault(str(table)))
    for action in (["list"], ["put", "g", "--weight", "2"], ["history"], ["delete", "g"]):
        assert main(["groups", *action, "--history", groups_history.path]) == 4
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert expected(problem) in err
        assert err.endswith(
            "; run `quotaplane doctor`, which says what is lost and how to mend it\n"
        )
    with pytest.raises(HistoryError):
        ensure_tables(groups_history)


@pytest.mark.parametrize("path", ["../other.parquet", "/etc/x.parquet", "s3://b/x.parquet", "a\0"])
def test_a_file_outside_its_folder_is_neither_read_nor_moved(
    groups_history: History, tmp_path: Path, path: str
) -> None:
    """Also where a checkpoint names it, which is read more rarely than the newest commit."""
    table = Path(groups_history.path) / "resource_groups"
    file = checkpointed(table)
    actions = pq.read_table(file).to_pylist()
    for action in actions:
        if action["add"] is not None:
            action["add"]["path"] = path
    pq.write_table(pa.Table.from_pylist(actions, pq.read_schema(file)), file)
    victim = tmp_path / "history" / "other.parquet"
    victim.write_bytes(b"PAR1 PAR1")
    diagnosis = diagnose(table, rewritten=True)
    assert any("outside the table's folder" in finding.problem for finding in diagnosis.findings)
    mend(table, diagnosis.mending, tmp_path / "aside")
    assert victim.read_bytes() == b"PAR1 PAR1"
    assert not list((tmp_path / "aside").rglob("other.parquet"))


@pytest.mark.parametrize("path", ["a..b/..c.parquet", "at=12:00/x.parquet", "...", "date=1/x"])
def test_names_that_stay_inside_are_not_mistaken(path: str) -> None:
    assert inside(path) == path


def test_what_all_readers_bear_is_not_told(groups_history: History) -> None:
    table = Path(groups_history.path) / "resource_groups"
    harmless(table)
    assert find_fault(str(table)) is None
    assert list_groups(groups_history)["publish_messages_per_s"].to_pylist() == [50.0]


def test_commits_that_were_cleaned_up_behind_a_checkpoint_are_no_gap(
    groups_history: History,
) -> None:
    table = Path(groups_history.path) / "resource_groups"
    checkpointed(table)
    for version in range(LAST):
        commit(table, version).unlink()
    assert find_fault(str(table)) is None


def settings_of(folder: Path) -> Settings:
    return parse_settings(
        {
            "transport": {"kind": "delta", "path": str(folder / "topics")},
            "history": {"path": str(folder / "history")},
            "checkpoint": str(folder / "checkpoint"),
        }
    )


def test_a_job_that_creates_a_history_says_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prepare(QuotaSpec(settings_of(tmp_path))).close()
    told = capsys.readouterr().err
    assert told.startswith("quotaplane: history: created the tables resource_groups, usage, ")
    assert told.endswith(f" at {tmp_path}/history\n")
    prepare(QuotaSpec(settings_of(tmp_path))).close()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("name", TABLES)
def test_the_job_looks_at_every_table_before_spark_starts(tmp_path: Path, name: str) -> None:
    settings = settings_of(tmp_path)
    prepare(QuotaSpec(settings)).close()
    cut(commit(tmp_path / "history" / name, 0))
    with pytest.raises(
        HistoryError, match=rf"{name} at .*{0:020d}\.json is empty; run `quotaplane"
    ):
        prepare(QuotaSpec(settings))


@pytest.mark.parametrize("topic", ["reports", "limits_topic"])
def test_both_ends_look_at_a_topic_when_they_open_it(tmp_path: Path, topic: str) -> None:
    settings = DeltaTransport(kind="delta", path=str(tmp_path))
    open_transport(settings).check()
    open_broker_link(settings).send_reports([("b", b"1", 1)])
    cut(commit(tmp_path / topic, DeltaTable(tmp_path / topic).version()))
    problem = r"\.json is empty; run `quotaplane doctor`"
    with pytest.raises(TransportError, match=problem):
        open_transport(settings).check()

    def use_the_brokers_end() -> None:
        link = open_broker_link(settings)  # opens limits
        link.send_reports([("b", b"2", 2)])

    with pytest.raises(TransportError, match=problem):
        use_the_brokers_end()


def test_an_audit_looks_at_what_it_asks(groups_history: History) -> None:
    cut(commit(Path(groups_history.path) / "usage", 0))
    with pytest.raises(HistoryError, match="is empty"):
        DuckDBEngine(groups_history).ask("SELECT * FROM usage")


@given(st.data())
def test_a_commit_cut_off_anywhere_never_loses_a_file_silently(
    changed: Path, data: st.DataObject
) -> None:
    table = changed / "resource_groups"
    raw = commit(table, data.draw(st.integers(1, LAST))).read_bytes()
    whole = parse_commit(raw)
    part = raw[: data.draw(st.integers(0, len(raw)))]
    # File systems write pages: what lies beyond the last one may be zeros.
    part += data.draw(st.sampled_from([b"", bytes(len(raw) - len(part))]))
    try:
        read = parse_commit(part)
    except ValueError:
        return
    assert read == whole


def test_nothing_that_is_written_here_is_taken_for_broken(tmp_path: Path) -> None:
    history = History(path=str(tmp_path / "history"))
    ensure_tables(history)
    many = np.full((2, len(RATE_COLUMNS)), 1.0)
    put_groups(history, ["a", "b"], many, "ann")
    put_groups(history, ["a", "c"], 2 * many, "ann")
    delete_groups(history, ["a", "b"], "bob")
    with HistoryWriter(history, "x") as writer:
        for seq in range(30):  # a checkpoint, days that expire, files to compact
            tables = {
                "usage": usage([("b", "g", 1.0)]),
                "limits": limits([("b", "g", 5.0)]),
                "rounds": rounds(),
            }
            writer.append_round(Round(4, seq, NOON_MS + seq * DAY_MS // 10), tables)
            for name in tables:
                assert find_fault(f"{history.path}/{name}") is None
    now = datetime.fromtimestamp(NOON_MS / 1000, tz=timezone.utc) + timedelta(days=3)
    maintain(history, now, keep_days=2)
    settings = DeltaTransport(kind="delta", path=str(tmp_path / "topics"))
    link = open_broker_link(settings)
    for number in range(40):
        link.send_reports([("b", b"%d" % number, 1000 if number % 2 else 2**50)])
    delta.maintain(settings, keep_s=3600)
    for table in [*Path(history.path).iterdir(), *(tmp_path / "topics").iterdir()]:
        if table.is_dir():
            assert list_log(table).newest >= 0
            assert find_fault(str(table)) is None, table
            for file in (table / "_delta_log").glob("*.json"):
                parse_commit(file.read_bytes())
    assert read_rows(open_table(history, "rounds")).num_rows == 20


def test_an_object_store_keeps_files_whole() -> None:
    assert find_fault("s3://bucket/history/usage") is None


def test_a_table_may_be_named_by_a_file_uri(tmp_path: Path) -> None:
    assert local_folder(f"file://{tmp_path}/my%20history") == tmp_path / "my history"
