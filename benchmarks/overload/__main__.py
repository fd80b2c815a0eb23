"""Measures the quota job under overload on a real Kafka, for docs/measured/overload.md.

    python -m benchmarks.overload [--phases x3,x10] [--phase-s 60]
    python -m benchmarks.overload --without-spark
    python -m benchmarks.overload --page

Each run starts a Kafka and the job, and lets normal load come before and after each of its phases.
Results are kept in a JSON file, so that phases can be run one by one. Everything is seen from
outside: a reader of the limits topic knows which limits are right at each time. With
``--without-spark`` there is neither Kafka nor a JVM, only the job's own code.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from benchmarks.machine import machine
from benchmarks.overload.figures import Figures
from benchmarks.overload.load import group_names
from benchmarks.overload.outside import LimitsReader, Load, NewGroups, Writer, put, put_probes
from benchmarks.overload.page import write_page
from benchmarks.overload.phases import FAULTS, INTERVAL_S, Phase
from benchmarks.overload.play import figures_of, play_all
from benchmarks.overload.without_spark import measure_without_spark
from benchmarks.peak_memory import PeakMemory
from benchmarks.program import ROOT
from benchmarks.workload import QUOTA
from quotaplane.console.option_parser import OptionParser
from quotaplane.history.store import ensure_tables
from quotaplane.settings import History
from tests.job import RunningJob, write_conf
from tests.servers.kafka_server import KafkaServer

_PHASES: Final = {phase.key: phase for phase in FAULTS}


def measure(folder: Path, phases: Sequence[Phase], phase_s: float) -> list[Figures]:
    """Run some phases; a line for each goes to stdout."""
    with KafkaServer(folder / "kafka", heap_mb=1024, jvm_options="-XX:+UseSerialGC") as kafka:
        reports = kafka.create_topic("reports", partitions=2)
        limits = kafka.create_topic("limits", partitions=1)
        servers = kafka.bootstrap_servers
        conf = write_conf(
            folder / "job",
            {
                "kind": "kafka",
                "bootstrap_servers": servers,
                "report_topics": [reports],
                "limits_topic": limits,
            },
            reports={"interval_s": INTERVAL_S},
        )
        history = History(path=str(folder / "job" / "history"))
        ensure_tables(history)
        put(history, group_names(), QUOTA)
        put_probes(history)
        with RunningJob(conf, "--driver-memory", "4g") as job, Load(servers, reports) as load:
            job.wait_until(lambda: job.rounds() >= 5)
            try:
                return _phases(job, load, history, LimitsReader(servers, limits), phases, phase_s)
            finally:
                print("\n".join(job.printed()[-12:]), flush=True)


def _phases(
    job: RunningJob,
    load: Load,
    history: History,
    reader: LimitsReader,
    phases: Sequence[Phase],
    phase_s: float,
) -> list[Figures]:
    writer, new_groups = Writer(history), NewGroups(history)
    parts = reader, writer, new_groups
    for part in parts:
        part.start()
    time.sleep(10)  # the start of the JVM does not count
    with PeakMemory(job.process.pid) as memory:

        def play(phase: Phase) -> None:
            load.become(phase)
            new_groups.per_s = phase.new_groups_per_s
            if phase.job_paused:
                _paused(job, phase_s)
            else:
                time.sleep(phase_s)

        spans = play_all(phases, play, job.rounds, memory.taken_gb)
    for part in parts:
        part.end()
    return figures_of(spans, reader.seen.published(), writer.writes(reader.seen.first_seen_s))


def _paused(job: RunningJob, pause_s: float) -> None:
    group = os.getpgid(job.process.pid)
    os.killpg(group, signal.SIGSTOP)
    try:
        time.sleep(pause_s)
    finally:
        os.killpg(group, signal.SIGCONT)


def main() -> None:
    """Measure and keep the results, or write the page."""
    parser = OptionParser(prog="make overload", description=__doc__)
    parser.add_argument("--phases", default=",".join(_PHASES), help=", ".join(_PHASES))
    parser.add_argument("--phase-s", type=float, default=60.0)
    parser.add_argument("--page", action="store_true", help="only write the page")
    parser.add_argument("--without-spark", action="store_true", help="the job's own code alone")
    parser.add_argument("--results", type=Path, default=ROOT / "docs/measured/overload.json")
    asked = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # nothing is left behind
    kept = json.loads(asked.results.read_text()) if asked.results.exists() else {}
    if not asked.page:
        folder = Path(tempfile.mkdtemp(prefix="quotaplane-overload-"))
        how = "without_spark" if asked.without_spark else "kafka"
        run = measure_without_spark if asked.without_spark else measure
        try:
            for figures in run(
                folder, [_PHASES[k] for k in asked.phases.split(",")], asked.phase_s
            ):
                kept.setdefault(how, {})[figures.phase] = asdict(figures)
                print(json.dumps(asdict(figures)), flush=True)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        kept["machine"] = machine("pyspark")
        asked.results.write_text(json.dumps(kept, indent=1) + "\n")
    if asked.page:
        print(write_page(ROOT / "docs/measured/overload.md", kept))


if __name__ == "__main__":
    main()
