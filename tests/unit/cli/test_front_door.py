"""`quotaplane` starts everything: its help, Spark jobs through the launcher, `quotaplane up`."""

from __future__ import annotations

import functools
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from quotaplane import __version__
from quotaplane.cli.main import COMMANDS, PURPOSES, main
from quotaplane.cli.spark_jobs import job_names
from quotaplane.cli.up import parts
from quotaplane.settings import load_settings
from tests.examples import in_nightly
from tests.job import write_conf
from tests.unit.cli.refusals import refused
from tests.unit.repo.pages import ROOT

Capture = pytest.CaptureFixture[str]


class Repository:
    """A copy of the repository whose launcher is a test's script."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        (folder / "pipelines").symlink_to(ROOT / "pipelines")
        (folder / "jobs").symlink_to(ROOT / "jobs")

    def launcher(self, script: str) -> None:
        file = self.folder / "spark-submit.sh"
        file.write_text(f"#!/bin/sh\n{script}\n")
        file.chmod(0o755)

    def _start(self, words: tuple[str, ...], **how: Any) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "quotaplane", *words],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(self.folder / "pipelines")},
            cwd=self.folder,
            **how,
        )

    def run(self, *words: str) -> tuple[int, str, str]:
        with self._start(words, stderr=subprocess.PIPE) as process:
            out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Start it; its stderr is in its stdout."""
        # A test run in the background ignores Ctrl-C, and its children would, too.
        heeds = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        return self._start(words, stderr=subprocess.STDOUT, preexec_fn=heeds)


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    return Repository(tmp_path / "repository")


def test_every_command_has_one_purpose_and_is_in_the_help(capsys: Capture) -> None:
    purposes = [name for names in PURPOSES.values() for name in names if name in COMMANDS]
    assert sorted(purposes) == sorted(COMMANDS)
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for name, (_, text) in COMMANDS.items():
        assert re.search(rf"^  {re.escape(name)}  +{re.escape(text)}$", out, re.MULTILINE), name
    places = [out.index(f"\n{purpose}:\n") for purpose in PURPOSES if f"\n{purpose}:\n" in out]
    assert places == sorted(places)
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"quotaplane {__version__}\n"


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["quota", "--conf", "x"], "there is no command 'quota'; the job: quotaplane run quota"),
        (["group", "list"], "there is no command 'group'; did you mean groups?"),
        (["xyzzy"], "there is no command 'xyzzy' (see quotaplane --help)"),
    ],
)
def test_an_unknown_command_is_one_line(words: list[str], problem: str, capsys: Capture) -> None:
    assert problem in refused(capsys, *words)


def test_a_job_gets_all_words_as_they_are(repository: Repository) -> None:
    repository.launcher('for word; do echo "$word"; done')
    words = ["quota", "--conf", "a b.yaml", "--driver-memory", "4g", "--", "$HOME", "--help"]
    code, out, err = repository.run("run", *words)
    assert (code, out.splitlines(), err) == (0, words, "")
    assert repository.run("demo", "--seconds", "5")[1].split() == ["demo", "--seconds", "5"]
    assert repository.run("run")[1].split() == ["--help"]
    assert repository.run("run", "--help")[1].split() == ["--help"]
    repository.launcher('echo "$@" >&2')
    for words in ([], ["--spark", "4.2"]):
        assert repository.run("setup", *words)[2].split() == ["--setup", *words]


def test_the_exit_code_and_the_process_are_the_jobs(repository: Repository) -> None:
    repository.launcher("echo $$; grep -h SigIgn /proc/self/status; exit 7")
    with repository.start("run", "quota") as process:
        assert process.stdout is not None
        pid, ignored = process.stdout.read().splitlines()
    assert (process.returncode, int(pid)) == (7, process.pid)
    # Python ignores SIGPIPE, the job must not. What the tests ignore themselves it does, too: a
    # shell starts programs in the background with SIGINT ignored.
    theirs = {number for number in signal.valid_signals() if _ignored(number)}
    mask = int(ignored.split()[1], 16)
    assert {number for number in range(1, 32) if mask >> (number - 1) & 1} <= theirs - {
        signal.SIGPIPE
    }


def _ignored(number: int) -> bool:
    return signal.getsignal(number) is signal.SIG_IGN


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_job(repository: Repository, number: signal.Signals) -> None:
    repository.launcher(
        "trap 'echo int; exit 130' INT; trap 'echo term; exit 0' TERM; echo up\n"
        "while :; do sleep 0.02; done"
    )
    with repository.start("run", "quota") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "up\n"
        process.send_signal(number)
        said = process.stdout.read()
    code = {"int\n": 130, "term\n": 0}[said]
    assert process.returncode == code
    assert said == f"{number.name[3:].lower()}\n"


def test_a_launcher_that_can_not_be_started_is_one_line(repository: Repository) -> None:
    repository.launcher("")
    (repository.folder / "spark-submit.sh").chmod(0o644)
    code, out, err = repository.run("run", "quota")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{repository.folder}/spark-submit.sh can't be started: Permission denied" in err


