"""The quota job: one streaming query, from the reports topic to the limits topic."""

from __future__ import annotations

import re
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from py4j.protocol import Py4JNetworkError

from quotaplane import errors
from quotaplane.errors import QuotaplaneError, TransportError
from quotaplane.history.earlier import Earlier, read_earlier
from quotaplane.history.tables import ensure_tables
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Transition
from quotaplane.settings import Settings
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.operator import OUTPUT_SCHEMA, QuotaOperator
from quotaplane.streams.rounds import round_config
from quotaplane.streams.sink import BadShare, RoundSink
from quotaplane.streams.sources import group_events, report_events
from quotaplane.transport import Transport, open_transport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

QUERY_NAME = "quotaplane"


def build(
    spark: SparkSession,
    settings: Settings,
    transport: Transport,
    epoch: int,
    earlier_until_ms: float = 0.0,
) -> DataFrame:
    """The streaming plan: what the operator emits (see ``rounds.Output``), nothing written yet."""
    reports = report_events(transport.read_reports(spark), settings)
    changes = group_events(spark, settings.history, settings.shards)
    return (
        reports.unionByName(changes)
        .groupBy("key")
        .transformWithStateInPandas(
            QuotaOperator(round_config(settings, epoch, earlier_until_ms), settings.shards),
            outputStructType=OUTPUT_SCHEMA,
            outputMode="append",
            timeMode="ProcessingTime",
        )
    )


def prepare(settings: Settings) -> Transport:
    """Everything that can be found wrong without Spark: the law, the topics, the tables.

    Raises:
        QuotaplaneError: what is wrong, within seconds; nothing was started.
    """
    round_config(settings, epoch=0)
    transport = open_transport(settings.transport)
    transport.check()
    ensure_tables(settings.history)
    return transport


def known_failure(text: str) -> QuotaplaneError | None:
    r"""What made a query fail, out of all that Spark says about it: ours, or Kafka's; else None.

    >>> known_failure("in _round\nquotaplane.errors.HistoryError: no such table\n\tat org.")
    HistoryError('no such table')
    """
    ours = re.findall(r"^(?:.*: )?quotaplane\.errors\.(\w+): (.+)$", text, re.MULTILINE)
    if ours:
        kind, message = ours[-1]
        found: type[QuotaplaneError] = getattr(errors, kind, QuotaplaneError)
        return found(message)
    kafka = re.findall(r"(org\.apache\.kafka\.[\w.]+(?:Exception|Error): .+)", text)
    if kafka:
        return TransportError(f"reports topics: {kafka[-1].rpartition('.errors.')[2]}")
    if "KAFKA_DATA_LOSS" in text or "failOnDataLoss" in text:
        return TransportError(
            "reports topics: reports behind the checkpoint are gone (retention, or a topic made "
            "anew); set transport.fail_on_data_loss to false to go on without them"
        )
    return None


class QuotaJob:
    """A running quota job; ``transport`` comes from ``prepare`` and is closed with it."""

    def __init__(self, spark: SparkSession, settings: Settings, transport: Transport) -> None:
        self._transport = transport
        folder = CheckpointFolder(spark, settings.checkpoint)
        strict = settings.limits.transition is Transition.STRICT
        earlier = read_earlier(settings.history)
        checkpoint = folder.open(
            settings.shards,
            next_epoch=_next_epoch(earlier),
            strict_lease_s=settings.limits.lease_s if strict else None,
        )
        self.epoch = checkpoint.epoch
        self._history = HistoryWriter(settings.history, app_id=checkpoint.id)
        self._failure: QuotaplaneError | None = None
        sink = RoundSink(
            self._history,
            self._transport,
            folder.positions,
            checkpoint.epoch,
            BadShare(settings.reports.max_bad_share, settings.reports.bad_share_window),
        )

        def end_batch(outputs: DataFrame, seq: int) -> None:
            try:
                sink(outputs, seq)
            except QuotaplaneError as error:
                self._failure = error  # Spark would only pass its text on, in a Java exception
                raise

        # The number of shuffle partitions is frozen into a checkpoint with its first batch.
        spark.conf.set("spark.sql.shuffle.partitions", settings.shards)
        self.query: StreamingQuery = (
            build(spark, settings, self._transport, checkpoint.epoch, earlier.until_ms)
            .writeStream.queryName(QUERY_NAME)
            .option("checkpointLocation", settings.checkpoint)
            .trigger(processingTime=f"{settings.trigger.interval_s * 1000:.0f} milliseconds")
            .foreachBatch(end_batch)
            .start()
        )

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the query to end; True if it did.

        Raises:
            QuotaplaneError: what made it fail; what nobody foresaw comes as Spark raises it.
        """
        try:
            if timeout_s is None:
                self.query.awaitTermination()
                return True
            return bool(self.query.awaitTermination(timeout_s))  # type: ignore[arg-type]
        except Exception as error:
            known = self._failure or known_failure(f"{error}\n{getattr(error, '_stackTrace', '')}")
            if known is not None:
                raise known from None
            raise

    def _last_batch(self) -> int | None:
        progress = self.query.lastProgress
        return None if progress is None else int(progress["batchId"])

    def stop(self, patience_s: float = 30.0) -> None:
        """Stop between two batches where possible, so that nothing has to be done again."""
        pause, begun = threading.Event(), self._last_batch()
        for _ in range(int(patience_s / 0.02)):
            if not self.query.isActive or not self.query.status["isTriggerActive"]:
                break
            if self._last_batch() != begun:  # a busy job has no pause, but a new batch can wait
                break
            pause.wait(0.02)
        self.query.stop()
        self._history.close()
        self._transport.close()


def run_until_stopped(settings: Settings, session: Callable[[], SparkSession]) -> None:
    """Run the job until SIGTERM or Ctrl-C, which let the batch at hand end.

    Raises:
        QuotaplaneError: what made it fail, or that its JVM is gone.
    """
    transport = prepare(settings)
    job = QuotaJob(session(), settings, transport)
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        try:
            while not stopping.is_set() and not job.wait(timeout_s=0.5):
                pass
        finally:
            job.stop()
    except QuotaplaneError:
        raise
    except Exception as error:
        # Who stops all processes at once (systemd, a shell's timeout) stops Spark under our feet.
        # Its batch is done again by the next start; what it says of that is no news.
        if stopping.is_set():
            return
        if isinstance(error, (Py4JNetworkError, ConnectionError)):
            raise QuotaplaneError(
                "Spark's JVM is gone (killed, or out of memory); started again, the job goes on "
                "where it was"
            ) from None
        raise


def _next_epoch(earlier: Earlier) -> int:
    """Seconds since 1970, unless the history is ahead of the clock.

    Counting the history's epochs alone would begin anew with a new history, and brokers take
    nothing from an epoch older than one they know.
    """
    return max(int(time.time()), 1 + earlier.epoch)
