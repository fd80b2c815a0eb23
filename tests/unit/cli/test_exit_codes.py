"""Each exit code that docs/reference/cli.md lists comes from a real command, with one line at most.

5, 7 and 13 need Spark: tests/spark/test_exit_codes.py, tests/spark/test_deposed.py.
8 needs a cluster and a plan: tests/servers/test_balance_pulsar.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quotaplane.settings import DeltaTransport, History
from quotaplane.transport import open_broker_link
from tests.histories import make_history
from tests.unit.repo.pages import ROOT, documented_codes

ELSEWHERE = {5, 7, 8, 13}
CONF = ("--conf", "conf.yaml")


class Place:
    """A folder with settings, a history and topics."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.history = History(path=str(folder / "history"))
        self.conf = folder / "conf.yaml"
        self._settings(f"kind: delta, path: {folder}/topics")
        make_history(self.history)
        link = open_broker_link(DeltaTransport(kind="delta", path=str(folder / "topics")))
        link.send_reports([("b", b"", 1)])

    def _settings(self, transport: str) -> None:
        self.conf.write_text(
            f"{{transport: {{{transport}}}, history: {{path: {self.history.path}}}, "
            f"checkpoint: {self.folder}/checkpoint}}"
        )

    def on_pulsar(self) -> None:
        """From now on the settings name a cluster that does not answer."""
        self._settings(
            "kind: pulsar, service_url: 'pulsar://127.0.0.1:1', "
            "admin_url: 'http://127.0.0.1:1', limits_topic: 'persistent://a/b/c'"
        )

    def cut_off(self, table: str) -> None:
        """Leave a commit of a table as a power loss does."""
        log = self.folder / table / "_delta_log"
        (log / f"{1:020}.json").write_text("")
        (log / f"{2:020}.json").write_text('{"commitInfo": {}}\n')

    def run(self, *words: str, script: str = "") -> tuple[int, str]:
        command = [str(ROOT / "jobs" / script)] if script else ["-m", "quotaplane"]
        done = subprocess.run(
            [sys.executable, *command, *words],
            capture_output=True,
            text=True,
            env=environment(),
            cwd=self.folder,
            timeout=120,
        )
        return done.returncode, done.stderr


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(ROOT / "pipelines")}


def violations(place: Place) -> tuple[int, str]:
    (place.folder / "one.sql").write_text("-- One row.\n-- violations: every row\nSELECT 1 AS n")
    return place.run("audit", "one.sql", *CONF)


def broken_topic(place: Place) -> tuple[int, str]:
    place.cut_off("topics/reports")
    return place.run(*CONF, script="run_quota.py")


def no_cluster(place: Place) -> tuple[int, str]:
    place.on_pulsar()
    return place.run("balance", "collect", "--policies", *CONF)


def full_stdout(place: Place) -> tuple[int, str]:
    shell = ["sh", "-c", 'exec "$@" > /dev/full', "sh"]
    words = [sys.executable, "-m", "quotaplane", "--help"]
    done = subprocess.run([*shell, *words], stderr=subprocess.PIPE, text=True, env=environment())
    return done.returncode, done.stderr


def cut_off_at(table: str, *words: str) -> Callable[[Place], tuple[int, str]]:
    def run(place: Place) -> tuple[int, str]:
        place.cut_off(f"history/{table}")
        return place.run(*words, *CONF)

    return run


def mended(place: Place) -> tuple[int, str]:
    place.cut_off("history/rounds")
    code, err = place.run("doctor", "--mend", *CONF)
    assert err.startswith("quotaplane: mended rounds;")
    return code, ""


def would_change(place: Place) -> tuple[int, str]:
    (place.folder / "g.yaml").write_text("group: g")
    words = ("-f", "g.yaml", "--dry-run", "--exit-code", *CONF)
    return place.run("groups", "apply", *words)


def ctrl_c(place: Place) -> tuple[int, str]:
    case = place.folder / "case.json"
    os.mkfifo(case)
    words = [sys.executable, "-m", "quotaplane", "allocate", str(case)]
    with (
        subprocess.Popen(words, stderr=subprocess.PIPE, text=True, env=environment()) as process,
        case.open("w"),
    ):  # waits until the command reads
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    return process.returncode, said


def bug(place: Place) -> tuple[int, str]:
    code = (
        "from unittest import mock\n"
        "from quotaplane.cli import main\n"
        "with mock.patch('quotaplane.cli.allocate.run', lambda _: 1 // 0):\n"
        "    raise SystemExit(main.main(['allocate', '-']))\n"
    )
    where = {**environment(), "TMPDIR": str(place.folder)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=where)
    return done.returncode, done.stderr


def no_reader(place: Place) -> tuple[int, str]:
    read, write = os.pipe()
    os.close(read)
    words = [sys.executable, "-m", "quotaplane", "--help"]
    done = subprocess.run(words, stdout=write, stderr=subprocess.PIPE, env=environment())
    os.close(write)
    return done.returncode, done.stderr.decode()


CODES: dict[int, tuple[Callable[[Place], tuple[int, str]], str]] = {
    0: (lambda place: place.run("groups", "list", *CONF), ""),
    1: (violations, "quotaplane: audit one: 1 of 1 row is a violation"),
    2: (
        lambda place: place.run("groups", "put", "g", "--weight", "-1", *CONF),
        "weight: must be a number from",
    ),
    3: (broken_topic, "topics/reports"),
    4: (cut_off_at("resource_groups", "groups", "list"), "history table resource_groups"),
    6: (no_cluster, "127.0.0.1:1"),
    9: (full_stdout, "stdout can't be written: No space left on device"),
    10: (cut_off_at("rounds", "doctor"), ""),
    11: (mended, ""),
    12: (would_change, ""),
    70: (bug, "a bug: ZeroDivisionError"),
    130: (ctrl_c, ""),
    141: (no_reader, ""),
}
"""By code: what ends with it, and a part of its line."""


def test_every_code_is_tested() -> None:
    assert CODES.keys() | ELSEWHERE == documented_codes()
    assert not CODES.keys() & ELSEWHERE


@pytest.mark.parametrize("code", CODES)
def test_a_real_command_ends_with_it(code: int, tmp_path: Path) -> None:
    command, line = CODES[code]
    ended, said = command(Place(tmp_path))
    assert (ended, said.count("\n")) == (code, 1 if line else 0), said
    assert line in said
