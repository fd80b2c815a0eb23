"""Measures how fast a dry run and the throttle job are on this machine; prints the figures.

    ./spark-submit.sh benchmarks/throttle_stream.py

The figures are copied into docs/dry-run.md by hand. The events are of 10,000 entities. Everything
runs twice, or in several micro-batches; the first ones don't count, as Spark warms up in them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.measure import batches, seconds, session, timed  # noqa: E402
from quotaplane.console.option_parser import OptionParser  # noqa: E402
from quotaplane.history.writer import HistoryWriter  # noqa: E402
from quotaplane.model import DIMENSIONS, RATE_COLUMNS  # noqa: E402
from quotaplane.registry.table import put_groups  # noqa: E402
from quotaplane.settings import Settings, parse_settings  # noqa: E402
from quotaplane.streams.job import StreamJob, prepare  # noqa: E402
from quotaplane.streams.script import run_job  # noqa: E402
from quotaplane.streams.throttle.dry_run import dry_run  # noqa: E402
from quotaplane.streams.throttle.job import ThrottleSpec, topics_of  # noqa: E402
from quotaplane.transport import open_broker_link  # noqa: E402
from quotaplane.transport.delta import DeltaTopics  # noqa: E402

EVENTS, ENTITIES = 1_000_000, 10_000
QUOTA_PER_S = 10.0
"""Quota of an entity in the job."""
RECORDED_QUOTA_PER_S = 0.01
"""Quota in the dry run, whose events are a millisecond apart: a tenth of an entity's requests."""
PER_BATCH, BATCHES, COLD = 100_000, 8, 3


def settings_in(folder: Path) -> Settings:
    """The embedded transport; a micro-batch takes one of the files that ``fill`` writes."""
    return parse_settings(
        {
            "transport": {
                "kind": "delta",
                "path": str(folder / "topics"),
                "starting": "earliest",
                "max_files_per_trigger": 1,
            },
            "history": {"path": str(folder / "history")},
            "checkpoint": str(folder / "checkpoint"),
            "trigger": {"interval_s": 0},
        }
    )


def dry_runs(spark: SparkSession, settings: Settings, folder: Path) -> dict[str, float]:
    """Seconds of a dry run with the summary only, and with tables."""
    recorded = str(folder / "recorded")
    spark.range(EVENTS).select(
        F.concat(F.lit("e"), (F.rand(1) * ENTITIES).cast("int")).alias("entity"),
        F.timestamp_millis(F.lit(1_790_000_000_000) + F.col("id")).alias("at"),
        F.lit(1.0).alias("units"),
    ).write.parquet(recorded)
    definitions = pa.table(
        {
            "group": [f"e{n}" for n in range(ENTITIES)],
            RATE_COLUMNS[0]: [RECORDED_QUOTA_PER_S] * ENTITIES,
        }
    )
    took = {}
    for name, out in (("warm-up", None), ("summary", None), ("summary and tables", "out")):
        path = None if out is None else str(folder / out)
        args = argparse.Namespace(events=recorded, out=path, format="json")
        begun_s = time.perf_counter()
        dry_run(spark, settings, definitions, args)
        took[name] = time.perf_counter() - begun_s
    return took


def fill(settings: Settings) -> None:
    """Write the events, one version of the topic per micro-batch."""
    link = open_broker_link(settings.transport, topics=topics_of(settings.throttle))
    rng = np.random.default_rng(1)
    for _ in range(BATCHES):
        now_ms = int(time.time() * 1000)
        names = [f"e{n}" for n in rng.integers(ENTITIES, size=PER_BATCH).tolist()]
        link.send_reports(
            [
                (name, json.dumps({"entity": name, "at_ms": now_ms, "units": 1}).encode(), now_ms)
                for name in names
            ]
        )
    link.close()


def job(spark: SparkSession, settings: Settings) -> dict[str, float]:
    """Median seconds of a warm micro-batch, and of its parts."""
    transport = prepare(ThrottleSpec(settings))
    quotas = np.full((ENTITIES, len(DIMENSIONS)), np.inf)
    quotas[:, 0] = QUOTA_PER_S
    put_groups(settings.history, [f"e{n}" for n in range(ENTITIES)], quotas, by="bench")
    fill(settings)
    with timed(HistoryWriter, "append_round") as history, timed(DeltaTopics, "publish") as topic:
        running = StreamJob(spark, ThrottleSpec(settings), transport)
        try:
            found = batches(running.query, BATCHES)
        finally:
            running.stop()
    took_s = statistics.median(map(seconds, found[COLD:]))
    return {
        "micro-batch": took_s,
        "events a second": PER_BATCH / took_s,
        "history": statistics.median(history[COLD:]),
        "topic": statistics.median(topic[COLD:]),
    }


def main(argv: Sequence[str]) -> None:
    """Print figures as JSON."""
    prog = "./spark-submit.sh benchmarks/throttle_stream.py"
    OptionParser(prog=prog, description=__doc__).parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        spark = session("throttle bench")
        settings = settings_in(folder)
        found = {"dry run, seconds": dry_runs(spark, settings, folder)}
        found["job"] = job(spark, settings)
        spark.stop()
    print(json.dumps(found, indent=1))


if __name__ == "__main__":
    run_job(main)
