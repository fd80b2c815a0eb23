"""A rehearsal: rounds of a job's query that count nowhere, so that the first real one is quick.

It loads the classes of the JVM, starts the Python workers, and opens the tables that the job reads.
"""

from __future__ import annotations

import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql.datasource import InputPartition

from quotaplane.deltalog.log import local_folder
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.operator import operate
from quotaplane.streams.skipped_batches import EmptyReader, EmptySource

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from quotaplane.streams.job import JobSpec


def rehearse(spark: SparkSession, spec: JobSpec, warn: Callable[[str], None]) -> None:
    """Run two micro-batches of the job's operator, each on one report that can't be read.

    A rehearsal that fails only costs time later, so it is a warning.
    """
    from quotaplane.streams.job import set_options

    set_options(spark, spec)
    spark.dataSource.register(OneReport)
    arriving = spark.readStream.format(OneReport.name()).load()
    outputs = operate(spec.inputs(spark, arriving), spec.rehearsal_program(), spec.settings.shards)

    def collect(batch: DataFrame, seq: int) -> None:
        batch.toArrow()

    try:
        with _checkpoint(spark, spec) as folder:
            writer = outputs.writeStream.queryName(f"{spec.query_name} rehearsal")
            writer = writer.option("checkpointLocation", folder).trigger(once=True)
            for _ in range(2):  # as a new query, then as one that goes on
                query = writer.foreachBatch(collect).start()
                try:
                    query.awaitTermination()
                finally:
                    query.stop()
    except (PySparkException, Py4JJavaError, OSError) as error:
        warn(f"the rehearsal failed, so the first round may be slow: {str(error).splitlines()[0]}")


@contextmanager
def _checkpoint(spark: SparkSession, spec: JobSpec) -> Iterator[str]:
    """A folder for the rehearsal that all executors reach; it is deleted in the end."""
    if local_folder(spec.checkpoint) is not None:
        folder = tempfile.mkdtemp(prefix="quotaplane-rehearsal-")
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return
    name = f"rehearsal-{uuid.uuid4().hex}"
    try:
        yield f"{spec.checkpoint.rstrip('/')}/{name}"
    finally:
        CheckpointFolder(spark, spec.checkpoint).delete(name)


class OneReport(EmptySource):
    """A source with one row for each micro-batch; it is no report."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "quotaplane_one_report"

    def streamReader(self, schema: Any) -> OneReader:  # noqa: N802
        """The reader for ``spark.readStream``."""
        return OneReader()


class OneReader(EmptyReader):
    """Reads one row between the first offset and the next."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Before all rows."""
        return {"at_ns": 0}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """After one more row."""
        return {"at_ns": time.time_ns()}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """One partition, so that Spark starts a task."""
        return [InputPartition(0)]

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """The row, as ``transport.base.COLUMNS``."""
        yield b"", 0, "rehearsal", None, None
