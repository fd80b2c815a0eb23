"""The Data Source for Spark: ``spark.dataSource.register(PulsarDataSource)``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
    SimpleDataSourceStreamReader,
    WriterCommitMessage,
)
from pyspark.sql.types import Row, StructType

from quotaplane.console.terminal import log_to_stderr
from quotaplane.errors import ConfigError
from quotaplane.pulsar.client import as_transport_error, close_quietly, open_client
from quotaplane.pulsar.message import DDL, batches
from quotaplane.pulsar.options import Options, must_read, parse_options
from quotaplane.pulsar.position import EARLIEST, Id, Offset, from_time
from quotaplane.pulsar.producer import check_columns, write_rows
from quotaplane.pulsar.reader import last_position
from quotaplane.pulsar.replay import read_between, read_range
from quotaplane.pulsar.spool import Spool
from quotaplane.pulsar.topic_pool import TopicPool
from quotaplane.pulsar.topics import topic_partitions
from quotaplane.settings.transports import is_live


class PulsarDataSource(DataSource):
    """Pulsar topics as a table that can be read, streamed, or appended to."""

    @classmethod
    def name(cls) -> str:
        """The name for ``format``."""
        return "pulsar"

    def schema(self) -> str:
        """The columns of a read."""
        return DDL

    def reader(self, schema: StructType) -> PulsarReader:
        """The reader for ``spark.read``."""
        return PulsarReader(_to_read(self.options))

    def simpleStreamReader(self, schema: StructType) -> PulsarStreamReader:  # noqa: N802
        """The reader for ``spark.readStream``: one client on the driver, exact batch sizes."""
        return PulsarStreamReader(_to_read(self.options))

    def writer(self, schema: StructType, overwrite: bool) -> PulsarWriter:
        """The writer for ``DataFrame.write``, which can only append."""
        _must_append(overwrite)
        return PulsarWriter(parse_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> PulsarStreamWriter:  # noqa: N802
        """The writer for ``DataFrame.writeStream``."""
        _must_append(overwrite)
        return PulsarStreamWriter(parse_options(self.options), schema)


def _to_read(given: dict[str, str]) -> Options:
    options = parse_options(given)
    must_read(options)
    return options


def _must_append(overwrite: bool) -> None:
    if overwrite:
        raise ConfigError(
            'format("pulsar"): topics can only be appended to: use mode("append"), or '
            'outputMode("append") or "update" for a stream'
        )


class _Piece(InputPartition):
    """The range that one task reads."""

    def __init__(self, topic: str, start: str, last: Id) -> None:
        super().__init__((topic, start, tuple(last)))


class PulsarReader(DataSourceReader):
    """A batch read: one task per topic partition, up to its end when the read was planned."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """One range per topic partition; live topics store nothing, so have none."""
        options = self._options
        starting = options.starting or EARLIEST
        if starting == "latest":
            raise ConfigError('format("pulsar"): option starting: a batch has nothing at latest')
        start = EARLIEST if starting == EARLIEST else from_time(int(starting))
        client = open_client(options)
        try:
            pieces = []
            for topic in topic_partitions(client, options):
                if is_live(topic):
                    continue
                with as_transport_error(options, f"topic {topic!r}"):
                    last = last_position(client, options, topic)
                if last != EARLIEST:
                    pieces.append(_Piece(topic, start, Id.parse(last)))
            return pieces
        finally:
            close_quietly(client)

    def read(self, partition: InputPartition | None) -> Iterator[pa.RecordBatch]:
        """The rows of one task."""
        if partition is None:
            return iter(())
        topic, start, last = partition.value
        return read_range(self._options, topic, start, Id(*last))


class PulsarStreamReader(SimpleDataSourceStreamReader):
    """A streaming read; Spark keeps the result of ``read`` until its batch is committed."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._follower: TopicPool | None = None
        self._spool = None if options.spool_folder is None else Spool(options.spool_folder)
        log_to_stderr()

    def initialOffset(self) -> Offset:  # noqa: N802
        """The offset where a query without a checkpoint starts."""
        return self._opened().begin()

    def read(self, start: Offset) -> tuple[Iterator[Any], Offset]:
        """The available rows, and the offset after them."""
        rows, end = self._opened().read(start)
        if self._spool is not None:
            self._spool.keep(rows, start, end)
        return iter(list(batches(rows))), end

    def readBetweenOffsets(self, start: Offset, end: Offset) -> Iterator[Any]:  # noqa: N802
        """The rows that ``read`` gave before a restart; runs in a task."""
        return read_between(self._options, start, end)

    def _opened(self) -> TopicPool:
        if self._follower is None:
            self._follower = TopicPool(self._options)
        return self._follower


class _Writing:
    """Common part of both writers. At least once, because a failed task runs again."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        check_columns({field.name: field.dataType.simpleString() for field in schema.fields})

    def write(self, iterator: Iterator[Row]) -> WriterCommitMessage:
        """Send one task's rows; Pulsar has acknowledged them when it returns."""
        write_rows(self._options, self._options.topics, iterator)
        return WriterCommitMessage()


class PulsarWriter(_Writing, DataSourceWriter):
    """A batch write."""


class PulsarStreamWriter(_Writing, DataSourceStreamWriter):
    """A streaming write."""

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: tasks wait until their messages are acknowledged."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Nothing to do: sent messages can't be withdrawn."""
