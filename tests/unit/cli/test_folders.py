"""A path that delta-rs, Spark, DuckDB and Python would not read alike is refused at the start."""

from __future__ import annotations

from pathlib import Path

import pytest

from quotaplane.cli.main import main
from quotaplane.errors import ConfigError
from quotaplane.history.store import ensure_tables
from quotaplane.settings import History, parse_settings
from tests.unit.cli.refusals import refused

Capture = pytest.CaptureFixture[str]

REFUSED = [
    *("a%20b", "a%2Fb", "100%", "a\\b", "a[1]", "a]", "a|b", "a^b", "a?", "a*", "{a,b}"),
    *("a\tb", "a\nb", "a\x7f", "", " ", "file:/tmp/history", "x:history"),
    *("file:///data/a%2520b", "file:///data/a?b", "file:///data/a#b", "s3://bucket/a%20b"),
]
"""Refused paths. With the first, delta-rs made the folder ``a b``; with others it panicked."""
READ = ["a b", "a+b", "a#b", "a'b", "été", "a=b,c;d", "~a", "a:b@c"]


@pytest.mark.parametrize("path", REFUSED)
@pytest.mark.parametrize("key", ["history.path", "transport.path", "checkpoint"])
def test_settings_refuse_a_path_that_has_two_readings(key: str, path: str) -> None:
    raw = {
        "transport": {"kind": "delta", "path": path if key == "transport.path" else "topics"},
        "history": {"path": path if key == "history.path" else "history"},
        "checkpoint": path if key == "checkpoint" else "checkpoint",
    }
    with pytest.raises(ConfigError) as error:
        parse_settings(raw, "conf.yaml")
    assert str(error.value).startswith(f"conf.yaml: {key}: ")
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize("path", REFUSED)
def test_commands_refuse_it_with_exit_code_2(
    path: str, tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    line = refused(capsys, "groups", "put", "a", "--init", "--history", path)
    assert "--history: " in line
    assert not list(tmp_path.iterdir())


def test_a_relative_path_below_such_a_folder_is_refused(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a[1]").mkdir()
    monkeypatch.chdir(tmp_path / "a[1]")
    line = refused(capsys, "groups", "list", "--history", "history")
    assert "/a[1]/history' has the character '['" in line


@pytest.mark.parametrize("name", READ)
def test_other_names_work(name: str, tmp_path: Path) -> None:
    path = tmp_path / name / "history"
    ensure_tables(History(path=str(path)))
    assert main(["groups", "list", "--history", str(path)]) == 0
    assert main(["doctor", "--history", str(path)]) == 0
    assert [entry.name for entry in tmp_path.iterdir()] == [name]
    if name == "a b":
        assert main(["doctor", "--history", f"file://{tmp_path}/a%20b/history"]) == 0
