"""Kafka servers with quotaplane's plugin, and the job's end of its topics, written by hand."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from kafka import KafkaConsumer, KafkaProducer

from quotaplane.groups.attachable import part_of
from quotaplane.model import DIMENSIONS
from quotaplane.wire.attachments_update import AttachmentsMessage, encode_attachments
from quotaplane.wire.limits import encode_limits
from quotaplane.wire.pb.quotaplane_pb2 import UsageReport
from quotaplane.wire.signatures import SigningKeys
from tests.jvm.kafka_plugin import plugin_jar
from tests.servers.kafka_server import VERSION, KafkaServer
from tests.waiting import wait_until

LIMITS: Final = "quotaplane-limits"
ATTACHMENTS: Final = "quotaplane-attachments"
REPORTS: Final = "quotaplane-reports"
COMPACTED: Final = {"cleanup.policy": "compact"}
LOAD: Final = "load"
"""A topic for the load."""
BROKER: Final = "broker-1"
MESSAGE_BYTES: Final = 10_000
_WAITING: Final = 50
"""Messages that a load has ready to be sent."""


def plugin_properties(callback: str = "MonitoredQuotaCallback", **settings: str) -> dict[str, str]:
    """Lines of server.properties that switch the plugin on; ``_`` in a name stands for a dot."""
    own = {f"quotaplane.{name.replace('_', '.')}": text for name, text in settings.items()}
    return {
        "client.quota.callback.class": f"io.quotaplane.kafka.{callback}",
        "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter,"
        "io.quotaplane.kafka.QuotaplaneMetricsReporter",
        "quota.window.num": "1",
        "quotaplane.report.interval.ms": "1000",
        **own,
    }


def plugged(
    folder: Path, *, version: str = VERSION, secure: bool = False, **settings: str
) -> KafkaServer:
    """A server that obeys limits on topics of its own; not started."""
    callback = "QuotaplaneQuotaCallback" if version.startswith("3.") else "MonitoredQuotaCallback"
    server = KafkaServer(folder, version=version, extra_jars=[plugin_jar()], secure=secure)
    own = {"bootstrap_servers": server.bootstrap_servers, **settings}
    server.more_properties(plugin_properties(callback, **own))
    return server


class Job:
    """The quota job's end of a broker's topics."""

    def __init__(self, server: KafkaServer, keys: SigningKeys | None = None) -> None:
        self._server, self._keys = server, keys
        self._producer = KafkaProducer(bootstrap_servers=server.bootstrap_servers)
        self._seq = 0

    def create_topics(self) -> None:
        """Create them, and one for the load."""
        self._server.create_topic(LIMITS)
        self._server.create_topic(ATTACHMENTS, configs=COMPACTED)
        self._server.create_topic(REPORTS)
        self._server.create_topic(LOAD)

    def close(self) -> None:
        self._producer.close()

    def limit(
        self,
        limits: Mapping[str, Mapping[str, float]],
        *,
        safe: float | None = None,
        lease_s: float = 120.0,
        removed: Sequence[str] = (),
        broker: str = BROKER,
        epoch: int = 1,
        ahead_s: float = 0.0,
    ) -> bytes:
        """Publish limits per second by group and dimension; returns the message.

        ``safe``: the safe limit is so many times the limit. ``ahead_s``: of this job's clock.
        """
        self._seq += 1
        rates = np.full((len(limits), len(DIMENSIONS)), np.inf)
        for row, by_dimension in enumerate(limits.values()):
            for name, rate in by_dimension.items():
                rates[row, DIMENSIONS.index(name)] = rate
        value = encode_limits(
            broker=broker,
            shard=0,
            epoch=epoch,
            seq=self._seq,
            issued_at_ms=int((time.time() + ahead_s) * 1000),
            lease_ms=int(lease_s * 1000),
            groups=[*limits],
            limits=rates,
            safe_limits=None if safe is None else rates * safe,
            removed_groups=removed,
        )
        self.publish(LIMITS, broker, self._signed(value))
        return value

    def attach(self, groups: Mapping[str, str], *, epoch: int = 1) -> list[bytes]:
        """Publish these attachments, by scope, in place of all others in their parts.

        Returns the messages.
        """
        self._seq += 1
        by_part: dict[int, dict[str, str]] = {}
        values: list[bytes] = []
        for name, group in groups.items():
            by_part.setdefault(part_of(name), {})[name] = group
        for part, of_part in by_part.items():
            names, attached = tuple(of_part), tuple(of_part.values())
            now_ms = int(time.time() * 1000)
            message = AttachmentsMessage(part, epoch, self._seq, now_ms, names, attached)
            values.append(self._signed(encode_attachments(message)))
            self.publish(ATTACHMENTS, str(part), values[-1])
        return values

    def _signed(self, value: bytes) -> bytes:
        return value if self._keys is None else self._keys.sign(value)

    def publish(self, topic: str, key: str, value: bytes) -> None:
        """Publish any bytes, at once."""
        self._producer.send(topic, key=key.encode(), value=value).get(timeout=10)


class Reports:
    """The reports on a broker's topic: each group as it was named last."""

    def __init__(self, server: KafkaServer, topic: str = REPORTS) -> None:
        self._consumer = KafkaConsumer(
            topic,
            bootstrap_servers=server.bootstrap_servers,
            auto_offset_reset="earliest",
            group_id=None,
        )
        self.all: list[UsageReport] = []

    def close(self) -> None:
        self._consumer.close()

    def read(self, within_s: float = 0.2) -> list[UsageReport]:
        """Those that came since the last call."""
        polled = self._consumer.poll(timeout_ms=int(1000 * within_s))
        records = [record for of_partition in polled.values() for record in of_partition]
        assert all(record.key == BROKER.encode() for record in records)
        new = [UsageReport.FromString(record.value) for record in records]
        self.all += new
        return new

    def last(self, column: str) -> dict[str, float]:
        """The newest values of a column, by group."""
        found: dict[str, float] = {}
        for report in self.all:
            values = getattr(report, column)
            if values:
                found |= dict(zip(report.groups, values, strict=True))
        return found

    def wait_for(self, column: str, group: str, value: float, within_s: float = 20.0) -> None:
        """Read until a value of a group is reported."""

        def is_there() -> bool:
            self.read()
            return self.last(column).get(group) == pytest.approx(value)

        wait_until(is_there, within_s, said=lambda: f"{column}: {self.last(column)}")

    def amount(self, column: str, group: str) -> float:
        """Rates times windows, of all reports so far; what is not named has not changed."""
        total, rate = 0.0, 0.0
        for report in self.all:
            named = dict(zip(report.groups, getattr(report, column), strict=False))
            rate = named.get(group, rate)
            total += rate * report.window_ms / 1000
        return total

    def wait_for_amount(self, column: str, group: str, amount: float) -> None:
        """Read until a group was reported to have used so much, within 3 %, and uses no more."""

        def is_there() -> bool:
            self.read()
            is_idle = self.last(column).get(group) == 0
            return is_idle and self.amount(column, group) == pytest.approx(amount, rel=0.03)

        wait_until(is_there, 20, said=lambda: f"{self.amount(column, group)} of {amount}")


