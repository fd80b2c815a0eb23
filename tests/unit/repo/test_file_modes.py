"""Files that programs create are private, unless the environment says otherwise."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from quotaplane.errors import ConfigError
from quotaplane.files import VARIABLE, set_umask, umask_of_hadoop
from tests.unit.repo.pages import ROOT


@pytest.fixture(autouse=True)
def own_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def modes(folder: Path) -> set[int]:
    """The rights of group and others on everything in a folder."""
    return {stat.S_IMODE(path.stat().st_mode) & 0o077 for path in [folder, *folder.rglob("*")]}


@pytest.mark.parametrize(("umask", "rights"), [(None, {0}), ("027", {0o040, 0o050})])
def test_a_command_creates_its_history_for_its_user(
    tmp_path: Path, umask: str | None, rights: set[int]
) -> None:
    history = tmp_path / "data" / "history"
    environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
    environment |= {"PYTHONPATH": str(ROOT / "pipelines")}
    put = ["groups", "put", "g", "--publish-bytes-per-s", "1", "--init", "--history", str(history)]
    subprocess.run(
        [sys.executable, "-m", "quotaplane", *put],
        check=True,
        env=environment if umask is None else environment | {VARIABLE: umask},
        stdout=subprocess.DEVNULL,
    )
    assert modes(history) == rights


@pytest.mark.parametrize(("text", "mask"), [("077", 0o077), ("27", 0o027), ("0007", 0o007)])
def test_the_environment_may_allow_more(
    monkeypatch: pytest.MonkeyPatch, text: str, mask: int
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    set_umask()
    assert os.umask(0) == mask


@pytest.mark.parametrize("text", ["", "8", "077x", "0o77", "177", "7", "-1"])
def test_what_is_no_umask_is_refused_by_commands_and_jobs(
    monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    monkeypatch.setenv(VARIABLE, text)
    with pytest.raises(ConfigError, match=VARIABLE):
        set_umask()
    assert os.umask(0) == 0o022


@pytest.mark.parametrize(("mask", "text"), [(0o077, "077"), (0o007, "007"), (0o027, "027")])
def test_hadoop_gets_the_umask_of_the_process(mask: int, text: str) -> None:
    """tests/spark/test_real_job.py has the files; Hadoop would make them 644."""
    os.umask(mask)
    assert umask_of_hadoop() == {"spark.hadoop.fs.permissions.umask-mode": text}
    assert os.umask(0) == mask


def test_the_launcher_sets_it_for_the_job_alone() -> None:
    """Not for the environment that it makes, which other users run."""
    script = (ROOT / "spark-submit.sh").read_text("utf-8")
    assert script.index("ensure_environment") < script.index('umask "$umask"')
    assert script.count('"${command[@]}"') == 3  # printed, run as this process, or as a child
    assert script.index('umask "$umask"') < script.index('exec "${command[@]}"')


def test_units_and_wrapper_let_the_group_read() -> None:
    for file in ("quotaplane", "quotaplane-.service.d/common.conf"):
        assert "QUOTAPLANE_UMASK=027" in (ROOT / "deploy" / "systemd" / file).read_text("utf-8")
