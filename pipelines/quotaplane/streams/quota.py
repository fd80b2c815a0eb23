"""The quota job: one streaming query, from the reports topic to the limits topic."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

from quotaplane.history.earlier import Earlier, read_earlier
from quotaplane.history.store import ensure_tables
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Transition
from quotaplane.settings import Settings
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.entry import tell
from quotaplane.streams.operator import OUTPUT_SCHEMA, QuotaOperator
from quotaplane.streams.rounds import round_config
from quotaplane.streams.running import StreamingJob, run_until_stopped
from quotaplane.streams.sink import BadShare, RoundSink
from quotaplane.streams.sources import group_events, report_events
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
    ensure_tables(settings.history, say=tell)
    return transport


class QuotaJob(StreamingJob):
    """A running quota job; ``transport`` comes from ``prepare`` and is closed with it."""

    def __init__(self, spark: SparkSession, settings: Settings, transport: Transport) -> None:
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
        super().__init__(history, transport)
        sink = RoundSink(
            history,
            transport,
            folder.positions,
            checkpoint.epoch,
            BadShare(settings.reports.max_bad_share, settings.reports.bad_share_window),
        )
        # The number of shuffle partitions is frozen into a checkpoint with its first batch.
        spark.conf.set("spark.sql.shuffle.partitions", settings.shards)
        self.query = (
            build(spark, settings, transport, checkpoint.epoch, earlier.until_ms)
            .writeStream.queryName(QUERY_NAME)
            .option("checkpointLocation", settings.checkpoint)
            .trigger(processingTime=f"{settings.trigger.interval_s * 1000:.0f} milliseconds")
            .foreachBatch(self.guarded(sink))
            .start()
        )


def run_quota(settings: Settings, session: Callable[[], SparkSession]) -> None:
    """Run the job until it is stopped (see ``running.run_until_stopped``)."""
    transport = prepare(settings)
    with _groups_followed(settings):
        run_until_stopped(QuotaJob(session(), settings, transport))


def _groups_followed(settings: Settings) -> AbstractContextManager[None]:
    if settings.cluster is None:
        return nullcontext()
    from quotaplane.cluster.following import following  # needs httpx

    return following(settings.cluster, settings)


def _next_epoch(earlier: Earlier) -> int:
    """Seconds since 1970, unless the history is ahead of the clock.

    Counting the history's epochs alone would begin anew with a new history, and brokers take
    nothing from an epoch older than one they know.
    """
    return max(int(time.time()), 1 + earlier.epoch)
