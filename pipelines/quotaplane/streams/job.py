"""A streaming job of any kind: its declarations (``JobSpec``), and its query.

A job runs one program per shard (``shard_program``) between a topic and the history. The quota job
and the balance job each declare a spec; checkpoint, operator, sink and life cycle are the same.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final

from quotaplane.console.terminal import inform, warn
from quotaplane.deltalog.log import local_folder
from quotaplane.history.disk_mark import leave_mark
from quotaplane.history.leadership import Leadership
from quotaplane.history.store import ensure_tables, refuse_lost_groups
from quotaplane.history.tables import Table
from quotaplane.history.writer import HistoryWriter
from quotaplane.metrics.traces import RoundTraces
from quotaplane.parsing.folders import location, spark_uri
from quotaplane.settings import Settings
from quotaplane.streams.batch_attempts import open_attempts
from quotaplane.streams.batch_inputs import hand_inputs
from quotaplane.streams.checkpoint import Checkpoint, CheckpointFolder, Range
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.job_places import patient
from quotaplane.streams.lifecycle import RunningQuery
from quotaplane.streams.operator import operate
from quotaplane.streams.shard_program import Batch, Output, ShardProgram
from quotaplane.streams.sink import BatchSink, Finisher
from quotaplane.streams.skipped_batches import (
    SingleBatch,
    SkippedInput,
    empty_source,
    skip_backlog,
    skipped_backlog,
    skipped_batch,
)
from quotaplane.streams.spark_protection import is_remote
from quotaplane.streams.status import JobStatus
from quotaplane.streams.task_files import TaskFiles
from quotaplane.streams.whole_groups import refuse_damaged_groups
from quotaplane.transport.base import Transport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHECKPOINT_FILES: Final = "spark.sql.streaming.checkpointFileManagerClass"
_WITHOUT_LINKS: Final = "FileSystemBasedCheckpointFileManager"
"""Spark's default starts the program ``readlink`` four times for each file of a checkpoint on a
local disk, 24 times in a micro-batch. There both replace a file by renaming another; elsewhere this
one may leave a file as it was."""
_OF_S3: Final = "org.apache.spark.internal.io.cloud.AbortableStreamBasedCheckpointFileManager"
"""Spark's default makes 22 requests for a file: it writes another one, and copies it. This one, of
Spark's own module for stores, makes 9: S3 keeps a file once it is whole."""

_INTERPRETED: Final = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.ui.explainMode": "simple",
}
"""Spark would write and compile Java code in each micro-batch anew (a batch's time is in the code),
for a few rows that are megabytes each; and it would describe the plan at length for its page."""


