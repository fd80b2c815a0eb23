"""A micro-batch without its input: a source that stands in for the one whose rows are left out.

A filter would not do: Spark reads a stream's source also where all of its rows are filtered out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

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


def without_input(batch: int, count: int | None, of: str) -> str:
    """What a dead letter says of a batch whose input was left out; None: nobody knows how much.

    >>> without_input(17, 5000, "reports")
    'batch 17 was committed without its 5000 reports'
    """
    return f"batch {batch} was committed without its {of if count is None else f'{count} {of}'}"


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
