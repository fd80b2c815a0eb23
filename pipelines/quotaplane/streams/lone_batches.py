"""Micro-batches that are run alone, before the stream goes on: without their input, mostly.

An operator may skip a batch, and a start after a pause passes over what is too old to be used. Both
times the batch's offsets are noted, and ``nothing`` stands in for the source whose rows are left
out. A filter would not do: Spark reads a stream's source also where no row passes.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from quotaplane.streams.checkpoint import CheckpointFolder, Range, ranges_between
from quotaplane.transport.base import Transport
from quotaplane.wire.reasons import SKIPPED_BATCH, STALE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_COLUMNS: Final = "value binary, published_at_ms long, position string"


def nothing(spark: SparkSession) -> DataFrame:
    """A stream with a transport's columns and no rows, for a batch whose offsets are noted.

    Spark finds a source's offsets by its place in the query. In the place of a transport's source
    this one takes what that one noted, whatever it is, and leaves it as it is.
    """
    spark.dataSource.register(NothingSource)
    return spark.readStream.format(NothingSource.name()).load()


class Alone(NamedTuple):
    """A batch that is run alone, as Spark noted its offsets."""

    batch: int
    letters: Sequence[tuple[str, bytes]] = ()
    """What goes to the sink beside the operator's outputs: dead letters of what is left out."""
    without_input: bool = True
    done: str = ""
    """What is told when it is committed."""


class LeftOut(NamedTuple):
    """Input that is left out, for one dead letter."""

    reason: str
    position: str
    detail: str
    inputs: int
    """How many messages these are; 0: not known."""


def skipped(batch: int, ranges: Sequence[Range], noun: str) -> LeftOut:
    """A batch that an operator skipped; ``noun``: what its input is called, in the plural.

    >>> skipped(17, [Range("r/0@5 to 8", 4), Range("r/1@7 to 7", 1)], "reports").detail
    'batch 17 was committed without its 5 reports'
    """
    known = all(part.size is not None for part in ranges)
    number = f"{_size(ranges)} " if known else ""
    detail = f"batch {batch} was committed without its {number}{noun}"
    position = ", ".join(part.text for part in ranges)
    return LeftOut(SKIPPED_BATCH, position, detail, _size(ranges))


def passed_over(ranges: Sequence[Range], noun: str, oldest_s: float) -> tuple[list[LeftOut], str]:
    """What is passed over by partition, and all of it in one line."""
    why = f"published more than {oldest_s:g} s before the job was started; not read"
    parts = [
        LeftOut(STALE, part.text, f"{part.size} {noun} {why}", part.size or 0) for part in ranges
    ]
    return parts, f"{_size(ranges)} {noun} were {why}"


def _size(ranges: Sequence[Range]) -> int:
    """How many messages are in the ranges; 0 of those of which it is not known."""
    return sum(part.size or 0 for part in ranges)


def pass_over_backlog(
    folder: CheckpointFolder, transport: Transport, oldest_s: float, most: int | None
) -> Alone | None:
    """The batch to run alone, where more reports wait that are too old than a batch may have.

    Read in order, they would keep those that can still be used waiting, and brokers without new
    limits: 5000 of them take a micro-batch. None: nothing, or little, is to be passed over. What
    was begun is run first; then this is to be asked again.
    """
    batch = folder.unfinished_batch()
    if batch is not None and folder.is_passed_over(batch):
        return Alone(batch)
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
        return Alone(batch, without_input=False)
    noted = folder.note_passed_over(end, now_ms)
    return None if noted is None else Alone(noted)


class NothingSource(DataSource):
    """``format("quotaplane_nothing")``."""

    @classmethod
    def name(cls) -> str:
        """What ``format`` takes."""
        return "quotaplane_nothing"

    def schema(self) -> str:
        """A transport's columns."""
        return _COLUMNS

    def streamReader(self, schema: StructType) -> NothingReader:  # noqa: N802
        """For ``spark.readStream``."""
        return NothingReader()


class NothingReader(DataSourceStreamReader):
    """Reads nothing between any two offsets."""

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where the first batch begins; nothing is read from there on either."""
        return {}

    def latestOffset(self) -> dict[str, Any]:  # noqa: N802
        """Not asked for: the batch's end is noted already."""
        return {}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """No task is needed."""
        return []

    def read(self, partition: InputPartition) -> Iterator[tuple[Any, ...]]:
        """Not called, as there are no partitions."""
        return iter(())
