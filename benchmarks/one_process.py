"""The equal yardstick: one plain Python process that does all the work of the quota job's rounds.

The same program, finisher, history and topics, but no Spark: reports are decoded, matched and
divided, limits are published, state and history written. What the job needs beyond that is the
price of Spark, and what its two cores save is their profit.

    python benchmarks/one_process.py SETTINGS BROKERS ROUNDS   (a file of settings; prints JSON)
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from benchmarks.soak_day.quota_process import QuotaProcess, Reported
from plain import values_of_rounds
from quotaplane.settings import KafkaTransport, load_settings
from quotaplane.transport import open_transport


def main(file: str, brokers: int, rounds: int) -> None:
    settings = load_settings(Path(file))
    assert isinstance(settings.transport, KafkaTransport)
    bootstrap, [topic] = settings.transport.bootstrap_servers, settings.transport.report_topics
    transport = open_transport(settings.transport)
    job = QuotaProcess(settings, Path(settings.checkpoint))
    arriving = values_of_rounds(bootstrap, topic, brokers)
    took = []
    for seq in range(rounds):
        begun, used = time.perf_counter(), time.process_time()
        now_ms = int(time.time() * 1000)
        reports = [Reported("", value, now_ms) for value in next(arriving)]
        transport.publish(job.run(seq, now_ms, reports).messages)
        took.append({"round": time.perf_counter() - begun, "processor": time.process_time() - used})
    transport.close()
    print(json.dumps(took))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
