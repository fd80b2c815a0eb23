"""Micro-batches that run alone before the stream continues, mostly without their input.

There are two reasons: an administrator skips a batch, or a start after a pause skips reports that
are too old to decide with, which the quota job records later. In both cases the batch's offsets are
in Spark's log already, and ``empty_source`` replaces the source whose rows are left out. A filter
would not do: Spark still reads a source if no row passes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from quotaplane.streams.checkpoint import CheckpointFolder, Range, ranges_between
from quotaplane.streams.shard_program import Output
from quotaplane.transport.base import COLUMNS, Transport
from quotaplane.wire.reasons import SKIPPED_BATCH, STALE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def empty_source(spark: SparkSession) -> DataFrame:
    """A stream with a transport's columns and no rows, for a batch whose offsets are logged.

    Spark identifies a source by its position in the query. In the position of a transport's source
    this one accepts that source's offsets, whatever their form, and leaves them unchanged.
    """
    spark.dataSource.register(EmptySource)
    return spark.readStream.format(EmptySource.name()).load()


class SingleBatch(NamedTuple):
    """A batch that runs alone, with the offsets that Spark logged."""

    batch: int
    letters: Sequence[Output] = ()
    """Rows for the sink beside the operator's outputs, about the input left out."""
    without_input: bool = True
    done: str = ""
    """Warning to print once the batch is committed."""


class SkippedInput(NamedTuple):
    """Input that is left out, described for one dead letter."""

    reason: str
    position: str
    detail: str
    inputs: int
    """Number of messages; 0: not known."""


def skipped_batch(batch: int, ranges: Sequence[Range], noun: str) -> SkippedInput:
    """Describe a batch that an administrator skipped; ``noun``: its kind of input, in the plural.

    >>> skipped_batch(17, [Range("r/0@5 to 8", 4), Range("r/1@7 to 7", 1)], "reports").detail
    'batch 17 was committed without its 5 reports'
    """
    known = all(part.size is not None for part in ranges)
    number = f"{_size(ranges)} " if known else ""
    detail = f"batch {batch} was committed without its {number}{noun}"
    position = ", ".join(part.text for part in ranges)
    return SkippedInput(SKIPPED_BATCH, position, detail, _size(ranges))


def skipped_backlog(
    ranges: Sequence[Range], noun: str, oldest_s: float
) -> tuple[list[SkippedInput], str]:
    """Describe skipped old messages, by partition, and all of them in one line."""
    why = f"published more than {oldest_s:g} s before the job was started; not read"
    parts = [
        SkippedInput(STALE, part.text, f"{part.size} {noun} {why}", part.size or 0)
        for part in ranges
    ]
    return parts, f"{_size(ranges)} {noun} were {why}"


def _size(ranges: Sequence[Range]) -> int:
    """Number of messages in the ranges; ranges of unknown size count as 0."""
    return sum(part.size or 0 for part in ranges)


def skip_backlog(
    folder: CheckpointFolder, transport: Transport, oldest_s: float, most: int | None
) -> SingleBatch | None:
    """The batch to run alone if more reports are too old than fit into one batch (``most``).

    Reading old reports in order would delay usable ones, and with them new limits: 5000 old reports
    take one micro-batch. An unfinished batch is returned first; call again after it ran. None:
    there is nothing, or little, to skip.
    """
    batch = folder.unfinished_batch()
    if batch is not None and folder.skips_backlog(batch):
        return SingleBatch(batch)
    begin = folder.reports_end()
    now_ms = time.time_ns() // 1_000_000
    if most is None or begin is None:
        return None
    since = transport.offset_since(now_ms - int(oldest_s * 1000))
    if since is None:
        return None
    end = {
        topic: {part: max(offset, since.get(topic, {}).get(part, 0)) for part, offset in of.items()}
        for topic, of in begin.items()
    }
    if sum(part.size or 0 for part in ranges_between(begin, end)) <= most:
        return None
    if batch is not None:
        return SingleBatch(batch, without_input=False)
    noted = folder.note_skipped_backlog(end, now_ms)
    return None if noted is None else SingleBatch(noted)


class EmptySource(DataSource):
    """A source without rows: ``format("quotaplane_empty")``."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "quotaplane_empty"

    def schema(self) -> str:
        """The columns of a transport's source."""
        return COLUMNS

    def streamReader(self, schema: StructType) -> EmptyReader:  # noqa: N802
        """The reader for ``spark.readStream``."""
        return EmptyReader()


class EmptyReader(DataSourceStreamReader):
    """Reads no rows between any two offsets."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Any offset will do, as nothing is read."""
        return {}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Not called: the batch's end is logged already."""
        return {}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """No partitions, so Spark starts no task."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Not called: there are no partitions."""
        return iter(())
