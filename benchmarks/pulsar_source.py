"""Measures how fast the Pulsar Data Source reads a real Pulsar on this machine; prints a table.

    ./spark-submit.sh benchmarks/pulsar_source.py

docs/operate/pulsar.md has some of the figures. The first micro-batches do not count, as Python
workers and the JVM warm up in them.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulsar
from pyspark.sql import DataFrame, SparkSession

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from benchmarks.measure import batches, progress, seconds, session  # noqa: E402
from quotaplane.console.option_parser import OptionParser  # noqa: E402
from quotaplane.errors import QuotaplaneError  # noqa: E402
from quotaplane.pulsar.source import PulsarDataSource  # noqa: E402
from quotaplane.streams.script import run_job  # noqa: E402
from tests.servers.pulsar_server import PulsarServer  # noqa: E402

COLD = 2
"""Cold micro-batches, which don't count."""
SINGLE = 40
"""Number of messages published one by one."""


@dataclass(frozen=True)
class Size:
    """One column of the table."""

    title: str
    message_bytes: int
    messages: int
    per_batch: int


SIZES = (
    Size("100 B, sent in batches", 100, 300_000, 30_000),
    Size("200 kB", 200_000, 3_000, 300),
)


class Bench:
    """A running Pulsar and a Spark session; every measurement gets a new topic."""

    def __init__(self, server: PulsarServer, spark: SparkSession, folder: Path) -> None:
        self._server, self._spark, self._folder = server, spark, folder
        self._client = pulsar.Client(server.service_url)
        self._namespace = server.rest.create_namespace("public/speed")
        self._count = itertools.count()

    def close(self) -> None:
        self._client.close()

    def measure(self, size: Size) -> dict[str, str]:
        """Measure one column of the table: cells by row name."""
        topic = self._filled(size)
        reader_per_s = self._without_spark(topic, size)
        batch_per_s = self._batch(topic, size)
        counted = self._stream(topic, size)[COLD:]
        reading = statistics.median(
            b["numInputRows"] / b["durationMs"]["latestOffset"] * 1000 for b in counted
        )
        best = max(b["numInputRows"] / seconds(b) for b in counted)
        stream = sum(b["numInputRows"] for b in counted) / sum(map(seconds, counted))
        latency_ms, source_ms, idle_ms = self._one_by_one(size)
        return {
            "batch read, 2 partitions": _speed(batch_per_s, size),
            "stream, all of it, `foreachBatch` with a count": f"{_speed(stream, size)} "
            f"(best batch {_speed(best, size)})",
            "of that, the source's `latestOffset`, which reads; "
            "the client fetches ahead between two of them": _speed(reading, size),
            "one message: from its publishing to the end of `foreachBatch`": f"{latency_ms:.0f} ms",
            "of that, the source": f"{source_ms:.0f} ms",
            "a trigger that finds nothing, 2 partitions": f"{idle_ms:.0f} ms",
            "for comparison: pulsar-client's reader without Spark, 1 partition": _speed(
                reader_per_s, size
            ),
        }

    def _topic(self) -> str:
        name = f"persistent://{self._namespace}/t{next(self._count)}"
        return self._server.rest.create_topic(name, partitions=2)

    def _filled(self, size: Size) -> str:
        topic = self._topic()
        value = bytes(size.message_bytes)
        with self._producer(topic) as producer:
            for _ in range(size.messages):
                producer.send_async(value, lambda *_: None)
            producer.flush()
        return topic

    @contextmanager
    def _producer(self, topic: str) -> Iterator[pulsar.Producer]:
        producer = self._client.create_producer(
            topic, block_if_queue_full=True, batching_enabled=True, batching_max_messages=1000
        )
        yield producer
        producer.close()

    def _without_spark(self, topic: str, size: Size) -> float:
        reader = self._client.create_reader(
            f"{topic}-partition-0", pulsar.MessageId.earliest, receiver_queue_size=1000
        )
        begun_s, count = time.perf_counter(), 0
        while reader.has_message_available():
            reader.read_next(30_000)
            count += 1
        took_s = time.perf_counter() - begun_s
        reader.close()
        return count / took_s

    def _options(self, topic: str) -> dict[str, str]:
        return {
            "service_url": self._server.service_url,
            "admin_url": self._server.admin_url,
            "topic": topic,
        }

    def _batch(self, topic: str, size: Size) -> float:
        """Messages per second, the better of two runs, as the first starts Python workers."""
        took_s = []
        for _ in range(2):
            begun_s = time.perf_counter()
            frame = self._spark.read.format("pulsar").options(**self._options(topic)).load()
            frame.write.format("noop").mode("overwrite").save()
            took_s.append(time.perf_counter() - begun_s)
        return size.messages / min(took_s)

    def _query(self, topic: str, each: Any, **options: str) -> Any:
        return (
            self._spark.readStream.format("pulsar")
            .options(**self._options(topic), **options)
            .load()
            .writeStream.foreachBatch(each)
            .option("checkpointLocation", str(self._folder / f"c{next(self._count)}"))
            .start()
        )

    def _stream(self, topic: str, size: Size) -> list[dict[str, Any]]:
        def count(frame: DataFrame, _: int) -> None:
            frame.count()

        options = {"starting": "earliest", "max_messages_per_trigger": str(size.per_batch)}
        query = self._query(topic, count, **options)
        try:
            return batches(query, size.messages // size.per_batch)
        finally:
            query.stop()

    def _one_by_one(self, size: Size) -> tuple[float, float, float]:
        """Medians in ms: end to end of a message, the source's part, a trigger without messages."""
        topic, ended_s = self._topic(), []

        def count(frame: DataFrame, _: int) -> None:
            if frame.count():
                ended_s.append(time.perf_counter())

        latencies_ms: list[float] = []
        query = self._query(topic, count, starting="earliest")
        try:
            with self._producer(topic) as producer:
                for _ in range(SINGLE):
                    before, sent_s = len(ended_s), time.perf_counter()
                    producer.send(bytes(size.message_bytes))
                    while len(ended_s) == before:
                        time.sleep(0.001)
                        if not query.isActive:
                            raise QuotaplaneError(f"the query ended: {query.exception()}")
                    latencies_ms.append((ended_s[-1] - sent_s) * 1000)
                    time.sleep(0.3)
            query.awaitTermination(25)  # Spark tells of idle triggers every ten seconds
            told = progress(query)
        finally:
            query.stop()
        reading_ms = [b["durationMs"]["latestOffset"] for b in told if b["numInputRows"]]
        idle_ms = [seconds(b) * 1000 for b in told if not b["numInputRows"]]
        return (
            statistics.median(latencies_ms[COLD:]),
            statistics.median(reading_ms[COLD:]),
            statistics.median(idle_ms[-2:]),
        )


def _speed(per_s: float, size: Size) -> str:
    digits = len(str(int(per_s))) - 2
    text = f"{round(per_s, -digits):,.0f} messages/s"
    if size.message_bytes < 1000:
        return text
    return f"{text}, {per_s * size.message_bytes / 1e6:.0f} MB/s"


def main(argv: Sequence[str]) -> None:
    """Print the table."""
    OptionParser(
        prog="./spark-submit.sh benchmarks/pulsar_source.py", description=__doc__
    ).parse_args(argv)
    with tempfile.TemporaryDirectory() as name, PulsarServer(Path(name, "pulsar")) as server:
        spark = session("Pulsar source bench")
        spark.dataSource.register(PulsarDataSource)
        bench = Bench(server, spark, Path(name))
        columns = [bench.measure(size) for size in SIZES]
        bench.close()
        spark.stop()
    print(f"| | {' | '.join(size.title for size in SIZES)} |")
    print("|---" * (len(SIZES) + 1) + "|")
    for row in columns[0]:
        print(f"| {row} | {' | '.join(cells[row] for cells in columns)} |")


if __name__ == "__main__":
    run_job(main)
