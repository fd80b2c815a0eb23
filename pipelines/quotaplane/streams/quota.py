"""The quota job: one streaming query, from the reports topic to the limits topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from quotaplane.history.earlier import Earlier, read_earlier
from quotaplane.history.store import ensure_tables, table_uri
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Transition
from quotaplane.settings import PulsarTransport, Settings
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.job_output import (
    absolute,
    end_at_once_on_signals,
    speaking,
    transport_in_words,
)
from quotaplane.streams.operator import OUTPUT_SCHEMA, QuotaOperator
from quotaplane.streams.report_watch import ReportWatch
from quotaplane.streams.rounds import round_config
from quotaplane.streams.running import StreamingJob, run_until_stopped
from quotaplane.streams.sink import COUNTERS, GAUGES, RoundSink
from quotaplane.streams.sources import group_events, report_events
from quotaplane.streams.spark_log import SparkLog
from quotaplane.streams.status import JobStatus
from quotaplane.transport import Transport, open_transport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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


class QuotaJob(StreamingJob):
    """A running quota job; ``transport`` comes from ``prepare`` and is closed with it.

    ``lines``: what it says; nothing by default.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        transport: Transport,
        lines: JobLines | None = None,
    ) -> None:
        folder = CheckpointFolder(spark, settings.checkpoint)
        strict = settings.limits.transition is Transition.STRICT
        earlier = read_earlier(settings.history)
        checkpoint = folder.open(
            settings.shards,
            next_epoch=_next_epoch(earlier),
            strict_lease_s=settings.limits.lease_s if strict else None,
        )
        self.epoch = checkpoint.epoch
        history = HistoryWriter(settings.history, app_id=checkpoint.id)
        super().__init__(history, transport, lines=lines or JobLines.silent(quota_status()))
        reports = settings.reports
        watch = ReportWatch(reports.interval_s, reports.stop_when_unusable_intervals)
        sink = RoundSink(history, transport, folder.positions, checkpoint.epoch, watch, self.lines)
        # The number of shuffle partitions is frozen into a checkpoint with its first batch.
        spark.conf.set("spark.sql.shuffle.partitions", settings.shards)
        self.query = (
            build(spark, settings, transport, checkpoint.epoch, earlier.until_ms)
            .writeStream.queryName(QUERY_NAME)
            .option("checkpointLocation", settings.checkpoint)
            .trigger(processingTime=f"{settings.trigger.interval_s * 1000:.0f} milliseconds")
            .foreachBatch(self.guarded(sink, _ready(spark, settings, checkpoint.epoch)))
            .start()
        )


def run_quota(settings: Settings, session: Callable[[SparkLog], SparkSession]) -> None:
    """Run the job until it is stopped (see ``running.run_until_stopped``)."""
    transport = prepare(settings)
    lines = JobLines(quota_status())
    # First what can fail within seconds: the cluster's rights, which are one line then.
    with _groups_followed(settings, lines), speaking("quota", settings.checkpoint, lines) as log:
        spark = session(log)
        end_at_once_on_signals()
        lines.end(run_until_stopped(QuotaJob(spark, settings, transport, lines)))


def quota_status() -> JobStatus:
    """What the status line shows."""
    return JobStatus(COUNTERS, (*GAUGES, "backlog"), time.monotonic)


def _ready(spark: SparkSession, settings: Settings, epoch: int) -> str:
    """What the ready line says."""
    transport, cluster = settings.transport, settings.cluster
    follows = f"follows the quotas in {absolute(table_uri(settings.history, 'resource_groups'))}"
    if cluster is not None and isinstance(transport, PulsarTransport):
        follows += f", which follow the resource groups of {transport.admin_url}"
    parts = (
        transport_in_words(transport, *settings.own_topics),
        follows,
        f"history {absolute(settings.history.path)}",
        f"checkpoint {absolute(settings.checkpoint)}",
        f"law {settings.law.name}, transition {settings.limits.transition.value}",
        f"Spark UI {spark.sparkContext.uiWebUrl or 'off'}",
        f"epoch {epoch}",
    )
    return "; ".join(parts)


def _groups_followed(settings: Settings, lines: JobLines) -> AbstractContextManager[None]:
    if settings.cluster is None:
        return nullcontext()
    from quotaplane.cluster.following import following  # needs httpx

    return following(settings.cluster, settings, say=lines.warn)


def _next_epoch(earlier: Earlier) -> int:
    """Seconds since 1970, unless the history is ahead of the clock.

    Counting the history's epochs alone would begin anew with a new history, and brokers take
    nothing from an epoch older than one they know.
    """
    return max(int(time.time()), 1 + earlier.epoch)
