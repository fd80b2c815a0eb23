"""Measures how long a start of the quota job takes, and ``status`` (``make bench-start``).

A job on embedded topics, with 12 groups on 3 brokers that report each second: from the command to
the first limits at a broker, new, and again after ``kill -9`` with its checkpoint. Use changes with
every report, so that a round has new limits.

    python -m benchmarks.start [--runs N]   (keeps docs/measured/benchmarks-start.json)
"""

from __future__ import annotations

import json
import os
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from itertools import cycle
from pathlib import Path
from typing import Final

import numpy as np
import yaml

from benchmarks.process_family import family, processor_time
from quotaplane.console.option_parser import OptionParser, whole_number
from quotaplane.errors import QuotaplaneError
from quotaplane.history.store import ensure_tables
from quotaplane.model import DIMENSIONS
from quotaplane.registry.table import put_groups
from quotaplane.settings import load_settings
from quotaplane.transport import BrokerLink, open_broker_link
from quotaplane.wire.report_own import encode_report

ROOT: Final = Path(__file__).resolve().parents[1]
KEPT: Final = ROOT / "docs/measured/benchmarks-start.json"
_GROUPS: Final = [f"g{number}" for number in range(12)]
_BROKERS: Final = ("a", "b", "c")
_RUNS_ON_S: Final = 5.0
"""A job that is killed has run for so long: some rounds."""
_AT_MOST_S: Final = 300.0


class Brokers:
    """The brokers of the cluster: they report each second and look for limits."""

    def __init__(self, link: BrokerLink) -> None:
        self._link, self._sequence, self._sent_at = link, 0, 0.0
        self._rates = cycle((10.0, 60.0, 30.0, 90.0))

    def limits_arrive(self) -> bool:
        """Report if it is time; whether there are limits that were not there before."""
        if time.monotonic() - self._sent_at > 1.0:
            self._sequence, self._sent_at = self._sequence + 1, time.monotonic()
            usage = np.full((len(_GROUPS), len(DIMENSIONS)), next(self._rates))
            now_ms = time.time_ns() // 1_000_000
            self._link.send_reports(
                [(name, self._report(name, usage), now_ms) for name in _BROKERS]
            )
        return bool(self._link.poll_limits().messages)

    def _report(self, broker: str, usage: np.ndarray) -> bytes:
        return encode_report(
            broker=broker,
            started_at_ms=1,
            sequence=self._sequence,
            window_ms=1000,
            groups=_GROUPS,
            usage=usage,
        )


def starts(folder: Path) -> Iterator[tuple[str, dict[str, float]]]:
    """Both starts and then ``status``: seconds, and processor seconds of all processes."""
    conf = folder / "conf.yaml"
    conf.write_text(
        yaml.safe_dump(
            {
                "transport": {"kind": "delta", "path": str(folder / "topics")},
                "history": {"path": str(folder / "history")},
                "checkpoint": str(folder / "checkpoint"),
            }
        )
    )
    settings = load_settings(str(conf))
    ensure_tables(settings.history)
    rates = np.full((len(_GROUPS), len(DIMENSIONS)), 100.0)
    put_groups(settings.history, _GROUPS, rates, by="bench")
    brokers: Brokers | None = None
    for kind in ("new", "after kill -9"):
        began = time.monotonic()
        with (folder / "job.log").open("ab") as log:
            job = subprocess.Popen(
                ["./spark-submit.sh", "quota", "--conf", str(conf)],
                cwd=ROOT,
                stdout=log,
                stderr=log,
            )
        try:
            while brokers is None:  # the job creates the topics
                try:
                    brokers = Brokers(open_broker_link(settings.transport))
                except QuotaplaneError:
                    time.sleep(0.1)
            while not brokers.limits_arrive():
                if time.monotonic() - began > _AT_MOST_S:
                    raise TimeoutError((folder / "job.log").read_text("utf-8"))
                time.sleep(0.05)
            took_s, used = time.monotonic() - began, processor_time(job.pid)
            yield (
                kind,
                {"seconds": took_s, "processor": sum(each.total_s for each in used.values())},
            )
            time.sleep(_RUNS_ON_S)
        finally:
            for process in family(job.pid):
                os.kill(process, signal.SIGKILL)
            job.wait()
        while brokers.limits_arrive():
            pass
    for _ in range(2):  # the first one reads files from the disk
        began, used_s = time.monotonic(), _used_by_children_s()
        command = [str(Path(sys.executable).with_name("quotaplane")), "status", "--conf", str(conf)]
        subprocess.run(command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        took_s = time.monotonic() - began
    yield "status", {"seconds": took_s, "processor": _used_by_children_s() - used_s}


def _used_by_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main(argv: Sequence[str] | None = None) -> None:
    parser = OptionParser(prog="make bench-start")
    parser.add_argument("--runs", type=whole_number, default=5, help="default: 5")
    args = parser.parse_args(argv)
    found: dict[str, list[dict[str, float]]] = {}
    for _ in range(args.runs):
        with tempfile.TemporaryDirectory() as name:
            for kind, took in starts(Path(name)):
                found.setdefault(kind, []).append(took)
    medians = {
        kind: {what: statistics.median(took[what] for took in of_kind) for what in of_kind[0]}
        for kind, of_kind in found.items()
    }
    KEPT.write_text(json.dumps(medians, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
