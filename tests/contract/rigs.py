"""What the contract suite needs of each transport, and how it reads a stream to its end."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from pyspark.sql import DataFrame, SparkSession

from quotaplane.settings import DeltaTransport, KafkaTransport
from quotaplane.transport import Transport
from tests.servers.kafka_server import KafkaServer

UNREACHABLE = "127.0.0.1:1"


class Rig(Protocol):
    """One transport with topics that no other test uses."""

    def settings(
        self, *, starting: str = "earliest", per_batch: int | None = None
    ) -> DeltaTransport | KafkaTransport: ...


class DeltaRig:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def settings(
        self, *, starting: str = "earliest", per_batch: int | None = None
    ) -> DeltaTransport:
        return DeltaTransport.model_validate(
            {
                "kind": "delta",
                "path": str(self._folder),
                "starting": starting,
                "max_files_per_trigger": per_batch,
            }
        )


class KafkaRig:
    """Two report topics of two partitions each, and a limits topic."""

    def __init__(self, server: KafkaServer) -> None:
        self.server = server
        mark = uuid.uuid4().hex[:8]
        self.report_topics = tuple(
            server.create_topic(f"reports-{mark}-{number}", partitions=2) for number in (1, 2)
        )
        self.limits_topic = server.create_topic(f"limits-{mark}", partitions=2)

    def settings(
        self, *, starting: str = "earliest", per_batch: int | None = None, **more: Any
    ) -> KafkaTransport:
        return KafkaTransport.model_validate(
            {
                "kind": "kafka",
                "bootstrap_servers": self.server.bootstrap_servers,
                "report_topics": self.report_topics,
                "limits_topic": self.limits_topic,
                "starting": starting,
                "max_reports_per_trigger": per_batch,
                "connect_timeout_s": 10,
            }
            | more
        )


class Arrived(NamedTuple):
    batch: int
    value: bytes
    published_at_ms: int
    position: str


def drain(spark: SparkSession, transport: Transport, checkpoint: Path) -> list[Arrived]:
    """Run the stream from its checkpoint until nothing is left; return what came."""
    arrived: list[Arrived] = []

    def collect(batch: DataFrame, number: int) -> None:
        arrived.extend(
            Arrived(number, bytes(row.value), row.published_at_ms, row.position)
            for row in batch.collect()
        )

    query = (
        transport.read_reports(spark)
        .writeStream.foreachBatch(collect)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    try:
        assert query.awaitTermination(300), "the stream did not end"
    finally:
        query.stop()
    return arrived