def test_without_the_repository_one_line_says_what_is_missing(tmp_path: Path) -> None:
    installed = tmp_path / "env" / "lib" / "site-packages"
    installed.mkdir(parents=True)
    (installed / "quotaplane").symlink_to(ROOT / "pipelines" / "quotaplane")
    for words in (["run", "quota"], ["demo"], ["up", "--conf", str(ROOT / "conf/local.yaml")]):
        done = subprocess.run(
            [sys.executable, "-m", "quotaplane", *words],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": str(installed)},
            cwd=tmp_path,
        )
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert f"needs {sys.prefix}/share/quotaplane/spark-submit.sh, which pip" in done.stderr


def test_the_jobs_are_those_of_the_launcher() -> None:
    scripts = (ROOT / "jobs").glob("run_*.py")
    assert job_names() == sorted(file.stem.removeprefix("run_") for file in scripts)
    assert job_names(ROOT / "nowhere") == []


@pytest.mark.parametrize(
    "words",
    [
        ["run_maintain.py", "--help"],
        *in_nightly(
            ["run_audit.py", "list"], ["run_quota.py", "--help"], ["run_demo.py", "--help"]
        ),
    ],
)
def test_a_job_whose_stdout_is_full_or_closed_says_so(words: list[str]) -> None:
    command = [sys.executable, str(ROOT / "jobs" / words[0]), *words[1:]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "pipelines")}
    for redirection, problem in ((">/dev/full", "can't be written"), (">&-", "is closed")):
        done = subprocess.run(
            ["sh", "-c", f'exec "$@" {redirection}', "sh", *command],
            capture_output=True,
            text=True,
            env=environment,
        )
        assert (done.returncode, done.stderr.count("\n")) == (9, 1), done.stderr
        assert done.stderr.startswith(f"quotaplane: error: stdout {problem}")


DELTA = {"kind": "delta", "path": "t"}
PULSAR = {
    "kind": "pulsar",
    "service_url": "pulsar://localhost:6650",
    "report_topics": ["persistent://a/b/reports"],
    "limits_topic": "persistent://a/b/limits",
}


@pytest.mark.parametrize(
    ("sections", "names"),
    [
        ({"transport": DELTA}, ["quota"]),
        ({"transport": DELTA, "server": {"anonymous": "viewer"}}, ["quota", "serve"]),
        ({"transport": PULSAR}, ["quota"]),
        ({"transport": {**PULSAR, "admin_url": "http://h:8080"}}, ["quota", "enforce"]),
    ],
)
def test_the_settings_say_which_parts_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sections: dict[str, Any], names: list[str]
) -> None:
    conf = write_conf(tmp_path, **sections)
    monkeypatch.chdir(tmp_path)
    found = list(parts(load_settings(conf), conf.name))
    assert [part.name for part in found] == names
    assert {part.command[-2:] for part in found} == {("--conf", str(conf))}


@pytest.fixture
def conf(repository: Repository) -> str:
    transport = {"kind": "delta", "path": str(repository.folder / "topics")}
    return write_conf(repository.folder, transport).name


def _until(lines: Iterator[str], text: str) -> str:
    return next(line for line in lines if text in line)


def test_up_runs_the_job_until_ctrl_c(repository: Repository, conf: str) -> None:
    repository.launcher(
        "trap 'echo bye >&2; exit 0' TERM; echo \"$@\"; while :; do sleep 0.02; done"
    )
    with repository.start("up", "--conf", conf) as process:
        assert process.stdout is not None
        _until(process.stdout, f"quota | quota --conf {repository.folder}/conf.yaml\n")
        process.send_signal(signal.SIGINT)
        rest = process.stdout.read().splitlines()
    assert (process.returncode, rest) == (0, ["up    | ending quota", "quota | bye"])


@pytest.mark.parametrize("code", [2, 7])
def test_up_ends_with_a_part_that_would_fail_again(
    repository: Repository, conf: str, code: int
) -> None:
    repository.launcher(f"echo 'quotaplane: error: the key is wrong' >&2; exit {code}")
    ended, _, err = repository.run("up", "--conf", conf)
    assert ended == code
    assert err.splitlines()[-1] == "quotaplane: error: quota: the key is wrong"


def test_up_checks_the_settings_first(repository: Repository) -> None:
    repository.launcher("touch started")
    (repository.folder / "bad.yaml").write_text("transport: {kind: carrier-pigeon}")
    code, out, err = repository.run("up", "--conf", "bad.yaml")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert f"{repository.folder}/bad.yaml: transport: " in err
    assert not (repository.folder / "started").exists()


def test_up_says_that_it_had_to_kill_a_part(repository: Repository, conf: str) -> None:
    repository.launcher("trap '' TERM; echo up; while :; do sleep 0.02; done")
    with repository.start("up", "--conf", conf) as process:
        assert process.stdout is not None
        _until(process.stdout, "| up")
        process.send_signal(signal.SIGTERM)
        _until(process.stdout, "ending quota")
        process.send_signal(signal.SIGTERM)
        rest = process.stdout.read()
    assert "quota has not ended; it is killed" in rest
    assert process.returncode == 1
