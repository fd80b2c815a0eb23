"""A job for ``./spark-submit.sh --setup``: makes Spark's JVM load the classes of a job's start.

It runs the quota job for a few rounds on tables in a temporary folder. The JVM writes the archive
of classes as it ends, so this process waits for that.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from pathlib import Path
from typing import Final

import numpy as np
import yaml
from pyspark import SparkContext

from quotaplane.history.store import ensure_tables
from quotaplane.model import DIMENSIONS
from quotaplane.registry.table import put_groups
from quotaplane.settings import Settings, load_settings
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.run_job import run_stream_job
from quotaplane.streams.session import build_session
from quotaplane.transport import open_broker_link
from quotaplane.wire.report_own import encode_report

ROUNDS: Final = 3
_AT_MOST_S: Final = 300.0


def settings_in(folder: Path) -> Settings:
    """Settings of a job that keeps everything below ``folder``, and a group with a quota."""
    conf = folder / "conf.yaml"
    transport = {"kind": "delta", "path": str(folder / "topics")}
    history, checkpoint = {"path": str(folder / "history")}, str(folder / "checkpoint")
    conf.write_text(
        yaml.safe_dump({"transport": transport, "history": history, "checkpoint": checkpoint})
    )
    settings = load_settings(str(conf))
    ensure_tables(settings.history)
    rates = np.full((1, len(DIMENSIONS)), 100.0)
    put_groups(settings.history, ["g"], rates, by="setup")
    return settings


def report_until_done(settings: Settings) -> None:
    """Send reports until the job has done its rounds, then end it, by SIGTERM to this process."""
    link, commits = open_broker_link(settings.transport), Path(settings.checkpoint, "commits")
    usage = np.full((1, len(DIMENSIONS)), 50.0)
    for sequence in range(1, int(_AT_MOST_S)):
        report = encode_report(
            broker="b",
            started_at_ms=1,
            sequence=sequence,
            window_ms=1000,
            groups=["g"],
            usage=usage,
        )
        link.send_reports([("b", report, time.time_ns() // 1_000_000)])
        if len(list(commits.glob("[0-9]*"))) >= ROUNDS:
            break
        time.sleep(1.0)
    link.close()
    os.kill(os.getpid(), signal.SIGTERM)


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="quotaplane-classes-") as name:
        settings = settings_in(Path(name))
        threading.Thread(target=report_until_done, args=(settings,), daemon=True).start()
        run_stream_job(
            QuotaSpec(settings), lambda log: build_session("quotaplane classes", log=log)
        )
        gateway = SparkContext._gateway
        assert gateway is not None
        gateway.shutdown()
        gateway.proc.stdin.close()  # the JVM ends with it
        gateway.proc.wait(_AT_MOST_S)


if __name__ == "__main__":
    main()
