"""The two interfaces of a transport, and their guarantees.

The control plane has a ``Transport``: it reads reports as a streaming DataFrame and publishes
limits from the driver. A broker (or its agent, or the simulator) has a ``BrokerLink``: it sends
reports and polls limits, without Spark or a JVM. All transports pass the same test suite,
``tests/contract``. The rest of the code may rely on these guarantees:

* a report's bytes arrive unchanged, and each report once, also after restarts;
* a report has the ``key`` and the ``topic`` that its sender gave it;
* ``position`` identifies one report for ever (also after a restart), so that the report of a dead
  letter can be found; a later report of a broker never arrives in an earlier micro-batch;
* the order of rows within a micro-batch is undefined: reports have a sequence of their own.

Messages are acknowledged once ``publish`` or ``send_reports`` has returned. The guarantee in a
power loss depends on the transport: the embedded transport has written them to disk. Kafka has them
in all in-sync replicas (``acks=all``), which by default don't wait for their disks. Pulsar has them
on the disks of a quorum of bookies, unless ``journalSyncData`` is off; a non-persistent topic
stores nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

import pyarrow as pa

from quotaplane.settings.transports import is_live, topic_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Starting = Literal["earliest", "latest"]

_REDACTION: Final = "spark.sql.redaction.options.regex"


class Topics(NamedTuple):
    """The input topic and the output topic of a job."""

    incoming: str
    outgoing: str


class Message(NamedTuple):
    """A message to publish: ``key`` is the broker that it is for, or the part of attachments."""

    key: str
    value: bytes


class Polled(NamedTuple):
    """A message that was read from the topic of limits, or of attachments."""

    key: str
    value: bytes
    position: str
    """Its position in the topic, in the transport's notation."""


class Portion(NamedTuple):
    """The messages of one poll."""

    messages: list[Polled]
    """Oldest first for each broker."""
    more: bool
    """The poll reached its size limit before the messages that existed when it began."""
    caught_up: bool
    """All messages that existed when the link was opened have been returned."""


PORTION_MESSAGES: Final = 10_000
PORTION_BYTES: Final = 16 * 1024 * 1024
"""A poll ends after ``PORTION_MESSAGES``, or with the message that reaches ``PORTION_BYTES``."""

REPORTS_AND_LIMITS: Final = Topics("reports", "limits_topic")
"""Topics of the embedded transport; for Kafka and Pulsar the settings have them."""


COLUMNS: Final = "value binary, published_at_ms long, position string, key binary, topic string"
"""Columns of the reports that a transport reads."""

READ_AGAIN: Final = pa.schema(
    [
        ("value", pa.binary()),
        ("published_at_ms", pa.int64()),
        ("position", pa.string()),
        ("key", pa.binary()),
        ("topic", pa.string()),
    ]
)
"""``COLUMNS`` as Arrow types."""


def is_stored(position: str) -> bool:
    """Does the topic of this position store its messages, so that they can be read again?

    >>> is_stored("persistent://public/default/reports@1:2:-1")
    True
    >>> is_stored("non-persistent://pulsar/system/resource-usage@1790000000000#17")
    False
    """
    return not is_live(position)


def report_topic(topics: Sequence[str], broker: str) -> str:
    """The topic of a broker's reports: always the same one, so that they stay in order."""
    return topic_of(topics[zlib.crc32(broker.encode()) % len(topics)], broker)


def redact(spark: SparkSession, options: str) -> None:
    """Keep options of a source, which may hold secrets, out of Spark's plans and errors."""
    before = spark.conf.get(_REDACTION) or ""  # Spark's default, unless it was set
    if options not in before:
        spark.conf.set(_REDACTION, f"{before}|{options}" if before else options)


class Transport(Protocol):
    """The control plane's interface to the topics of reports and limits."""

    def check(self, max_report_bytes: int | None = None) -> Sequence[str]:
        """Check that the topics exist and can be reached; returns warnings, a line each.

        ``max_report_bytes``: the job refuses larger reports, and the topic should, too.

        Raises:
            TransportError: a topic does not exist or can't be reached; raised within seconds.
        """

    def read_reports(self, spark: SparkSession) -> DataFrame:
        """Stream the reports.

        Returns a streaming DataFrame with exactly ``COLUMNS``: ``published_at_ms`` is since 1970 in
        UTC; ``key`` is null if a report has none; ``topic`` is the full name, with Pulsar with its
        partition, and null in the embedded transport, which has one table of reports.
        """

    def offset_since(self, since_ms: int) -> dict[str, dict[str, int]] | None:
        """The first offset in the reports such that all earlier ones were published before a time.

        In the notation of the offsets of the source of ``read_reports``. None: not supported.

        Raises:
            TransportError: the topics can't be reached.
        """

    def read_between(self, begin: Any, end: Any) -> Iterator[pa.RecordBatch]:
        """The reports between two offsets of ``read_reports``, read again by the driver alone.

        They come as ``READ_AGAIN``, each time in the same order, without those that the topics do
        not have any more. ``begin`` None: from the beginning. A batch has at most some MB.

        Raises:
            TransportError: the topics can't be reached.
        """

    def publish(self, messages: Sequence[Message]) -> None:
        """Send limits from the driver; they are acknowledged when it returns.

        Raises:
            TransportError: some were not accepted; the call may be repeated, because limits are
                absolute and applying them twice is harmless.
        """

    def publish_attachments(self, messages: Sequence[Message]) -> None:
        """Send attachments: each message takes the place of the one before it with its key.

        Raises:
            MessageTooLargeError: the topic does not take one of them, and may lack others.
            TransportError: as ``publish``.
        """

    def close(self) -> None:
        """Close connections; a second call does nothing."""


class BrokerLink(Protocol):
    """A broker's interface: sends reports, polls limits. Needs neither Spark nor a JVM."""

    def send_reports(self, reports: Sequence[tuple[str, bytes, int]]) -> None:
        """Send ``(broker, bytes, published_at_ms)`` each; they are acknowledged when it returns.

        Raises:
            TransportError: some were not accepted.
        """

    def poll_limits(self) -> Portion:
        """Return the next limits, up to a maximum number and size, without waiting for more.

        Of ``open_attachments_link``: the next attachments.

        Raises:
            TransportError: they can't be read; the next poll returns them again.
        """

    def close(self) -> None:
        """Close connections; a second call does nothing."""