class JobSpec(ABC):
    """Declarations of one kind of job; nothing is opened before a method is called."""

    name: str
    """The job's name in commands and log files: ``quota``."""
    query_name: str
    """The streaming query's name in Spark's UI."""
    inputs_noun: str
    """Plural noun for the messages of its input topic: ``reports``."""
    tables: Sequence[Table]
    """History tables that the job appends to."""
    tables_of_tasks: Collection[str] = ()
    """Names of those whose rows the tasks of a micro-batch may write into files."""
    least_bytes_of_tasks: int = 1 << 20
    """They do so from this size on."""
    last_table: Table | None = None
    """The table with one row per round, which is written last; None if there is none."""
    max_message_bytes: int = 1 << 20
    """Largest message that its topics must accept; default: Kafka's."""
    checkpoint: str
    """Checkpoint folder."""
    oldest_s: float | None = None
    """Input older than this is useless, so a start may skip it unread. None: read all input."""
    most_per_batch: int | None = None
    """Most messages that a batch reads; None: no limit."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings.model_copy(update={"history": patient(settings.history)})
        self.checkpoint = settings.checkpoint

    @property
    def checkpoint_note(self) -> Mapping[str, Any]:
        """Settings that a new checkpoint records beside id, epoch and shards; by name, as JSON."""
        return {}

    @abstractmethod
    def open_transport(self) -> Transport:
        """Open the topics that the job reads and writes."""

    @abstractmethod
    def program(self, epoch: int) -> ShardProgram[Any]:
        """The program that runs for each shard."""

    def rehearsal_program(self) -> ShardProgram[Any]:
        """A program like that of the job, for rounds that count nowhere."""
        return self.program(0)

    @abstractmethod
    def inputs(self, spark: SparkSession, arriving: DataFrame) -> DataFrame:
        """The operator's events (``EVENT_SCHEMA``), from arriving messages and other inputs.

        ``arriving`` must be the query's first source.
        """

    @abstractmethod
    def finisher(self, folder: CheckpointFolder) -> Finisher:
        """Create the object that does the job's own work at the end of each micro-batch."""

    @abstractmethod
    def letters(
        self, epoch: int, batch: Batch, left_out: Sequence[SkippedInput]
    ) -> Sequence[Output]:
        """Dead letters for skipped input, as the program would emit them."""

    def skipped_backlog(
        self, epoch: int, batch: Batch, ranges: Sequence[Range]
    ) -> tuple[Sequence[Output], str]:
        """Outputs for a backlog that a start skips, by default dead letters; and a warning."""
        left_out, said = skipped_backlog(ranges, self.inputs_noun, self.oldest_s or 0.0)
        return self.letters(epoch, batch, left_out), said

    @abstractmethod
    def status(self) -> JobStatus:
        """Counters and gauges of the status line."""

    @abstractmethod
    def in_words(self) -> Sequence[str]:
        """Parts of the ready line: the topics, the table of quotas, then any others."""

    def check(self) -> None:  # noqa: B027 (nothing by default)
        """Check the settings before anything is opened.

        Raises:
            ConfigError: what is wrong.
        """

    @cached_property
    def leadership(self) -> Leadership:
        """This process's claim to be the only one of its job that publishes."""
        return Leadership(self.settings.history, self.name, location(self.checkpoint))

    def earliest_epoch(self) -> int:
        """A new checkpoint gets this epoch, or a later one: seconds since 1970."""
        return int(time.time())

    def new_epoch(self, checkpoint_id: str) -> int:
        """Claim to lead with a new checkpoint, and return its epoch."""
        return self.leadership.claim_new(checkpoint_id, self.earliest_epoch())

    def accept(self, checkpoint: Checkpoint) -> None:  # noqa: B027 (nothing by default)
        """Compare the note of an existing checkpoint with the settings.

        Raises:
            ConfigError: the job can't continue from it.
        """

    def before_batch(
        self, folder: CheckpointFolder
    ) -> Callable[[DataFrame, int], Mapping[str, bytes]]:
        """A function to be called with each batch and its seq before it runs, which returns inputs
        for all shards (``hand_inputs``); none by default.

        Called within ``beside``.
        """
        return lambda *_: {}

    def beside(self, lines: JobLines) -> AbstractContextManager[None]:
        """A context that runs a task beside the query (copying groups); by default none."""
        return nullcontext()


def prepare(spec: JobSpec) -> Transport:
    """Check everything that can be checked without Spark: settings, topics, tables.

    Raises:
        QuotaplaneError: what is wrong; nothing was started.
    """
    spec.check()
    transport = spec.open_transport()
    for warning in transport.check(spec.max_message_bytes):
        warn(warning)
    if spec.settings.cluster is None:  # else quotas are copied from the cluster, which has them
        refuse_lost_groups(spec.settings.history)
    ensure_tables(spec.settings.history, say=inform)
    return transport


class StreamJob(RunningQuery):
    """A running job, which closes ``transport`` (from ``prepare``) when it stops.

    Args:
        spark: the session.
        spec: the kind of job.
        transport: from ``prepare``.
        skip_batch: the batch to commit without its input.
        skip_backlog_first: the query may begin with one batch that skips messages too old to use.
        lines: prints the job's lines; None: no output.
        traces: makes the spans of rounds; None: no spans.
    """

    def __init__(
        self,
        spark: SparkSession,
        spec: JobSpec,
        transport: Transport,
        skip_batch: int | None = None,
        *,
        skip_backlog_first: bool = False,
        lines: JobLines | None = None,
        traces: RoundTraces | None = None,
    ) -> None:
        settings, lines = spec.settings, lines or JobLines.silent(spec.status())
        lines.status.waits_for("checkpoint")
        folder = CheckpointFolder(spark, spec.checkpoint)
        checkpoint = folder.open(settings.shards, spec.new_epoch, spec.checkpoint_note)
        spec.accept(checkpoint)
        spec.leadership.claim(checkpoint.id, checkpoint.epoch)
        self.epoch = checkpoint.epoch
        lines.status.set_gauge("epoch", self.epoch)
        self.folders = _local_folders(history=settings.history.path, checkpoint=spec.checkpoint)
        history = HistoryWriter(settings.history, checkpoint.id, spec.tables, spec.last_table)
        # The history is written before messages are published, so no later round than its last one
        # can have published messages.
        attempts = open_attempts(folder, spec.name, skip_batch, history.last_seq())
        super().__init__(attempts, history, transport, lines=lines)
        self.still_leads = spec.leadership.check
        alone = None
        if attempts.to_skip is not None:
            alone = _skipped(spec, folder, self.epoch, attempts.to_skip)
        elif skip_backlog_first:
            alone = _skipped_backlog(spec, folder, self.epoch, transport)
        lines.status.waits_for("first_round")
        set_options(spark, spec)
        without_input = alone is not None and alone.without_input
        arriving = empty_source(spark) if without_input else transport.read_reports(spark)
        events = spec.inputs(spark, arriving)
        finisher = spec.finisher(folder)
        finisher.connect(history, transport)
        self.start(
            operate(
                events,
                spec.program(self.epoch),
                settings.shards,
                _task_files(spark, spec, self.epoch),
            ),
            BatchSink(
                finisher,
                history,
                transport,
                folder.now_ms,
                self.epoch,
                lines,
                traces,
                still_leads=spec.leadership.check,
                before=_before(spec, folder),
                sync_input=folder.sync,
            ),
            name=spec.query_name,
            interval_s=settings.trigger.interval_s,
            alone=alone,
            ready=_ready(spark, spec, self.epoch),
        )


