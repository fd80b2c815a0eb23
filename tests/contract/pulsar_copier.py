"""A job that follows a Pulsar topic and writes each micro-batch to a file: what tests kill."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from pyspark.sql import DataFrame

from quotaplane.pulsar.source import PulsarDataSource
from quotaplane.streams.session import build_session

PLAIN = {
    "spark.ui.enabled": "false",
    "spark.sql.extensions": "",
    "spark.sql.catalog.spark_catalog": "builtin",
    "spark.python.daemon.module": "pyspark.daemon",
}
"""Without Delta, and without what each of five Python daemons would load for the quota loop."""


def main(folder: Path) -> None:
    """Follow until killed. A batch that is run again leaves a file, and another if it differs."""
    options = json.loads((folder / "options.json").read_text())
    planned, committed = (
        {path.name for path in (folder / "checkpoint" / log).glob("*") if path.name.isdigit()}
        for log in ("offsets", "commits")
    )
    spark = build_session("pulsar-copier", PLAIN, log_level="error")
    spark.dataSource.register(PulsarDataSource)

    def write(batch: DataFrame, number: int) -> None:
        rows = sorted((row.message_id, bytes(row.value).decode()) for row in batch.collect())
        text, path = json.dumps(rows), folder / f"batch-{number:06d}.json"
        if path.exists() and path.read_text() != text:
            (folder / f"differs-{number}.json").write_text(text)
        if str(number) in planned - committed:
            (folder / f"again-{number:06d}").touch()
        half = folder / "half"
        half.write_text(text)
        os.replace(half, path)

    (
        spark.readStream.format("pulsar")
        .options(**options)
        .load()
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(processingTime="0 seconds")
        .start()
        .awaitTermination()
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