class Load:
    """A producer that sends as fast as it may, or at a rate; from a thread of its own."""

    def __init__(
        self,
        bootstrap: str,
        client_id: str,
        rate: float = 0.0,
        *,
        partition: int | None = None,
        **settings: Any,
    ) -> None:
        """Begin.

        Args:
            bootstrap: of the server.
            client_id: its own.
            rate: bytes per second; 0: as fast as it may.
            partition: of the topic; None: all in turn.
            settings: more of the client.
        """
        self.sent = 0
        """Bytes that the broker has acknowledged, of messages without what Kafka adds."""
        self.longest_silence_s = 0.0
        """The longest time between two messages that the broker acknowledged."""
        self._acknowledged_s = time.monotonic()
        self._rate, self._over = rate, threading.Event()
        self._partition, self._goes_on = partition, threading.Event()
        self._goes_on.set()
        self._room = threading.Semaphore(_WAITING)
        own: dict[str, Any] = {"acks": 1, "linger_ms": 5, "batch_size": 20_000}
        own["request_timeout_ms"] = 60_000
        self._producer = KafkaProducer(
            bootstrap_servers=bootstrap, client_id=client_id, **{**own, **settings}
        )
        self._producer.partitions_for(LOAD)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        payload, due = bytes(MESSAGE_BYTES), time.monotonic()
        while not self._over.is_set():
            if not self._goes_on.wait(0.1) or not self._room.acquire(timeout=0.1):
                continue
            sent = self._producer.send(LOAD, payload, partition=self._partition)
            sent.add_both(self._delivered)
            if self._rate:
                due += MESSAGE_BYTES / self._rate
                self._over.wait(max(due - time.monotonic(), 0))

    def _delivered(self, _: object) -> None:
        now_s = time.monotonic()
        self.longest_silence_s = max(self.longest_silence_s, now_s - self._acknowledged_s)
        self._acknowledged_s = now_s
        self.sent += MESSAGE_BYTES
        self._room.release()

    def pause(self) -> None:
        """Send no more until ``resume``; what waits to be sent is."""
        self._goes_on.clear()

    def resume(self) -> None:
        """Send on."""
        self._goes_on.set()

    def end(self) -> None:
        """Send no more; what waits to be sent is."""
        self._over.set()
        self._thread.join()
        self._producer.flush(60)
        self._producer.close()

    def rate_over(self, seconds: float) -> float:
        """Bytes per second from now on, seen from here."""
        before, since = self.sent, time.monotonic()
        time.sleep(seconds)
        return (self.sent - before) / (time.monotonic() - since)
