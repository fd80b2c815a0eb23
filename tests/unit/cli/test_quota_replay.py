"""``quotaplane replay``: its options, answers and exit codes."""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path

import pytest

from quotaplane.cli.main import main
from quotaplane.settings import History
from tests.closed_loop.conftest import START_MS, settings_with
from tests.closed_loop.recorded_loop import RecordedLoop
from tests.unit.cli.refusals import refused


def text(second: float) -> str:
    moment = datetime.fromtimestamp(START_MS / 1000 + second, tz=timezone.utc)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recorded history: two brokers want 80 each of a quota of 100."""
    folder = tmp_path_factory.mktemp("recorded")
    history = History(path=str(folder / "history"))
    wants = {"orders": {"a": [(0, 80.0)], "b": [(0, 80.0)]}}
    loop = RecordedLoop(
        history, wants, {"orders": {"publish_messages": 100.0}}, settings=settings_with()
    )
    loop.run(12)
    return folder


def replay(folder: Path, *options: str) -> list[str]:
    place = ("--history", str(folder / "history"))
    return ["replay", "--from", text(0), "--to", text(60), *place, *options]


def test_an_exact_replay_says_what_it_compared(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(replay(folder, "--table")) == 0
    out = capsys.readouterr().out
    assert out.startswith("12 rounds with ")
    assert out.rstrip().endswith("recorded states: no differences")
    assert main(replay(folder, "--json")) == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["rounds"], answer["differences"]) == (12, [])
    assert main(replay(folder, "--csv")) == 0
    assert capsys.readouterr().out == "epoch,seq,problem\n"


def test_a_quota_can_be_tried(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    groups, out = tmp_path / "groups.csv", tmp_path / "out.csv"
    groups.write_text("group,publish_messages_per_s\norders,60\n")
    assert main(replay(folder, "--groups", str(groups), "--out", str(out), "--json")) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["broker"] for row in rows] == ["a", "b"]
    for row in rows:
        assert row["changed_limit_per_s"] < row["limit_per_s"]
        assert row["less_units"] > 100
        assert row["first_less_at"].startswith(text(0)[:16])
    assert len(out.read_text().splitlines()) == 3


def test_a_law_and_settings_can_be_tried(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(replay(folder, "--law", "proportional", "--set", "limits.max_step=0.1")) == 0
    assert "less_units" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (["--law", "fair"], "unknown law 'fair'"),
        (["--set", "limits.max_step"], "must be KEY=VALUE"),
        (["--set", "limits.step=1"], "limits.step"),
        (["--out", "x.csv"], "--out goes with"),
        (["--json", "--csv"], "argument --csv: not allowed with argument --json"),
        (["--groups", "nowhere.csv"], "nowhere.csv"),
    ],
)
def test_wrong_options_are_one_line(
    folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], problem: str
) -> None:
    assert problem in refused(capsys, *replay(folder, *options))


def test_a_time_without_rounds_is_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("replay", "--from", "1h", "--history", str(folder / "history"))
    assert "no rounds were recorded from" in refused(capsys, *words)
