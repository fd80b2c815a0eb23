"""A day in some minutes: churn, kills, maintenance, a full disk; ``make soak-day``.

    python -m benchmarks.soak_day [--hours 24] [--folder FOLDER]

Processes: the quota job's own code without Spark, brokers, a program that changes quotas,
``quotaplane serve``; ``quotaplane maintain`` each virtual hour. A round is a minute of virtual
time. In the first half of the day a process is killed each 10 minutes, in turn the job and the
server; in the second half these live on, so that their memory can be judged, and the commands are
killed instead. The disk of the history is full to 95 % for the last third of the day.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.request
from contextlib import ExitStack
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import yaml
from deltalake import DeltaTable

from benchmarks.program import ROOT
from benchmarks.soak_day import admin_process, brokers_process, churn, quota_process
from benchmarks.soak_day.churn import CHANGE_EVERY, ROUND_S, ROUNDS_PER_HOUR
from benchmarks.soak_day.disk import SmallDisk
from benchmarks.soak_day.findings import findings
from benchmarks.soak_day.samples import use_of
from benchmarks.soak_day.worker import Worker
from quotaplane.console.option_parser import OptionParser
from quotaplane.history.store import ensure_tables, table_uri
from quotaplane.history.tables import TABLES
from quotaplane.settings import parse_settings
from tests.unit.server.server_process import Process

SAMPLE_EVERY: Final = 5
KILL_EVERY: Final = ROUNDS_PER_HOUR // 6
DISK_MB: Final = 6000
FULL: Final = 0.95
_SHORT_CLAIM: Final = """
import sys
from quotaplane.cli.main import main
from quotaplane.history import maintenance
maintenance.CLAIM_MS //= 60
sys.exit(main(sys.argv[1:]))
"""
"""The claim of a killed `maintain` holds for an hour of virtual time: a minute."""


class Day:
    """The day; ``samples`` are written to a file as they are taken."""

    def __init__(self, folder: Path, disk: SmallDisk, hours: float, stack: ExitStack) -> None:
        self._random = random.Random(3)
        self._disk, self._rounds = disk, int(hours * ROUNDS_PER_HOUR)
        self._conf = folder / "conf.yaml"
        raw = {
            "transport": {"kind": "delta", "path": str(folder / "topics")},
            "history": {"path": str(disk.folder / "history")},
            "checkpoint": str(folder / "checkpoint"),
            "reports": {"interval_s": ROUND_S},
            "limits": {"lease_s": 1800},
            "server": {"anonymous": "admin-without-authentication", "port": 0},
        }
        self._conf.write_text(yaml.safe_dump(raw))
        self._settings = parse_settings(raw)
        self._history = self._settings.history
        ensure_tables(self._history)
        self._job = Worker("job", quota_process.main, self._settings, folder)
        self._brokers = Worker("brokers", brokers_process.main)
        self._admin = Worker("admin", admin_process.main, self._history)
        for worker in (self._job, self._brokers, self._admin):
            stack.callback(worker.kill)
        self._server: Process | None = Process(self._conf)
        stack.callback(lambda: self._server and self._server.process.kill())
        self._file = stack.enter_context((folder / "samples.jsonl").open("w", buffering=1))
        self._begun_ms = int(time.time() * 1000) - self._rounds * ROUND_S * 1000
        self.kills: dict[str, int] = {}

    def run(self) -> None:
        """All rounds."""
        began_s = time.monotonic()
        for round_ in range(self._rounds):
            self._round(round_)
            if round_ % ROUNDS_PER_HOUR == ROUNDS_PER_HOUR - 1:
                self._maintain(round_)
                self._sample(round_, after_maintenance=True)
                hour = round_ // ROUNDS_PER_HOUR + 1
                print(f"hour {hour} after {time.monotonic() - began_s:.0f} s", flush=True)
            elif round_ % SAMPLE_EVERY == SAMPLE_EVERY - 1:
                self._sample(round_)

    def _round(self, round_: int) -> None:
        now_ms = self._begun_ms + round_ * ROUND_S * 1000
        if round_ % CHANGE_EVERY == 0:
            changes = churn.put_and_deleted(round_ // CHANGE_EVERY)
            self._admin.ask(*changes)
            self._ask_server(changes[0][0])
        if round_ >= self._rounds * 2 // 3 and round_ % KILL_EVERY == 0:
            self._disk.fill_to(FULL)
        reports = self._brokers.ask("report", round_, now_ms)
        question = (round_, now_ms, reports)
        kills = round_ % KILL_EVERY == KILL_EVERY // 2
        if kills and round_ < self._rounds // 2:
            done = self._kill(round_ // KILL_EVERY, question)
        else:
            done = self._job.ask(*question)
            if kills:
                self._kill_command(round_ // KILL_EVERY)
        self._done = done
        self._limited = self._brokers.ask("receive", done.messages)

    def _kill(self, number: int, question: Any) -> Any:
        if number % 2 == 0:
            self._count("job")
            return self._job.ask_and_kill(self._random.uniform(0.0, 0.2), *question)
        self._count("server")
        assert self._server is not None
        self._server.process.kill()
        self._server.process.communicate()
        self._server = Process(self._conf)
        return self._job.ask(*question)

    def _kill_command(self, number: int) -> None:
        """Kill a command amid its work; in turn one that changes quotas, and maintenance."""
        command = [["groups", "put", "killed/group", "--publish-messages-per-s", "5"], ["maintain"]]
        self._count(command[number % 2][0])
        process = self._command(*command[number % 2])
        time.sleep(self._random.uniform(0.8, 2.5))
        process.kill()
        process.communicate()

    def _count(self, name: str) -> None:
        self.kills[name] = self.kills.get(name, 0) + 1

    def _command(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", _SHORT_CLAIM, *arguments, "--conf", str(self._conf)],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def _maintain(self, round_: int) -> None:
        """Run `quotaplane maintain`, unless the claim of a killed one holds."""
        process = self._command("maintain")
        text = process.communicate(timeout=600)[0]
        if process.returncode and "another `maintain`" not in text:
            raise RuntimeError(f"maintain ended with {process.returncode}: {text[-2000:]}")

    def _ask_server(self, group: str) -> None:
        """Asks the questions of pages and scripts."""
        assert self._server is not None
        tenant, _, name = group.partition("/")
        paths = ("/api/v1/status", "/api/v1/heat-map", f"/api/v1/limits?group={tenant}%2F{name}")
        for path in (*paths, f"/api/v1/series?group={tenant}%2F{name}", "/metrics"):
            try:
                with urllib.request.urlopen(f"{self._server.url}{path}", timeout=60) as answer:
                    answer.read()
            except urllib.error.HTTPError as error:
                # Too slow on a busy machine (503) is an answer, an error of the server (500) none.
                if error.code == 500:
                    raise

    def _sample(self, round_: int, *, after_maintenance: bool = False) -> None:
        assert self._server is not None
        processes = {worker.name: worker.pid for worker in (self._job, self._brokers, self._admin)}
        processes["server"] = self._server.process.pid
        row = {
            "hour": round_ / ROUNDS_PER_HOUR,
            "use": {name: [pid, *use_of(pid)] for name, pid in processes.items()},
            "state_bytes": self._done.state_bytes,
            "metrics": self._done.metrics,
            "limited": self._limited,
            "disk": self._disk.used_share(),
        }
        if after_maintenance:
            row["live_bytes"] = self._live_bytes()
            row["folder_bytes"] = _bytes_below(Path(self._history.path))
        self._file.write(json.dumps(row) + "\n")

    def _live_bytes(self) -> dict[str, int]:
        """Bytes of each table's live files."""
        found = {}
        for name in TABLES:
            uri = table_uri(self._history, name)
            if DeltaTable.is_deltatable(uri):
                actions = DeltaTable(uri).get_add_actions(flatten=True)
                found[name] = int(sum(actions.column("size_bytes").to_pylist()))
        return found


def _bytes_below(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def main() -> int:
    """Run the day, and print what was found; 1: something is not as promised."""
    parser = OptionParser(prog="make soak-day", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0)
    parser.add_argument("--folder", type=Path, help="kept afterwards; default: a new one, deleted")
    parser.add_argument("--only-findings", action="store_true", help="of an earlier run")
    asked = parser.parse_args()
    folder = asked.folder or Path(tempfile.mkdtemp(prefix="quotaplane-soak-day-"))
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = f"{ROOT / 'pipelines'}:{ROOT}"
    began = datetime.now(timezone.utc)
    try:
        if not asked.only_findings:
            with ExitStack() as stack:
                disk = stack.enter_context(SmallDisk(folder / "disk", folder / "mount", DISK_MB))
                day = Day(folder, disk, asked.hours, stack)
                day.run()
                print("kills:", day.kills)
        text, good = findings((folder / "samples.jsonl").read_text().splitlines())
        print(text)
        took = datetime.now(timezone.utc) - began
        print(f"{took / timedelta(minutes=1):.0f} minutes; load average {os.getloadavg()}")
    finally:
        if asked.folder is None:
            shutil.rmtree(folder, ignore_errors=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