def set_options(spark: SparkSession, spec: JobSpec) -> None:
    """Set the session's options for the job's query."""
    # A checkpoint fixes the number of shuffle partitions with its first batch.
    spark.conf.set("spark.sql.shuffle.partitions", spec.settings.shards)
    for key, value in _INTERPRETED.items():
        spark.conf.set(key, value)
    if local_folder(spec.checkpoint) is not None:
        moved = "" if spark.version.startswith("4.0.") else "checkpointing."
        package = f"org.apache.spark.sql.execution.streaming.{moved}"
        spark.conf.set(_CHECKPOINT_FILES, f"{package}{_WITHOUT_LINKS}")
    elif spark_uri(spec.checkpoint).startswith("s3a:"):
        jsc: Any = spark.sparkContext._jsc
        if jsc.hadoopConfiguration().getClassByNameOrNull(_OF_S3) is not None:
            spark.conf.set(_CHECKPOINT_FILES, _OF_S3)


def _task_files(spark: SparkSession, spec: JobSpec, epoch: int) -> TaskFiles:
    """Executors elsewhere write into a local history if they find the mark on their disk."""
    history = spec.settings.history
    elsewhere = is_remote(spark.sparkContext.master or "local")
    mark = leave_mark(history, spec.name) if elsewhere else None
    return TaskFiles(history, epoch, spec.tables_of_tasks, spec.least_bytes_of_tasks, mark)


def _before(spec: JobSpec, folder: CheckpointFolder) -> Callable[[DataFrame, int], None]:
    inputs_of = spec.before_batch(folder)

    def before(outputs: DataFrame, seq: int) -> None:
        refuse_damaged_groups(spec.settings.history, folder.positions, seq)
        hand_inputs(outputs.sparkSession.sparkContext, inputs_of(outputs, seq))

    return before


def _local_folders(**places: str) -> dict[str, str]:
    """Those of the places that are local folders, by name."""
    folders = {name: local_folder(place) for name, place in places.items()}
    return {name: str(folder) for name, folder in folders.items() if folder is not None}


def _skipped(spec: JobSpec, folder: CheckpointFolder, epoch: int, number: int) -> SingleBatch:
    """The batch to skip by request (``--skip-batch``), with one dead letter."""
    left_out = skipped_batch(number, folder.ranges(number), spec.inputs_noun)
    batch = Batch(0, number, folder.now_ms(number))
    return SingleBatch(number, spec.letters(epoch, batch, [left_out]), done=left_out.detail)


def _skipped_backlog(
    spec: JobSpec, folder: CheckpointFolder, epoch: int, transport: Transport
) -> SingleBatch | None:
    """The batch to run alone if there is a backlog to skip; None: there is none."""
    if spec.oldest_s is None:
        return None
    alone = skip_backlog(folder, transport, spec.oldest_s, spec.most_per_batch)
    if alone is None or not alone.without_input:
        return alone
    batch = Batch(0, alone.batch, folder.now_ms(alone.batch))
    outputs, done = spec.skipped_backlog(epoch, batch, folder.ranges(alone.batch))
    return alone._replace(letters=outputs, done=done)


def _ready(spark: SparkSession, spec: JobSpec, epoch: int) -> str:
    """Text of the ready line."""
    reads, follows, *others = spec.in_words()
    parts = (
        reads,
        follows,
        f"history {location(spec.settings.history.path)}",
        f"checkpoint {location(spec.checkpoint)}",
        *others,
        f"Spark UI {spark.sparkContext.uiWebUrl or 'off'}",
        f"epoch {epoch}",
    )
    return "; ".join(parts)
