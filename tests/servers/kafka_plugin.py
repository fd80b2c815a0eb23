"""Kafka servers with quotaplane's plugin, and the job's end of its topics, written by hand."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, Final

import numpy as np
from kafka import KafkaConsumer, KafkaProducer

from quotaplane.model import DIMENSIONS
from quotaplane.wire.limits import encode_limits
from quotaplane.wire.pb.quotaplane_pb2 import UsageReport
from quotaplane.wire.signatures import SigningKeys
from tests.jvm.jdk import run_jdk
from tests.servers.kafka_server import VERSION, KafkaServer, kafka_jars
from tests.spark.fixtures import ROOT

LIMITS: Final = "quotaplane-limits"
ATTACHMENTS: Final = "quotaplane-attachments"
REPORTS: Final = "quotaplane-reports"
COMPACTED: Final = {"cleanup.policy": "compact"}
BROKER: Final = "broker-1"

SOURCES: Final = ROOT / "deploy" / "kafka-plugin" / "src" / "main" / "java"
_PARTS: Final = 64


@cache
def plugin_jar() -> Path:
    """The plugin, compiled against the clients of the server's version."""
    folder = Path(mkdtemp(prefix="quotaplane-plugin-"))
    jars = kafka_jars()
    classpath = ":".join(map(str, [*jars.glob("kafka-clients-*.jar"), *jars.glob("slf4j-api-*")]))
    options = ["-Xlint:all", "-Werror", "--release", "17", "-proc:none", "-cp", classpath]
    sources = sorted(map(str, SOURCES.rglob("*.java")))
    run_jdk("javac", *options, "-d", str(folder / "classes"), *sources)
    jar = folder / "quotaplane-kafka-plugin.jar"
    run_jdk("jar", "cf", str(jar), "-C", str(folder / "classes"), ".")
    return jar


def plugin_properties(callback: str = "MonitoredQuotaCallback", **settings: str) -> dict[str, str]:
    """Lines of server.properties that switch the plugin on; ``_`` in a name stands for a dot."""
    own = {f"quotaplane.{name.replace('_', '.')}": text for name, text in settings.items()}
    return {
        "client.quota.callback.class": f"io.quotaplane.kafka.{callback}",
        "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter,"
        "io.quotaplane.kafka.QuotaplaneMetricsReporter",
        "quota.window.num": "2",
        "quotaplane.report.interval.ms": "1000",
        **own,
    }


def plugged(folder: Path, *, version: str = VERSION, **settings: str) -> KafkaServer:
    """A server that obeys limits on topics of its own; not started."""
    callback = "QuotaplaneQuotaCallback" if version.startswith("3.") else "MonitoredQuotaCallback"
    server = KafkaServer(folder, version=version, extra_jars=[plugin_jar()], properties={})
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
        """Create all three."""
        self._server.create_topic(LIMITS)
        self._server.create_topic(ATTACHMENTS, configs=COMPACTED)
        self._server.create_topic(REPORTS)

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
        **more: Any,
    ) -> bytes:
        """Publish limits per second by group and dimension; returns the message.

        ``safe``: the safe limit is so many times the limit.
        """
        self._seq += 1
        rates = np.full((len(limits), len(DIMENSIONS)), np.inf)
        for row, by_dimension in enumerate(limits.values()):
            for name, rate in by_dimension.items():
                rates[row, DIMENSIONS.index(name)] = rate
        value = encode_limits(
            broker=broker,
            shard=0,
            epoch=1,
            seq=self._seq,
            issued_at_ms=int(time.time() * 1000),
            lease_ms=int(lease_s * 1000),
            groups=[*limits],
            limits=rates,
            safe_limits=None if safe is None else rates * safe,
            removed_groups=removed,
            **more,
        )
        self.publish(LIMITS, broker, self._signed(value))
        return value

    def attach(self, groups: Mapping[str, str]) -> None:
        """Publish these attachments, by scope, in place of all others in their parts."""
        self._seq += 1
        by_part: dict[int, dict[str, str]] = {}
        for name, group in groups.items():
            by_part.setdefault(part_of(name), {})[name] = group
        for part, of_part in by_part.items():
            value = encoded_attachments(part, self._seq, of_part)
            self.publish(ATTACHMENTS, str(part), self._signed(value))

    def _signed(self, value: bytes) -> bytes:
        return value if self._keys is None else self._keys.sign(value)

    def publish(self, topic: str, key: str, value: bytes) -> None:
        """Publish any bytes, at once."""
        self._producer.send(topic, key=key.encode(), value=value).get(timeout=10)


def part_of(name: str) -> int:
    """The part of the attachments that a scope is in."""
    return hashlib.sha256(name.encode()).digest()[0] % _PARTS


def encoded_attachments(part: int, seq: int, groups: Mapping[str, str]) -> bytes:
    """An AttachmentsUpdate, by hand."""

    def varint(number: int) -> bytes:
        more, last = number >> 7, number & 0x7F
        return bytes([last | 0x80]) + varint(more) if more else bytes([last])

    def text(field: int, value: str) -> bytes:
        return varint(field << 3 | 2) + varint(len(value.encode())) + value.encode()

    numbers = [(2, part), (4, 1), (5, seq), (6, int(time.time() * 1000))]
    body = b"".join(varint(field << 3) + varint(number) for field, number in numbers if number)
    names = b"".join(text(8, name) for name in groups)
    return b"\x0dQPA1" + body + names + b"".join(text(9, group) for group in groups.values())


class Reports:
    """The reports on a broker's topic, decoded."""

    def __init__(self, server: KafkaServer) -> None:
        self._consumer = KafkaConsumer(
            REPORTS,
            bootstrap_servers=server.bootstrap_servers,
            auto_offset_reset="earliest",
            group_id=None,
        )

    def close(self) -> None:
        self._consumer.close()

    def new(self, within_s: float = 0.5) -> Iterator[UsageReport]:
        """Those that came since the last call."""
        for records in self._consumer.poll(timeout_ms=int(1000 * within_s)).values():
            for record in records:
                assert record.key == BROKER.encode()
                yield UsageReport.FromString(record.value)

    def column(self, report: UsageReport, name: str) -> dict[str, float]:
        """One column of a report, by group."""
        values = getattr(report, name)
        return dict(zip(report.groups, values, strict=True)) if values else {}
