"""The two ends of a transport, and what they promise.

Every transport has two ends. The control plane holds a ``Transport``: reports as a streaming
DataFrame, limits out from the driver. A broker (or its agent, or the simulator) holds a
``BrokerLink``: reports out, limits in, without Spark or a JVM. All transports pass one suite,
``tests/contract``; what it asserts is what the rest of the code may count on:

* the bytes of a report arrive as they were sent, each report once, over restarts too;
* ``position`` names one report for good (the same after a restart), so that a dead letter can be
  found again, and a report sent later never comes in an earlier micro-batch of its broker;
* within one micro-batch the order of rows is left open: reports carry their own sequence.

What ``publish`` and ``send_reports`` have returned from is acknowledged. What that is worth after a
power loss depends on the kind. The embedded transport has it on the disk. Kafka has it in all
in-sync replicas (``acks=all``), which by default do not wait for their disks. Pulsar has it on the
disks of a quorum of bookies, unless ``journalSyncData`` is off; a non-persistent topic keeps
nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Starting = Literal["earliest", "latest"]


class Topics(NamedTuple):
    """Which topics to read and to write in place of those for reports and for limits."""

    incoming: str
    outgoing: str


class Message(NamedTuple):
    """One message of the limits topic: ``key`` is the broker it is for."""

    key: str
    value: bytes


class Polled(NamedTuple):
    """One message of the limits topic as a link read it."""

    key: str
    value: bytes
    position: str
    """Where in the topic it stands, in the words of the transport."""


class Portion(NamedTuple):
    """The messages of one poll of the limits topic."""

    messages: list[Polled]
    """The oldest first within a broker."""
    more: bool
    """Whether the poll ended before it had everything that was there when it began."""
    caught_up: bool
    """Whether everything that was in the topic when the link was opened has been handed out."""


PORTION_MESSAGES: Final = 10_000
PORTION_BYTES: Final = 16 * 1024 * 1024
"""A poll ends after so many messages, or so many bytes and the message that reaches them."""

REPORTS_AND_LIMITS: Final = Topics("reports", "limits_topic")
"""The embedded transport's; with Kafka the settings have them."""


class OutgoingReport(NamedTuple):
    """One report as its broker sends it; ``published_at_ms`` is milliseconds since 1970 in UTC."""

    broker: str
    value: bytes
    published_at_ms: int


class Transport(Protocol):
    """The control plane's end of the reports and limits topics."""

    def check(self, max_report_bytes: int | None = None) -> Sequence[str]:
        """Return if the topics can be reached and exist, with warnings, a line each.

        ``max_report_bytes``: a larger report is refused by the job, and should be by the topic.

        Raises:
            TransportError: they can't or don't, within seconds.
        """

    def read_reports(self, spark: SparkSession) -> DataFrame:
        """Stream the reports.

        Returns a streaming DataFrame with exactly the columns ``value binary``,
        ``published_at_ms long`` (since 1970 in UTC) and ``position string``.
        """

    def read_recorded(self, spark: SparkSession) -> DataFrame:
        """What the topic of reports holds now, with the same columns, not streaming."""

    def offset_since(self, since_ms: int) -> dict[str, dict[str, int]] | None:
        """The place in the reports before which all were published earlier than that.

        As the source of ``read_reports`` writes offsets down. None: the transport can't tell.

        Raises:
            TransportError: the topics can't be reached.
        """

    def publish(self, messages: Sequence[Message]) -> None:
        """Send limits from the driver; acknowledged when it returns (see above).

        Raises:
            TransportError: some were not accepted; the same call may be made again, because
                limits are absolute and applying one twice is harmless.
        """

    def close(self) -> None:
        """Let go of connections; a second call does nothing."""


class BrokerLink(Protocol):
    """A broker's end: reports out, limits in. Needs neither Spark nor a JVM."""

    def send_reports(self, reports: Sequence[tuple[str, bytes, int]]) -> None:
        """Send ``(broker, bytes, published_at_ms)`` each; acknowledged when it returns.

        Raises:
            TransportError: some were not accepted.
        """

    def poll_limits(self) -> Portion:
        """Return the next limits, up to a bounded number and size, without waiting for more.

        Raises:
            TransportError: they can't be read; messages that this call had read come again.
        """

    def close(self) -> None:
        """Let go of connections; a second call does nothing."""
