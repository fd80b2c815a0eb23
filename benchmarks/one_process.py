"""The equal yardstick: one plain Python process that does all the work of the quota job's rounds.

The same program, finisher, history and topics, but no Spark: reports are decoded, matched and
divided, limits are published, state and history written. What the job needs beyond that is the
price of Spark, and what its two cores save is their profit.

    python benchmarks/one_process.py SETTINGS BROKERS ROUNDS   (a file of settings; prints JSON)

By stage it counts processor seconds, of all threads.
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.measure import lengths, looked_at
from benchmarks.soak_day.quota_process import QuotaProcess, Reported
from plain import values_of_rounds
from quotaplane.history.writer import HistoryWriter
from quotaplane.quota import issue, report_changes
from quotaplane.settings import KafkaTransport, load_settings
from quotaplane.streams.quota import program
from quotaplane.streams.quota.recorded_program import RecordedProgram
from quotaplane.transport import open_transport

STAGES: Final = {
    "decode": (QuotaProcess, "_arrived"),
    "load the state": (RecordedProgram, "load"),
    "estimate": (report_changes, "estimate"),
    "divide": (issue, "divide"),
    "explain": (issue, "explanation"),
    "step": (program, "step"),
    "run": (RecordedProgram, "run"),
    "store the state": (RecordedProgram, "dump"),
    "history": (HistoryWriter, "append_round"),
}
"""Functions by what they do."""


def main(file: str, brokers: int, rounds: int) -> None:
    settings = load_settings(Path(file))
    assert isinstance(settings.transport, KafkaTransport)
    bootstrap, [topic] = settings.transport.bootstrap_servers, settings.transport.report_topics
    transport = open_transport(settings.transport)
    job = QuotaProcess(settings, Path(settings.checkpoint))
    arriving = values_of_rounds(bootstrap, topic, brokers)
    took = []
    with ExitStack() as stack:
        seen = {
            stage: stack.enter_context(looked_at(owner, name, time.process_time))
            for stage, (owner, name) in STAGES.items()
        }
        for seq in range(rounds):
            begun, used = time.perf_counter(), time.process_time()
            now_ms = int(time.time() * 1000)
            reports = [Reported("", value, now_ms) for value in next(arriving)]
            transport.publish(job.run(seq, now_ms, reports).messages)
            all_s = time.process_time() - used
            stages = {stage: sum(lengths(spans)) for stage, spans in seen.items()}
            for spans in seen.values():
                spans.clear()
            took.append(
                {"round": time.perf_counter() - begun, **_apart(stages, all_s), "processor": all_s}
            )
    transport.close()
    print(json.dumps(took))


def _apart(stages: dict[str, float], all_s: float) -> dict[str, float]:
    """The stages without those within them, and what is left."""
    run, step = stages.pop("run"), stages.pop("step")
    stages["rest of the step"] = step - sum(
        stages[name] for name in ("estimate", "divide", "explain")
    )
    stages["messages and rows"] = run - step
    stages["read, publish, rest"] = all_s - sum(stages.values())
    return stages


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
