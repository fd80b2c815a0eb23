"""The runner of nightly tests: whose turn it is, what is recorded, and the page."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.nightly import __main__ as night
from tests.nightly import page, record
from tests.nightly.parts import PARTS, Part, next_turn
from tests.nightly.record import Row, change_row, passed_now, read_rows
from tests.unit.repo.pages import ROOT


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record and a page of their own, in a repository with one commit."""
    monkeypatch.setattr(record, "RECORD", tmp_path / "nightly.csv")
    monkeypatch.setattr(record, "ROOT", tmp_path)
    monkeypatch.setattr(page, "PAGE", tmp_path / "nightly.md")
    monkeypatch.setattr(night, "_LOGS", tmp_path / "logs")
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines/code.py").write_text("1")
    for words in ("init -q", "add .", "-c user.name=a -c user.email=a@b commit -qm one"):
        subprocess.run(["git", *words.split()], cwd=tmp_path, check=True)
    return tmp_path


def endless(text: str) -> Part:
    def words(item: str, first: int) -> list[str]:
        return ["-c", text.format(item=item, first=first)]

    return Part("simulation", "…", "rounds", ("job",), words, seeds="seeds")


def test_the_page_is_that_of_the_record() -> None:
    assert page.PAGE.read_text(encoding="utf-8") == page.page(read_rows())


def test_each_file_of_a_part_is_there() -> None:
    items = [item for part in PARTS for item in part.items if item.startswith("tests/")]
    assert len(items) > 50
    assert all((ROOT / item).exists() for item in items)


def test_the_part_with_least_time_has_its_turn_with_the_item_that_had_least() -> None:
    spent_s = {"fuzz": 10.0, "simulation": 5.0}
    spent_on_item = {("simulation", "job"): 7.0}
    names = ["fuzz", "simulation"]
    turn = next_turn(names, spent_s, spent_on_item, left_out=())
    assert turn is not None
    assert (turn[0].name, turn[1]) == ("simulation", "enforcer")
    turn = next_turn(names, spent_s, spent_on_item, left_out=[("simulation", "enforcer")])
    assert turn is not None
    assert turn[1] == "job"
    both = [("simulation", "enforcer"), ("simulation", "job")]
    assert next_turn(["simulation"], spent_s, spent_on_item, both) is None


def test_a_turn_goes_on_behind_the_one_before(place: Path) -> None:
    part = endless("print('{item}: 3 seeds, {first}0 rounds')")
    night._run(part, "job")
    row, _ = night._run(part, "job")
    assert (row.count, row.next_seed, row.failures, row.passed) == (30, 6, 0, True)
    assert read_rows()["simulation", "job"] == row
    assert "30 rounds" in page.PAGE.read_text(encoding="utf-8")


def test_a_failed_turn_is_tried_again(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = endless("print('2 seeds, 7 rounds'); raise SystemExit(1)")
    row, _ = night._run(part, "job")
    assert (row.count, row.next_seed, row.failures, row.passed) == (7, 0, 1, False)
    assert "FAILED with exit code 1" in capsys.readouterr().out
    assert "* `simulation`: `job`" in page.PAGE.read_text(encoding="utf-8")


def test_an_item_is_done_until_the_code_changes(place: Path) -> None:
    row = replace(Row("tests", "a"), passed=True, commit=record.commit_now())
    change_row("tests", "a", lambda _: row)
    assert passed_now(read_rows()) == {("tests", "a")}
    (place / "notes.md").write_text("no code")
    assert passed_now(read_rows()) == {("tests", "a")}
    (place / "pipelines/code.py").write_text("2")
    assert passed_now(read_rows()) == set()
    assert record.commit_now() == f"{row.commit}+"


def test_an_unknown_part_is_a_usage_error() -> None:
    command = [sys.executable, "-m", "tests.nightly", "fuzzy"]
    ended = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert ended.returncode == 2
    assert "no part fuzzy" in ended.stderr
