"""Logs that a power loss cut off are reported, where delta-rs and Spark would read what is left."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.cli.main import main
from quotaplane.deltalog.checksums import CHECKSUMS
from quotaplane.deltalog.diagnose import diagnose
from quotaplane.deltalog.faults import find_fault
from quotaplane.deltalog.log import LOG, inside, list_log, local_folder, parse_commit, read_commit
from quotaplane.deltalog.mend import mend
from quotaplane.errors import HistoryError, TransportError
from quotaplane.history.store import ensure_tables, has_table
from quotaplane.history.tables import TABLES
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.settings import DeltaTransport, Settings, load_settings
from quotaplane.streams.job import prepare
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.transport import open_broker_link, open_transport
from tests.job import write_conf
from tests.unit.deltalog.broken_cases import FAR, LAST, Doctor, checkpointed, commit, cut, edited


@pytest.mark.parametrize("path", ["../other.parquet", "/etc/x.parquet", "s3://b/x.parquet", "a\0"])
def test_a_file_outside_its_folder_is_neither_read_nor_moved(
    doctor: Doctor, tmp_path: Path, path: str
) -> None:
    """Also where a checkpoint names it, which is read more rarely than the newest commit."""
    table = doctor.quotas
    file = checkpointed(table)
    actions = pq.read_table(file).to_pylist()
    for action in actions:
        if action["add"] is not None:
            action["add"]["path"] = path
    pq.write_table(pa.Table.from_pylist(actions, pq.read_schema(file)), file)
    victim = table.parent / "other.parquet"
    victim.write_bytes(b"PAR1 PAR1")
    diagnosis = diagnose(table, rewritten=True)
    assert any("outside the table's folder" in finding.problem for finding in diagnosis.findings)
    mend(table, diagnosis.mending, tmp_path / "aside")
    assert victim.read_bytes() == b"PAR1 PAR1"
    assert not list((tmp_path / "aside").rglob("other.parquet"))


@pytest.mark.parametrize("path", ["a..b/..c.parquet", "at=12:00/x.parquet", "...", "date=1/x"])
def test_names_that_stay_inside_are_not_mistaken(path: str) -> None:
    assert inside(path) == path


def test_commits_that_were_cleaned_up_behind_a_checkpoint_are_no_gap(doctor: Doctor) -> None:
    table = doctor.quotas
    checkpointed(table)
    for version in range(LAST):
        commit(table, version).unlink()
    assert find_fault(str(table)) is None


def settings_of(folder: Path) -> Settings:
    return load_settings(write_conf(folder, {"kind": "delta", "path": str(folder / "topics")}))


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


def test_an_audit_looks_at_what_it_asks(doctor: Doctor) -> None:
    cut(commit(doctor.root / "history/usage", 0))
    with pytest.raises(HistoryError, match="is empty"):
        DuckDBEngine(doctor.history).ask("SELECT * FROM usage")


@given(st.data())
def test_a_commit_cut_off_anywhere_never_loses_a_file_silently(
    begun: Path, data: st.DataObject
) -> None:
    table = begun / "history/resource_groups"
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


def test_an_object_store_keeps_files_whole() -> None:
    assert find_fault("s3://bucket/history/usage") is None


def test_a_table_may_be_named_by_a_file_uri(tmp_path: Path) -> None:
    assert local_folder(f"file://{tmp_path}/my%20history") == tmp_path / "my history"


@pytest.mark.parametrize("value", [None, 10**18, -(10**17), 1e30, "soon", True])
def test_a_commit_whose_time_is_none_is_one_line(
    doctor: Doctor, capsys: pytest.CaptureFixture[str], value: object
) -> None:
    table = doctor.quotas
    (table / "_delta_log" / CHECKSUMS).unlink()
    edited(commit(table, 2), "commitInfo", timestamp=value)
    actions = (
        ["groups", "history"],
        ["groups", "restore", "--from-history", "--at", "2020-01-01T00:00:00Z"],
    )
    for action in actions:
        assert main([*action, "--history", doctor.history.path]) == 4
        out, err = capsys.readouterr()
        assert (out, err.count("\n")) == ("", 1)
        assert "resource_groups" in err
    # The rows are not lost: quotas are read, and a diagnosis is made.
    assert main(["groups", "list", "--history", doctor.history.path]) == 0
    cut(commit(table, 3))
    assert diagnose(table, rewritten=True).findings


def test_versions_behind_a_gap_belong_to_the_table_if_a_checkpoint_does(tmp_path: Path) -> None:
    log = tmp_path / "_delta_log"
    log.mkdir()
    for name in (f"{0:020}.json", f"{FAR:020}.checkpoint.parquet", f"{FAR:020}.json"):
        (log / name).write_text("x")
    assert list_log(tmp_path).newest == FAR
    assert not list_log(tmp_path).strangers
    (log / f"{FAR:020}.json").unlink()
    assert list_log(tmp_path).newest == 0


def test_a_commit_that_is_larger_than_any_is_not_read(tmp_path: Path) -> None:
    file = tmp_path / "large.json"
    with file.open("wb") as opened:
        opened.truncate(1 << 40)
    with pytest.raises(OSError, match="has 1099511627776 bytes"):
        read_commit(file)


@pytest.mark.parametrize("whole_folder", [True, False])
def test_a_table_that_has_lost_its_log_is_not_made_anew(
    doctor: Doctor, capsys: pytest.CaptureFixture[str], whole_folder: bool
) -> None:
    """``whole_folder``: of the log; else its checksums are left."""
    table, history = doctor.quotas, doctor.history
    if whole_folder:
        shutil.rmtree(table / LOG)
    else:
        for file in (table / LOG).iterdir():
            if file.name != CHECKSUMS:
                file.unlink()
    problem = f"{LOG} has no commit, although the table's files are there; run `quotaplane doctor`"
    for action in (["list"], ["put", "g1", "--weight", "2", "--init"], ["history"]):
        assert main(["groups", *action, "--history", history.path]) == 4
        assert problem in capsys.readouterr().err
    for use in (lambda: ensure_tables(history), lambda: has_table(history, "resource_groups")):
        with pytest.raises(HistoryError, match="has no commit"):
            use()
    assert not list((table / LOG).glob("*.json"))
    code, told = doctor()
    assert code == 10
    assert "has no commit" in told
    assert "restore the table from a copy" in told


def test_a_topic_that_has_lost_its_log_is_not_made_anew(tmp_path: Path) -> None:
    settings = DeltaTransport(kind="delta", path=str(tmp_path))
    open_broker_link(settings).send_reports([("b", b"1", 1)])
    shutil.rmtree(tmp_path / "reports" / LOG)
    with pytest.raises(TransportError, match="has no commit, although"):
        open_broker_link(settings).send_reports([("b", b"2", 2)])
