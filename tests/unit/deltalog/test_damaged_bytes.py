"""A changed bit is said: no other quota or limit is read for it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from deltalake import DeltaTable

from quotaplane.cli.main import main
from quotaplane.deltalog.checksums import (
    CHECKSUMS,
    EVERY_MS,
    Checksums,
    Line,
    compare,
    record,
    replace,
)
from quotaplane.deltalog.faults import find_fault
from quotaplane.deltalog.log import LAST_CHECKPOINT, LOG, list_log
from quotaplane.deltalog.read import live_paths
from quotaplane.errors import DamagedTableError, HistoryError, TransportError
from quotaplane.history.maintenance import maintain
from quotaplane.query.duckdb_engine import DuckDBEngine
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import list_groups
from quotaplane.settings import DeltaTransport, History
from quotaplane.streams.whole_groups import refuse_damaged_groups
from quotaplane.transport import open_broker_link, open_transport
from quotaplane.transport.base import Message
from tests.unit.deltalog.broken_cases import added, commit, put
from tests.unit.deltalog.damage_cases import (
    BASE,
    DAMAGED,
    NEWEST,
    Capture,
    doctor,
    flip,
    flips,
    live_file,
    make_changes,
)
from tests.unit.history.history_cases import NOON_MS, read


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_changes(tmp_path_factory.mktemp("made"))


@pytest.fixture
def history(made: Path, tmp_path: Path) -> History:
    return History(path=str(shutil.copytree(made, tmp_path / "history")))


@pytest.fixture
def table(history: History) -> Path:
    return Path(history.path) / "resource_groups"


READ_AS_QUOTAS = {
    "a live data file": live_file,
    "the newest commit": lambda table: commit(table, NEWEST),
    "a commit after the checkpoint": lambda table: commit(table, BASE + 1),
    "the checkpoint": lambda table: list_log(table).checkpoint(BASE),
}


@pytest.mark.parametrize("kind", READ_AS_QUOTAS)
def test_no_flipped_bit_is_read_as_a_quota(history: History, table: Path, kind: str) -> None:
    file = READ_AS_QUOTAS[kind](table)
    name = str(file.relative_to(table))
    whole, checksums = list_groups(history), Checksums(table)
    for _ in flips(file, 1500):
        assert DAMAGED in str(checksums.fault(name))
    for _ in flips(file, 10):
        with pytest.raises(HistoryError, match=r"resource_groups at .*; run `quotaplane doctor`"):
            list_groups(history)
        with pytest.raises(HistoryError, match=r"run `quotaplane doctor`"):
            put(history, 1.0, "g1")
    assert list_groups(history) == whole


@pytest.mark.parametrize("name", [LAST_CHECKPOINT, CHECKSUMS])
def test_a_flipped_bit_beside_the_log_changes_no_quota(
    history: History, table: Path, name: str
) -> None:
    whole = list_groups(history)
    for _ in flips(table / LOG / name, 30):
        with suppress(HistoryError):  # the note may name a checkpoint that is not there
            assert list_groups(history) == whole


@pytest.mark.parametrize(
    "kind", [lambda t: commit(t, 2), lambda t: next((t / "_change_data").iterdir())]
)
def test_no_flipped_bit_is_read_as_a_change(
    history: History, table: Path, kind: Callable[[Path], Path], capsys: Capture
) -> None:
    whole = group_changes(history)
    for _ in flips(kind(table), 10):
        with pytest.raises(HistoryError):
            group_changes(history)
        assert len(list_groups(history)) == NEWEST  # these don't depend on it
    assert group_changes(history) == whole
    flip(kind(table))
    code, found = doctor(history, capsys)
    assert code == 10
    assert found["problems"][0]["file"] == str(kind(table).relative_to(table))


def test_a_batch_of_the_job_does_not_read_damaged_changes(history: History, table: Path) -> None:
    def read_between(*ends: tuple[int, int] | None) -> None:
        """Between two offsets: a version, and a place in it; -1: before it."""
        names = "reservoirVersion", "index"
        offsets = ([] if e is None else [{}, dict(zip(names, e, strict=True))] for e in ends)
        places = dict(zip(("from", "to"), offsets, strict=True))
        refuse_damaged_groups(history, lambda _: places, 1)

    for file in (table / "_change_data").iterdir():
        flip(file)
    read_between(None, (NEWEST, -1))  # the first batch reads the rows, not the changes
    read_between((NEWEST, -1), (NEWEST, -1))  # nothing new
    read_between(None, None)  # a job without quotas
    for end in ((NEWEST, 0), (NEWEST + 1, -1)):
        with pytest.raises(DamagedTableError, match=rf"_change_data/.* {DAMAGED}"):
            read_between((NEWEST, -1), end)
    flip(live_file(table))
    with pytest.raises(DamagedTableError, match=DAMAGED):
        read_between(None, (NEWEST, -1))


def test_no_damaged_limit_is_read(history: History) -> None:
    with DuckDBEngine(history) as engine:
        assert len(engine.ask("SELECT * FROM limits").rows) == 2
        flip(live_file(Path(history.path) / "limits"))
        with pytest.raises(HistoryError, match=rf"table limits at .*{DAMAGED}"):
            engine.ask("SELECT * FROM limits")
        assert len(engine.ask("SELECT * FROM rounds").rows) == 2


def test_a_broker_reads_no_damaged_limit_of_the_embedded_transport(tmp_path: Path) -> None:
    settings = DeltaTransport(kind="delta", path=str(tmp_path))
    link = open_broker_link(settings)
    topics = open_transport(settings)
    topics.publish([Message("b", b"1")])
    assert len(link.poll_limits().messages) == 1
    topics.publish([Message("b", b"2")])
    flip(added(tmp_path / "limits_topic", DeltaTable(tmp_path / "limits_topic").version()))
    with pytest.raises(TransportError, match=rf"limits_topic: .*{DAMAGED}"):
        link.poll_limits()


@pytest.mark.parametrize("name", ["resource_groups", "limits", "rounds"])
def test_doctor_names_a_file_whose_bytes_are_damaged(
    history: History, capsys: Capture, name: str
) -> None:
    file = live_file(Path(history.path) / name)
    flip(file)
    code, found = doctor(history, capsys)
    assert code == 10
    (problem,) = found["problems"]
    assert (problem["table"], file.name in problem["file"]) == (name, True)
    assert problem["problem"].startswith(DAMAGED)
    assert doctor(history, capsys, "--mend")[0] == 11
    assert doctor(history, capsys)[0] == 0


def test_a_file_that_is_put_back_from_a_copy_is_whole_again(
    made: Path, history: History, table: Path, capsys: Capture
) -> None:
    file = live_file(table)
    flip(file)
    assert doctor(history, capsys)[0] == 10
    shutil.copy(made / "resource_groups" / file.name, file)
    assert doctor(history, capsys)[0] == 0
    assert len(list_groups(history)) == NEWEST


def test_quotas_that_are_lost_with_a_file_can_be_restored_from_the_changes(
    history: History, table: Path, capsys: Capture
) -> None:
    whole = list_groups(history).drop_columns(["updated_at"]).to_pylist()
    flip(added(table, 2))
    flip(added(table, 3))
    assert doctor(history, capsys, "--mend")[0] == 11
    assert len(list_groups(history)) == NEWEST - 2
    words = ["groups", "restore", "--from-history", "--by", "ann", "--history", history.path]
    assert main(words) == 0
    assert list_groups(history).drop_columns(["updated_at"]).to_pylist() == whole


def test_files_of_an_earlier_version_are_counted_until_maintain_gives_them_checksums(
    history: History, table: Path, capsys: Capture
) -> None:
    (table / LOG / CHECKSUMS).unlink()
    state = doctor(history, capsys)[1]["tables"][0]
    assert (state["unchecked"], state["state"]) == (state["files"], "whole")
    assert main(["maintain", "--history", history.path, "--keep-days", "36500"]) == 0
    assert doctor(history, capsys)[1]["tables"][0]["unchecked"] == 0
    flip(live_file(table))
    assert doctor(history, capsys)[0] == 10


def test_maintain_says_what_is_damaged_and_does_not_rewrite_it(
    made: Path, history: History, capsys: Capture
) -> None:
    file = live_file(Path(history.path) / "limits")
    before = file.read_bytes()
    flip(file)
    words = ["maintain", "--history", history.path, "--keep-days", "36500"]
    assert main(words) == 4
    out, err = capsys.readouterr()
    assert f"table limits at {history.path}/limits: " in err
    assert DAMAGED in err
    done = {line["table"]: line for line in map(json.loads, out.splitlines())}
    assert (done["limits"]["files_compacted"], done["limits"]["files"]) == (0, 2)
    assert done["rounds"]["files_compacted"] == 2
    file.write_bytes(before)
    assert main(words) == 0
    assert len(read(history, "limits")) == 2


def test_each_file_is_compared_once_a_day(history: History, table: Path) -> None:
    live = live_paths(DeltaTable(table))
    now_ms = Checksums(table).line(live[0]).checked_ms + EVERY_MS  # type: ignore[union-attr]
    flip(table / live[0])
    assert compare(table, live, now_ms - EVERY_MS // 2) is None
    for _ in range(2):  # a damaged file is said again and again
        assert DAMAGED in str(compare(table, live, now_ms + 60_000))
    known = Checksums(table)
    assert all(name in known.names for name in live)
    assert known.line(live[1]).checked_ms == now_ms + 60_000  # type: ignore[union-attr]
    # The rest is left to the next one.
    later_ms = now_ms + 2 * EVERY_MS
    for runs in range(1, len(live)):
        compare(table, live, later_ms, most_bytes=1)
        known = Checksums(table)
        lines = [line for name in known.names if (line := known.line(name)) is not None]
        assert sum(line.checked_ms == later_ms for line in lines) == runs


def test_checksums_of_files_that_are_gone_are_removed(history: History, table: Path) -> None:
    (table / "other.parquet").write_bytes(b"x")
    record(table, [table / "other.parquet"])
    assert "other.parquet" in Checksums(table).names
    (table / "other.parquet").unlink()
    compare(table, live_paths(DeltaTable(table)), NOON_MS)
    assert "other.parquet" not in Checksums(table).names
    assert find_fault(str(table)) is None


def test_a_line_that_is_cut_off_costs_that_line_only(table: Path) -> None:
    path = table / LOG / CHECKSUMS
    before = len([n for n in Checksums(table).names if Checksums(table).line(n)])
    path.write_bytes(path.read_bytes()[:-5])
    (table / "other.parquet").write_bytes(b"x")
    record(table, [table / "other.parquet"])
    after = Checksums(table)
    assert after.line("other.parquet") is not None
    assert len([n for n in after.names if after.line(n)]) == before


def test_few_names_and_many_have_the_same_lines(table: Path) -> None:
    with (table / LOG / CHECKSUMS).open("ab") as file:
        for number in (1, 2):
            file.write(Line(number, number).text(f"{LOG}/{NEWEST + 9:020d}.json"))
        file.write(b"\n\0\0\n_delta_log/x\t\xff")
    names = [*Checksums(table).names, "no such file", "", LOG]
    apart = Checksums(table)
    for _ in names:
        apart.line("x")
    assert [Checksums(table).line(name) for name in names] == [apart.line(name) for name in names]
    assert apart.newest == NEWEST + 9
    assert apart.line(f"{LOG}/{NEWEST + 9:020d}.json") == Line(2, 2)


def test_what_is_appended_while_the_file_is_replaced_stays(tmp_path: Path) -> None:
    (tmp_path / LOG).mkdir()
    files = [tmp_path / f"{number}.parquet" for number in range(60)]
    for file in files:
        file.write_bytes(b"x")

    def same(current: Checksums) -> dict[str, Line]:
        return {name: line for name in current.names if (line := current.line(name)) is not None}

    with ThreadPoolExecutor(4) as pool:
        done = [pool.submit(record, tmp_path, [file]) for file in files]
        done += [pool.submit(replace, tmp_path, same) for _ in range(100)]
    assert [error for each in done if (error := each.exception()) is not None] == []
    assert sorted(same(Checksums(tmp_path))) == sorted(file.name for file in files)


def test_a_file_that_has_a_checksum_keeps_it(table: Path) -> None:
    file = live_file(table)
    flip(file)
    record(table, [file])
    assert DAMAGED in str(Checksums(table).fault(file.name))


def test_damage_that_expires_is_gone(history: History) -> None:
    flip(live_file(Path(history.path) / "limits"))
    at = datetime.fromtimestamp(NOON_MS / 1000, tz=timezone.utc) + timedelta(days=40)
    said: list[DamagedTableError] = []
    maintain(history, at, report=said.append)
    assert said == []
    assert len(read(history, "limits")) == 0
