"""The quota job: one streaming query, from the reports topic to the limits topic."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import pyarrow as pa

from quotaplane.arrow_ipc import pack
from quotaplane.history.previous_run import Earlier, read_earlier
from quotaplane.history.store import ensure_tables, table_uri
from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Transition
from quotaplane.quota.state import ShardState
from quotaplane.settings import PulsarTransport, Settings
from quotaplane.streams.batch_attempts import open_attempts
from quotaplane.streams.checkpoint import CheckpointFolder, Range
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.job_output import (
    absolute,
    own_signal_handlers,
    speaking,
    transport_in_words,
)
from quotaplane.streams.lifecycle import StreamingJob, run_until_stopped
from quotaplane.streams.lone_batches import Alone, nothing, pass_over_backlog, skipped
from quotaplane.streams.operator import operate
from quotaplane.streams.quota.program import QuotaProgram, quota_program
from quotaplane.streams.quota.report_watch import ReportWatch
from quotaplane.streams.quota.sink import COUNTERS, GAUGES, RoundSink
from quotaplane.streams.shard_program import Batch, Output
from quotaplane.streams.sources import group_events, report_events
from quotaplane.streams.spark_log import SparkLog
from quotaplane.streams.status import JobStatus
from quotaplane.terminal import tell, warn
from quotaplane.transport import open_transport
from quotaplane.transport.base import Transport
from quotaplane.wire.reasons import SKIPPED_BATCH, STALE
from quotaplane.wire.shard_inputs import REJECTED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

QUERY_NAME = "quotaplane"


def build(
    spark: SparkSession,
    settings: Settings,
    transport: Transport,
    program: QuotaProgram,
    *,
    without_reports: bool = False,
) -> DataFrame:
    """The streaming plan: what the operator emits (see ``rounds.Output``), nothing written yet.

    ``without_reports``: for a batch that is skipped (see ``nothing``).
    """
    arriving = nothing(spark) if without_reports else transport.read_reports(spark)
    reports = report_events(arriving, settings)
    changes = group_events(spark, settings.history, settings.shards)
    return operate(reports.unionByName(changes), program, settings.shards)


def prepare(settings: Settings) -> Transport:
    """Everything that can be found wrong without Spark: the law, the topics, the tables.

    Raises:
        QuotaplaneError: what is wrong, within seconds; nothing was started.
    """
    quota_program(settings, epoch=0)
    transport = open_transport(settings.transport)
    for warning in transport.check(settings.reports.max_report_bytes):
        warn(warning)
    ensure_tables(settings.history, say=tell)
    return transport


class QuotaJob(StreamingJob):
    """A running quota job; ``transport`` comes from ``prepare`` and is closed with it.

    ``skip_batch``: the batch that is to be committed without its reports. ``pass_over``: may the
    query run one batch alone, to pass over reports that are too old, and end? ``lines``: what it
    says; nothing by default.
    """

    def __init__(
        self,
        spark: SparkSession,
        settings: Settings,
        transport: Transport,
        skip_batch: int | None = None,
        *,
        pass_over: bool = False,
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
        # A round is in the history before its limits are published.
        attempts = open_attempts(folder, "quota", skip_batch, history.last_seq())
        lines = lines or JobLines.silent(quota_status())
        super().__init__(attempts, history, transport, lines=lines)
        reports = settings.reports
        watch = ReportWatch(reports.interval_s, reports.stop_when_unusable_intervals)
        sink = RoundSink(history, transport, folder, checkpoint.epoch, watch, lines)
        # The number of shuffle partitions is frozen into a checkpoint with its first batch.
        spark.conf.set("spark.sql.shuffle.partitions", settings.shards)
        program = quota_program(settings, checkpoint.epoch, earlier.until_ms)
        alone = None
        if attempts.to_skip is not None:
            alone = _skipped(folder, attempts.to_skip, program)
        elif pass_over:
            alone = _passed_over(folder, transport, settings, program)
        without_reports = alone is not None and alone.without_input
        self.start(
            build(spark, settings, transport, program, without_reports=without_reports),
            sink,
            name=QUERY_NAME,
            interval_s=settings.trigger.interval_s,
            alone=alone,
            ready=_ready(spark, settings, checkpoint.epoch),
        )


def run_quota(
    settings: Settings, session: Callable[[SparkLog], SparkSession], skip_batch: int | None = None
) -> None:
    """Run the job until it is stopped (see ``running.run_until_stopped``)."""
    transport = prepare(settings)
    lines = JobLines(quota_status())
    # First what can fail within seconds: the cluster's rights, which are one line then.
    with _groups_followed(settings, lines), speaking("quota", settings.checkpoint, lines) as log:
        with own_signal_handlers():
            spark = session(log)
        # At most a batch that was begun, and one that passes over: then the stream goes on.
        may_pass_over = iter((True, True))

        def start(skip: int | None) -> QuotaJob:
            passing = skip is None and next(may_pass_over, False)
            return QuotaJob(spark, settings, transport, skip, pass_over=passing, lines=lines)

        lines.end(run_until_stopped(start, skip_batch))


def _skipped(folder: CheckpointFolder, batch: int, program: QuotaProgram) -> Alone:
    """The batch that an operator skips, with one dead letter."""
    ranges = folder.ranges(batch)
    done = skipped(batch, ranges, "reports")
    positions = ", ".join(part.text for part in ranges)
    letters = _letters(folder, batch, program, SKIPPED_BATCH, [(positions, done, _sizes(ranges))])
    return Alone(batch, letters, done=done)


def _passed_over(
    folder: CheckpointFolder, transport: Transport, settings: Settings, program: QuotaProgram
) -> Alone | None:
    """The batch that passes over a backlog, with a dead letter for each partition."""
    oldest_s = settings.reports.oldest_s
    most = getattr(settings.transport, "max_reports_per_trigger", None)
    alone = pass_over_backlog(folder, transport, oldest_s, most)
    if alone is None or not alone.without_input:
        return alone
    ranges = folder.ranges(alone.batch)
    why = f"published more than {oldest_s:g} s before the job was started; not read"
    told = [(part.text, f"{part.size} reports {why}", _sizes([part])) for part in ranges]
    done = f"{_sizes(ranges)} reports were {why}"
    letters = _letters(folder, alone.batch, program, STALE, told)
    return alone._replace(letters=letters, done=done)


def _sizes(ranges: Sequence[Range]) -> int:
    """How many reports are in the ranges; 0 of those of which it is not known."""
    return sum(part.size or 0 for part in ranges)


def _letters(
    folder: CheckpointFolder,
    batch: int,
    program: QuotaProgram,
    reason: str,
    told: Sequence[tuple[str, str, int]],
) -> Sequence[Output]:
    """What a shard gives out to which nothing came but dead letters.

    Of each the position, the detail, and for how many reports it stands.
    """
    letters = [
        {
            "reason": reason,
            "detail": detail,
            "position": position,
            "published_at_ms": -1,
            "counts_as_bad": False,
            "reports": reports,
            "raw": b"",
        }
        for position, detail, reports in told
    ]
    arrived = {"rejected": [pack(pa.Table.from_pylist(letters, schema=REJECTED))]}
    now_ms = folder.now_ms(batch)
    _, outputs = program.run(ShardState(), arrived, Batch(0, batch, now_ms))
    return outputs


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
    from quotaplane.group_sync.runner import following  # needs httpx

    return following(settings.cluster, settings, say=lines.warn)


def _next_epoch(earlier: Earlier) -> int:
    """Seconds since 1970, unless the history is ahead of the clock.

    Counting the history's epochs alone would begin anew with a new history, and brokers take
    nothing from an epoch older than one they know.
    """
    return max(int(time.time()), 1 + earlier.epoch)
