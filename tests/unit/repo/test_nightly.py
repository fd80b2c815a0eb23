"""The runner of nightly tests: whose turn it is, what is recorded, and the page."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.nightly.__main__ import run_turn
from tests.nightly.page import page, page_file
from tests.nightly.parts import Part, next_turn
from tests.nightly.record import Record, Row
from tests.unit.repo.pages import ROOT


@pytest.fixture
def record(tmp_path: Path) -> Record:
    """The record of a repository with one commit."""
    (tmp_path / "docs/measured").mkdir(parents=True)
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/code.py").write_text("1")
    for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm one"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    return Record(tmp_path)


def endless(text: str) -> Part:
    def words(item: str, first: int) -> list[str]:
        return ["-c", text.format(item=item, first=first)]

    return Part("simulation", "…", "rounds", ("job",), words, seeds="seeds")


def test_the_page_is_that_of_the_record() -> None:
    record = Record(ROOT)
    assert page_file(record).read_text("utf-8") == page(record.read())


def test_the_part_with_least_time_has_its_turn_with_the_item_that_had_least() -> None:
    def turn(*left_out: str, names: tuple[str, ...] = ("fuzz", "simulation")) -> str | None:
        spent_s = {"fuzz": 10.0, "simulation": 5.0}
        left = [("simulation", item) for item in left_out]
        found = next_turn(names, spent_s, {("simulation", "job"): 7.0}, left)
        return found and f"{found[0].name} {found[1]}"

    assert turn() == "simulation enforcer"
    assert turn("enforcer") == "simulation job"
    assert turn("enforcer", "job", names=("simulation",)) is None


def test_a_turn_goes_on_behind_the_one_before(record: Record) -> None:
    part = endless("print('{item}: 3 seeds, {first}0 rounds')")
    run_turn(record, part, "job")
    row, _ = run_turn(record, part, "job")
    assert (row.count, row.next_seed, row.failures, row.passed) == (30, 6, 0, True)
    assert record.read()["simulation", "job"] == row
    assert "30 rounds" in page_file(record).read_text("utf-8")


def test_a_failed_turn_is_tried_again(record: Record, capsys: pytest.CaptureFixture[str]) -> None:
    part = endless("print('2 seeds, 7 rounds'); raise SystemExit(1)")
    row, _ = run_turn(record, part, "job")
    assert (row.count, row.next_seed, row.failures, row.passed) == (7, 0, 1, False)
    assert "FAILED with exit code 1" in capsys.readouterr().out
    assert "* `simulation`: `job`" in page_file(record).read_text("utf-8")


def test_an_item_is_done_until_the_code_changes(record: Record) -> None:
    row = replace(Row("tests", "a"), passed=True, commit=record.commit_now())
    record.change("tests", "a", lambda _: row)
    (record.root / "notes.md").write_text("no code")
    assert record.passed_now() == {("tests", "a")}
    (record.root / "pipelines/code.py").write_text("2")
    assert record.passed_now() == set()
    assert record.commit_now() == f"{row.commit}+"
