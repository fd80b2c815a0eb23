"""The same phases for the job's own code alone: no Kafka, no JVM, so a machine carries more of it.

The topic of reports is a list in this process; the job is ``benchmarks.soak_day.quota_process``.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.overload.figures import Figures
from benchmarks.overload.load import group_names, send_all
from benchmarks.overload.outside import NewGroups, Part, SeenLimits, Writer, put, put_probes
from benchmarks.overload.phases import INTERVAL_S, NORMAL, Phase
from benchmarks.overload.play import figures_of, play_all
from benchmarks.peak_memory import PeakMemory
from benchmarks.soak_day import quota_process
from benchmarks.soak_day.quota_process import Reported
from benchmarks.soak_day.worker import Worker
from benchmarks.workload import QUOTA
from quotaplane.history.store import ensure_tables
from quotaplane.settings import parse_settings

_MOST_REPORTS: Final = 5000
"""In a round, as `transport.max_reports_per_trigger` of Kafka."""


class _Rounds(Part):
    """Runs rounds, one a second or as fast as they go."""

    def __init__(self, worker: Worker) -> None:
        super().__init__()
        self._worker = worker
        self._topic: list[Reported] = []
        self._lock = threading.Lock()
        self.seen = SeenLimits()
        self.count = 0

    def send(self, _: int, broker: str, report: bytes, at_s: float) -> None:
        """Append to the topic."""
        with self._lock:
            self._topic.append(Reported(broker, report, int(at_s * 1000)))

    def work(self) -> None:
        """Until the end."""
        while not self.ended.is_set():
            begun_s = time.time()
            with self._lock:
                read, self._topic = self._topic[:_MOST_REPORTS], self._topic[_MOST_REPORTS:]
            done = self._worker.ask(self.count, int(time.time() * 1000), read)
            for message in done.messages:
                self.seen.take(message.value, time.time())
            self.count += 1
            self.ended.wait(max(begun_s + 1.0 - time.time(), 0.0))


def measure_without_spark(folder: Path, phases: Sequence[Phase], phase_s: float) -> list[Figures]:
    """Run some phases; a line for each goes to stdout."""
    raw: dict[str, Any] = {
        "transport": {"kind": "delta", "path": str(folder / "topics")},
        "history": {"path": str(folder / "history")},
        "checkpoint": str(folder / "checkpoint"),
        "reports": {"interval_s": INTERVAL_S},
    }
    settings = parse_settings(raw)
    ensure_tables(settings.history)
    put(settings.history, group_names(), QUOTA)
    put_probes(settings.history)
    worker = Worker("job", quota_process.main, settings, folder)
    try:
        return _played(worker, settings.history, phases, phase_s)
    finally:
        worker.kill()


def _played(worker: Worker, history: Any, phases: Sequence[Phase], phase_s: float) -> list[Figures]:
    rounds, writer, new_groups = _Rounds(worker), Writer(history), NewGroups(history)
    now = NORMAL
    over = threading.Event()
    load = threading.Thread(target=send_all, args=(lambda: now, rounds.send, over), daemon=True)
    load.start()
    parts = rounds, writer, new_groups
    for part in parts:
        part.start()
    time.sleep(4 * INTERVAL_S)
    with PeakMemory(worker.pid) as memory:

        def play(phase: Phase) -> None:
            nonlocal now
            now, new_groups.per_s = phase, phase.new_groups_per_s
            if phase.job_paused:
                os.kill(worker.pid, signal.SIGSTOP)
            try:
                time.sleep(phase_s)
            finally:
                os.kill(worker.pid, signal.SIGCONT)

        spans = play_all(phases, play, lambda: rounds.count, memory.taken_gb)
    over.set()
    for part in parts:
        part.end()
    return figures_of(spans, rounds.seen.published(), writer.writes(rounds.seen.first_seen_s))
