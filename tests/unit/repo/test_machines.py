"""The record of outages and its page."""

from __future__ import annotations

import re
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.nightly.machines import FILES, MachinesRecord, page
from tests.servers.outages import Outages
from tests.servers.reporting_brokers import Outage
from tests.servers.tally import Tally
from tests.unit.repo.pages import ROOT

EXACT = Tally(60, 60, 0, 0, 60, 0, 1800.0, 1800.0)
FIRST, SECOND = f"{FILES[0]}::test_a", f"{FILES[1]}::test_b"


@pytest.fixture
def record(tmp_path: Path) -> MachinesRecord:
    (tmp_path / "docs/measured").mkdir(parents=True)
    subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
    return MachinesRecord(tmp_path)


def note(outages: Outages, harm: str, gap_s: float, tally: Tally = EXACT) -> None:
    outages.note("a part", harm, Outage(gap_s, 120.0, tally), versions="Part 1")


def test_the_page_is_that_of_the_rows_and_each_row_is_of_a_test_that_is_there() -> None:
    record = MachinesRecord(ROOT)
    rows = record.read()
    assert record.page_file.read_text("utf-8") == page(rows)
    for row in rows:
        file, _, test = row.test.partition("::")
        assert f"def {test}(" in (ROOT / file).read_text("utf-8")


def test_all_files_with_tests_of_outages_are_run() -> None:
    files = (ROOT / "tests/servers").glob("test_*.py")
    noted = [file for file in files if "outages: Outages" in file.read_text("utf-8")]
    assert {str(file.relative_to(ROOT)) for file in noted} == {*FILES}


def test_a_test_replaces_its_own_rows_and_the_page_keeps_its_order(record: MachinesRecord) -> None:
    note(Outages(SECOND, record), "cut", 8.0)
    first = Outages(FIRST, record)
    note(first, "killed", 9.0)
    note(first, "frozen", 31.26)
    assert [row.harm for row in record.read()] == ["killed", "frozen", "cut"]
    assert record.page_file.read_text("utf-8") == page(record.read())
    note(Outages(FIRST, record), "killed", 7.0)
    assert [(row.harm, row.gap_s) for row in record.read()] == [("killed", 7.0), ("cut", 8.0)]


def test_a_miss_is_no_failure_and_bold(record: MachinesRecord) -> None:
    note(Outages(FIRST, record), "killed", 31.26)
    text = record.page_file.read_text("utf-8")
    assert "| a part | killed | 120 | **31.3** | 30 | 60 | 60 | 0 | 0 | yes |" in text
    assert "0 of 1 gaps are as short as wanted; 0 are above the lease." in text
    assert re.search(r"^\* a part: Spark \S+, Part 1; \d{4}-\d\d-\d\d, commit `", text, re.M)


@pytest.mark.parametrize(
    ("gap_s", "tally", "shown"),
    [
        (121.0, EXACT, "1 are above the lease"),
        (5.0, EXACT._replace(counted=59, lost=1), "| 60 | 59 | **1** | 0 | **no** |"),
        (5.0, EXACT._replace(doubled=2), "| 60 | 60 | 0 | **2** | **no** |"),
        (5.0, EXACT._replace(messages_counted=1801.0), "| 60 | 60 | 0 | 0 | **no** |"),
    ],
)
def test_what_must_not_happen_is_recorded_and_fails(
    gap_s: float, tally: Tally, shown: str, record: MachinesRecord
) -> None:
    with pytest.raises(AssertionError):
        note(Outages(FIRST, record), "killed", gap_s, tally)
    assert shown in record.page_file.read_text("utf-8")


def test_rows_of_files_that_are_no_longer_run_are_dropped(record: MachinesRecord) -> None:
    note(Outages(FIRST, record), "killed", 9.0)
    (row,) = record.read()
    old = replace(row, test="tests/servers/test_gone.py::test_a")
    record.file.write_text(record.file.read_text().replace(row.test, old.test))
    note(Outages(SECOND, record), "cut", 8.0)
    assert [row.test for row in record.read()] == [SECOND]
