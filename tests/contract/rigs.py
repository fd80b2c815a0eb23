"""Rigs of the transports for the contract suite, and a function that reads a stream to its end."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from pydantic import BaseModel
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import DataStreamWriter, StreamingQuery

from quotaplane.errors import SlowPythonError
from quotaplane.settings import DeltaTransport, KafkaTransport, PulsarTransport
from quotaplane.streams.query_failures import known_failure
from quotaplane.transport import open_broker_link, open_transport
from quotaplane.transport.base import BrokerLink, Message, Transport
from quotaplane.transport.pulsar import PulsarTopics
from tests.servers.kafka_server import KafkaServer
from tests.servers.pulsar_server import PulsarServer

UNREACHABLE = "127.0.0.1:1"


class Rig:
    """One transport with topics that no other test uses."""

    model: ClassVar[type[BaseModel]]
    per_batch: ClassVar[str]
    """The setting for how much a micro-batch takes at most."""
    fixed: Mapping[str, Any]
    """Values that all settings have."""

    def settings(
        self, *, starting: str = "earliest", per_batch: int | None = None, **more: Any
    ) -> Any:
        """The section ``transport`` of settings."""
        given = {"starting": starting, self.per_batch: per_batch}
        return self.model.model_validate({**self.fixed, **given, **more})

    def attachments_topic(self, **_: Any) -> dict[str, str]:
        """The setting for a compacted topic, which is made for it."""
        return {}


class DeltaRig(Rig):
    model, per_batch = DeltaTransport, "max_files_per_trigger"

    def __init__(self, folder: Path) -> None:
        self.fixed = {"kind": "delta", "path": str(folder)}


class KafkaRig(Rig):
    """Two report topics of two partitions each, and a limits topic."""

    model, per_batch = KafkaTransport, "max_reports_per_trigger"

    def __init__(self, server: KafkaServer) -> None:
        self.server = server
        mark = uuid.uuid4().hex[:8]
        self.report_topics = tuple(
            server.create_topic(f"reports-{mark}-{number}", partitions=2) for number in (1, 2)
        )
        self.limits_topic = server.create_topic(f"limits-{mark}", partitions=2)
        self.fixed = {
            "kind": "kafka",
            "bootstrap_servers": server.bootstrap_servers,
            "report_topics": self.report_topics,
            "limits_topic": self.limits_topic,
            "timeout_s": 10,
        }

    def attachments_topic(
        self, policy: str = "compact", most_bytes: int = 2_200_000
    ) -> dict[str, str]:
        name = self.limits_topic.replace("limits", "attachments")
        configs = {"cleanup.policy": policy, "max.message.bytes": str(most_bytes)}
        self.server.create_topic(name, configs=configs)
        return {"attachments_topic": name}


class PulsarRig(Rig):
    """A namespace with a partitioned and a plain report topic, and a partitioned limits topic."""

    model, per_batch = PulsarTransport, "max_reports_per_trigger"

    def __init__(self, server: PulsarServer) -> None:
        self.server = server
        self.namespace = server.rest.create_namespace(f"public/n{uuid.uuid4().hex[:8]}")
        self.report_topics = self.topic("reports-1", partitions=2), self.topic("reports-2")
        self.limits_topic = self.topic("limits", partitions=2)
        self.fixed = {
            "kind": "pulsar",
            "service_url": server.service_url,
            "admin_url": server.admin_url,
            "report_topics": self.report_topics,
            "limits_topic": self.limits_topic,
        }

    def attachments_topic(self, threshold: int = 1_000_000) -> dict[str, str]:
        name = self.topic("attachments").rpartition("/")[2]
        path = f"namespaces/{self.namespace}/compactionThreshold"
        self.server.rest.call("PUT", path, threshold)
        return {"attachments_topic": name}

    def topic(self, name: str, partitions: int = 0) -> str:
        full = f"persistent://{self.namespace}/{name}"
        return self.server.rest.create_topic(full, partitions=partitions)


def rig_of(kind: str, fixture: Callable[[str], Any], folder: Path) -> Rig:
    """The rig of a kind of transport; ``fixture`` gives the value of a fixture by its name."""
    if kind == "delta":
        return DeltaRig(folder)
    return {"kafka": KafkaRig, "pulsar": PulsarRig}[kind](fixture(f"{kind}_server"))


@contextmanager
def both_ends(settings: Any) -> Iterator[tuple[Transport, BrokerLink]]:
    """The job's end of a transport's topics, and a broker's."""
    with (
        closing(open_transport(settings)) as transport,
        closing(open_broker_link(settings)) as link,
    ):
        yield transport, link


def limits_of(link: BrokerLink) -> list[Message]:
    """Every limit that is there now, portion by portion."""
    limits: list[Message] = []
    while True:
        portion = link.poll_limits()
        limits += [Message(key, value) for key, value, _ in portion.messages]
        if not portion.more:
            return limits


class Arrived(NamedTuple):
    batch: int
    value: bytes
    published_at_ms: int
    position: str
    key: bytes | None
    topic: str | None


def started(writer: DataStreamWriter) -> StreamingQuery:
    """A query that has read what there is; again, as in jobs, where Python started too slowly."""
    slow_starts = 0
    while True:
        query = writer.start()
        try:
            query.processAllAvailable()
        except StreamingQueryException as error:
            slow_starts += 1
            if slow_starts == 5 or not isinstance(known_failure(str(error)), SlowPythonError):
                raise
        else:
            return query


def drain(spark: SparkSession, transport: Transport, checkpoint: Path) -> list[Arrived]:
    """Run the stream from its checkpoint until nothing is left; return what came."""
    arrived: list[Arrived] = []

    def collect(batch: DataFrame, number: int) -> None:
        for row in batch.collect():
            key = None if row.key is None else bytes(row.key)
            value, at_ms = bytes(row.value), row.published_at_ms
            arrived.append(Arrived(number, value, at_ms, row.position, key, row.topic))

    writer = transport.read_reports(spark).writeStream.foreachBatch(collect)
    writer = writer.option("checkpointLocation", str(checkpoint))
    if isinstance(transport, PulsarTopics):
        # Spark 4.0 ends after one micro-batch where a Python source would have several.
        started(writer.trigger(processingTime="0 seconds")).stop()
        return arrived
    query = writer.trigger(availableNow=True).start()
    try:
        assert query.awaitTermination(300), "the stream did not end"
    finally:
        query.stop()
    return arrived
