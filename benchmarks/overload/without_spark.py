"""The phases for the job's own code alone, in virtual time: no Kafka, no JVM, no other process.

A round takes as long as its processor time, as on a machine with one core of its own. So the
figures do not depend on what else runs here, and a pause of ten minutes takes none. Waiting for the
disk does not count.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.overload.figures import Figures, Write
from benchmarks.overload.load import ReportLoad, broker_name, group_names, new_group
from benchmarks.overload.outside import SeenLimits, Writer, put, put_probes
from benchmarks.overload.phases import BROKERS, INTERVAL_S, NORMAL, Phase
from benchmarks.overload.play import Span, figures_of
from benchmarks.soak_day.quota_process import QuotaProcess, Reported
from benchmarks.soak_day.samples import use_of
from benchmarks.workload import QUOTA
from quotaplane.history.store import ensure_tables
from quotaplane.settings import Settings, parse_settings

TRIGGER_S: Final = 2.0
"""Rounds begin so often, or one after the other if they take longer."""
NORMAL_S: Final = 50.0
"""Normal load before and after each phase: useful again within 30 s must be visible."""
_MOST_REPORTS: Final = 5000
"""In a round, as `transport.max_reports_per_trigger` of Kafka."""
_WRITE_EVERY_S: Final = 5.0
_WARM_S: Final = 40.0


class _World:
    """The topic, the job, and those who write to either; times in seconds since 1970."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self._history = settings.history
        self._job = QuotaProcess(settings, folder)
        self._load = ReportLoad()
        self._topic: deque[Reported] = deque()
        self.seen = SeenLimits()
        self._writer = Writer(settings.history)
        self.rounds = 0
        self.now_s = self._sent_s = self._invented_s = self._defined_s = time.time()
        self._write_s = self.now_s
        self._sent = 0

    def play(self, phase: Phase, seconds: float) -> Span:
        """Play a phase."""
        begin_s, before = self.now_s, self.rounds
        end_s = begin_s + (phase.backlog_s or seconds)
        while self.now_s < end_s:
            if phase.job_paused:
                self._arrive(phase, end_s)
                self.now_s = end_s
                break
            self._arrive(phase, self.now_s)
            self._round()
        ended, load_average = self.rounds - before, os.getloadavg()[0]
        memory_gb = use_of(os.getpid()).memory_mb / 1000
        print(f"{phase.name}: {ended} rounds in {self.now_s - begin_s:.0f} s", flush=True)
        return Span(phase, begin_s, self.now_s, ended, memory_gb, load_average)

    def _arrive(self, phase: Phase, until_s: float) -> None:
        """All that happens outside of the job until then."""
        while self._sent_s <= until_s:
            number, turn = self._sent % BROKERS, self._sent // BROKERS
            report = self._load.report(number, turn, self._sent_s, phase)
            self._send(broker_name(number), report, self._sent_s)
            self._sent += 1
            self._sent_s += INTERVAL_S / phase.times / BROKERS
        if phase.invented_brokers:
            self._invented_s = max(self._invented_s, until_s - INTERVAL_S)
            if until_s >= self._invented_s:
                for name, report in self._load.invented(phase.invented_brokers):
                    self._send(name, report, until_s)
                self._invented_s += INTERVAL_S
        if phase.new_groups_per_s:
            self._define(phase.new_groups_per_s, until_s)
        self._defined_s = until_s
        while self._write_s <= until_s:
            self._writer.write(self._write_s)
            self._write_s += _WRITE_EVERY_S

    def _define(self, per_s: int, until_s: float) -> None:
        seconds = range(int(self._defined_s) + 1, int(until_s) + 1)
        if names := [new_group(second, n) for second in seconds for n in range(per_s)]:
            put(self._history, names, QUOTA)

    def _send(self, broker: str, report: bytes, at_s: float) -> None:
        self._topic.append(Reported(broker, report, int(at_s * 1000)))

    def _round(self) -> None:
        count = min(len(self._topic), _MOST_REPORTS)
        read = [self._topic.popleft() for _ in range(count)]
        cpu_s = time.process_time()
        done = self._job.run(self.rounds, int(self.now_s * 1000), read)
        took_s = time.process_time() - cpu_s
        for message in done.messages:
            self.seen.take(message.value, self.now_s + took_s)
        self.rounds += 1
        self.now_s += max(took_s, TRIGGER_S)

    def writes(self) -> list[Write]:
        """Quotas that were changed."""
        return self._writer.writes(self.seen.first_seen_s)


def measure_without_spark(folder: Path, phases: Sequence[Phase], phase_s: float) -> list[Figures]:
    """Run some phases; a line for each goes to stdout."""
    raw: dict[str, Any] = {
        "transport": {"kind": "delta", "path": str(folder / "topics")},
        "history": {"path": str(folder / "history")},
        "checkpoint": str(folder / "checkpoint"),
        "reports": {"interval_s": INTERVAL_S},
        "trigger": {"interval_s": TRIGGER_S},
    }
    settings = parse_settings(raw)
    ensure_tables(settings.history)
    put(settings.history, group_names(), QUOTA)
    put_probes(settings.history)
    world = _World(settings, folder)
    world.play(NORMAL, _WARM_S)
    spans = [world.play(NORMAL, NORMAL_S)]
    for phase in phases:
        spans += [world.play(phase, phase_s), world.play(NORMAL, NORMAL_S)]
    return figures_of(spans, world.seen.published(), world.writes())
