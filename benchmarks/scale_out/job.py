"""One run of the quota job, for ``benchmarks.scale_out``, which writes the reports before.

./spark-submit.sh benchmarks/scale_out/job.py PLAN   (a file; writes the figures of each round)
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from benchmarks.measure import batches, seconds  # noqa: E402
from benchmarks.scale_out.observed_round import (  # noqa: E402
    GROWING,
    observed,
    stages,
    used_by,
)
from quotaplane.history.disk_mark import mark_of  # noqa: E402
from quotaplane.settings import load_settings  # noqa: E402
from quotaplane.streams.job import StreamJob, prepare  # noqa: E402
from quotaplane.streams.quota.job import QuotaSpec  # noqa: E402
from quotaplane.streams.script import run_job  # noqa: E402
from quotaplane.streams.session import build_session  # noqa: E402
from quotaplane.streams.stores import connect  # noqa: E402


def main(argv: Sequence[str]) -> None:
    """Run as many rounds as the plan says, and write their figures."""
    plan = json.loads(Path(argv[0]).read_text("utf-8"))
    settings = load_settings(plan["settings"])
    conf = {"spark.ui.enabled": "false", "spark.sql.streaming.numRecentProgressUpdates": "1000"}
    spark = build_session(
        "quotaplane scale out", conf, log_level="error", security=settings.security
    )
    connect(spark, settings.history, [settings.history.path])
    if plan["executors"]:
        _wait_for(spark, plan["executors"])
    spec = QuotaSpec(settings)
    transport = prepare(spec)

    def look() -> dict[str, float]:
        return used_by(os.getpid(), plan["workers"])

    with observed(look) as found:
        job = StreamJob(spark, spec, transport)
        if plan["driver_writes"]:  # from the next round on
            mark = mark_of(settings.history, spec.name)
            assert mark is not None
            mark.unlink()
        try:
            progress = batches(job.query, plan["rounds"])
        finally:
            job.stop()
    of_spark = stages(spark)
    rows = [
        {
            "reports": batch["numInputRows"],
            "round, s": seconds(batch),
            **of_spark.get(batch["batchId"], {}),
            **_without_earlier(found, batch["batchId"]),
        }
        for batch in progress
    ]
    Path(plan["found"]).write_text(json.dumps(rows), encoding="utf-8")
    spark.stop()


def _wait_for(spark: Any, executors: int) -> None:
    """Wait until all executors are there, so that shards are spread over them."""
    jvm = spark.sparkContext._jsc.sc()
    while jvm.getExecutorMemoryStatus().size() <= executors:  # the driver is one
        spark.sparkContext._jvm.java.lang.Thread.sleep(200)


def _without_earlier(found: dict[int, dict[str, float]], seq: int) -> dict[str, float]:
    """The figures of a batch; of those that only grow, the part since the batch before."""
    before = found.get(seq - 1, {})
    return {
        name: value - before.get(name, 0) if name in GROWING else value
        for name, value in found[seq].items()
    }


if __name__ == "__main__":
    run_job(main)
