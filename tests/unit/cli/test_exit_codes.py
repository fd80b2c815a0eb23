"""Each exit code that docs/reference/cli.md lists comes from a real command, with one line at most.

5, 7 and 13 need Spark: tests/spark/test_real_job.py, tests/spark/test_deposed.py.
8 needs a cluster and a plan: tests/servers/test_balance_pulsar.py.
9, 70 and 141 are in tests/unit/console/test_command_output.py, 10 and 11 in
tests/unit/deltalog/test_doctor.py, 12 in tests/unit/registry/test_groups_apply.py.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from quotaplane.cli.audit import VIOLATIONS
from quotaplane.settings import DeltaTransport, History
from quotaplane.transport import open_broker_link
from tests.histories import make_history
from tests.job import environment
from tests.unit.repo.pages import ROOT, documented_codes

ELSEWHERE = {5, 7, 8, 9, 10, 11, 12, 13, 14, 70, 141}
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


def violations(place: Place) -> tuple[int, str]:
    (place.folder / "one.sql").write_text("-- One row.\n-- violations: every row\nSELECT 1 AS n")
    return place.run("audit", "one.sql", *CONF)


def broken_topic(place: Place) -> tuple[int, str]:
    place.cut_off("topics/reports")
    return place.run(*CONF, script="run_quota.py")


def no_cluster(place: Place) -> tuple[int, str]:
    place.on_pulsar()
    return place.run("balance", "collect", "--policies", *CONF)


def cut_off_at(table: str, *words: str) -> Callable[[Place], tuple[int, str]]:
    def run(place: Place) -> tuple[int, str]:
        place.cut_off(f"history/{table}")
        return place.run(*words, *CONF)

    return run


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


CODES: dict[int, tuple[Callable[[Place], tuple[int, str]], str]] = {
    0: (lambda place: place.run("groups", "list", *CONF), ""),
    VIOLATIONS: (violations, "quotaplane: audit one: 1 of 1 row is a violation"),
    2: (
        lambda place: place.run("groups", "put", "g", "--weight", "-1", *CONF),
        "weight: must be a number from",
    ),
    3: (broken_topic, "topics/reports"),
    4: (cut_off_at("resource_groups", "groups", "list"), "history table resource_groups"),
    6: (no_cluster, "127.0.0.1:1"),
    130: (ctrl_c, ""),
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
