"""The quota job: one streaming query, from the reports topic to the limits topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import pyarrow as pa

from quotaplane.history.earlier import Earlier, read_earlier
from quotaplane.history.store import ensure_tables
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Transition
from quotaplane.packing import pack
from quotaplane.settings import Settings
from quotaplane.state import ShardState
from quotaplane.streams.attempts import opened_attempts
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.entry import warn
from quotaplane.streams.operator import OUTPUT_SCHEMA, QuotaOperator
from quotaplane.streams.rounds import Output, RoundConfig, round_config, run_round
from quotaplane.streams.running import StreamingJob, run_until_stopped
from quotaplane.streams.sink import BadShare, RoundSink
from quotaplane.streams.skipping import nothing, without_input
from quotaplane.streams.sources import group_events, report_events
from quotaplane.transport import Transport, open_transport
from quotaplane.wire.events import REJECTED
from quotaplane.wire.reasons import SKIPPED_BATCH

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_NAME = "quotaplane"


def build(
    spark: SparkSession,
    settings: Settings,
    transport: Transport,
    config: RoundConfig,
    *,
    without_reports: bool = False,
) -> DataFrame:
    """The streaming plan: what the operator emits (see ``rounds.Output``), nothing written yet.

    ``without_reports``: for a batch that is skipped (see ``nothing``).
    """
    arriving = nothing(spark) if without_reports else transport.read_reports(spark)
    reports = report_events(arriving, settings)
    changes = group_events(spark, settings.history, settings.shards)
    return (
        reports.unionByName(changes)
        .groupBy("key")
        .transformWithStateInPandas(
            QuotaOperator(config, settings.shards),
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
    for warning in transport.check(settings.reports.max_report_bytes):
        warn(warning)
    ensure_tables(settings.history)
    return transport


class QuotaJob(StreamingJob):
    """A running quota job; ``transport`` comes from ``prepare`` and is closed with it.

    ``skip_batch``: the batch that is to be committed without its reports; see ``StreamingJob``.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        transport: Transport,
        skip_batch: int | None = None,
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
        attempts = opened_attempts(folder, "quota", skip_batch)
        history = HistoryWriter(settings.history, app_id=checkpoint.id)
        super().__init__(attempts, history, transport)
        sink = RoundSink(
            history,
            transport,
            folder.positions,
            checkpoint.epoch,
            BadShare(settings.reports.max_bad_share, settings.reports.bad_share_window),
        )
        # The number of shuffle partitions is frozen into a checkpoint with its first batch.
        spark.conf.set("spark.sql.shuffle.partitions", settings.shards)
        config = round_config(settings, checkpoint.epoch, earlier.until_ms)
        skipped = attempts.to_skip
        self.start(
            build(spark, settings, transport, config, without_reports=skipped is not None),
            sink,
            name=QUERY_NAME,
            interval_s=settings.trigger.interval_s,
            letter=() if skipped is None else _letter(folder, skipped, config),
        )


def run_quota(
    settings: Settings, session: Callable[[], SparkSession], skip_batch: int | None = None
) -> None:
    """Run the job until it is stopped (see ``running.run_until_stopped``)."""
    transport = prepare(settings)
    with _groups_followed(settings):
        run_until_stopped(lambda skip: QuotaJob(session(), settings, transport, skip), skip_batch)


def _letter(folder: CheckpointFolder, batch: int, config: RoundConfig) -> Sequence[Output]:
    """What a shard gives out to which nothing came but the dead letter of a skipped batch."""
    ranges, count = folder.ranges(batch)
    letter = {
        "reason": SKIPPED_BATCH,
        "detail": without_input(batch, count, "reports"),
        "position": ", ".join(ranges),
        "published_at_ms": -1,
        "counts_as_bad": False,
        "raw": b"",
    }
    arrived = {"rejected": [pack(pa.Table.from_pylist([letter], schema=REJECTED))]}
    now_ms = folder.now_ms(batch)
    _, outputs = run_round(ShardState(), arrived, shard=0, seq=batch, now_ms=now_ms, config=config)
    return outputs


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
