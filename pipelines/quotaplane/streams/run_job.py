"""The life of a job's process: it starts Spark, perhaps stands by, and runs the query."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import TYPE_CHECKING

from quotaplane.errors import ConfigError, DeposedError, SucceededError
from quotaplane.metrics.traces import RoundTraces, round_traces
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.job import JobSpec, StreamJob, prepare
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.job_output import own_signal_handlers, speaking
from quotaplane.streams.job_places import JobPlaces
from quotaplane.streams.lifecycle import run_until_stopped
from quotaplane.streams.rehearsal import rehearse
from quotaplane.streams.spark_log import SparkLog
from quotaplane.streams.standby import beating, wait_for_leadership
from quotaplane.streams.status import JobStatus
from quotaplane.transport.base import Transport

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_stream_job(
    spec: JobSpec,
    session: Callable[[SparkLog], SparkSession],
    skip_batch: int | None = None,
    *,
    standby: bool = False,
) -> None:
    """Run a job until it is stopped (see ``lifecycle.run_until_stopped``).

    ``standby``: if another process leads, wait until it is dead, with all that takes time done.

    Raises:
        SucceededError: a job with ``standby`` was deposed.
        QuotaplaneError: why the job failed.
    """
    status = spec.status()
    lines = JobLines(status)
    places = JobPlaces(spec.settings.history, spec.checkpoint, lines)
    with ExitStack() as held, round_traces(spec.settings.tracing, spec.name) as traces:
        is_served = served(held, spec, lines, standby=standby)
        places.wait()
        transport = prepare(spec)
        # ``beside`` is first, as it can fail within seconds (access rights in the cluster) with a
        # one-line message; a standby must not do it, as it writes. The log files of all jobs share
        # one folder and have different names.
        with (
            nullcontext() if standby else spec.beside(lines),
            speaking(spec.name, spec.settings.checkpoint, lines) as (log, end_if_asked),
            places.watched(),
        ):
            with places.outlasting():
                status.waits_for("spark")
                with own_signal_handlers():
                    spark = session(log)
                    places.connect(spark)
                end_if_asked()
                folder = CheckpointFolder(spark, spec.checkpoint)
                if standby:
                    _stand_by(spark, spec, folder, lines, end_if_asked)
                    is_served = is_served or served(held, spec, lines, standby=True)
            try:
                with beating(folder), spec.beside(lines) if standby else nullcontext():
                    job = _Starts(spark, spec, transport, lines, traces, end_if_asked)
                    lines.end(run_until_stopped(job.start, skip_batch, places.outlast))
            except DeposedError as error:
                raise (SucceededError(str(error)) if standby else error) from None


def _stand_by(
    spark: SparkSession,
    spec: JobSpec,
    folder: CheckpointFolder,
    lines: JobLines,
    end_if_asked: Callable[[], None],
) -> None:
    """Return once this process may lead."""
    lines.status.stands_by(True)

    def say(text: str) -> None:
        lines.say("standby", text)

    def pause(seconds: float) -> None:
        time.sleep(seconds)
        end_if_asked()

    def warm() -> None:
        rehearse(spark, spec, lines.warn)
        end_if_asked()
        say("warm: Spark is started and has rehearsed a round")

    wait_for_leadership(folder, pause=pause, say=say, meanwhile=warm)
    lines.say("standby", "no leader lives; this process leads now")
    lines.status.stands_by(False)


class _Starts:
    """Starts the query, as often as ``run_until_stopped`` asks for it."""

    def __init__(
        self,
        spark: SparkSession,
        spec: JobSpec,
        transport: Transport,
        lines: JobLines,
        traces: RoundTraces,
        end_if_asked: Callable[[], None],
    ) -> None:
        self._spark, self._spec, self._transport = spark, spec, transport
        self._lines, self._traces, self._end_if_asked = lines, traces, end_if_asked
        # At most two batches run alone: an unfinished one, and one that skips a backlog.
        self._may_skip = iter((True, True))

    def start(self, skip: int | None) -> StreamJob:
        """Start it; ``skip``: the batch to commit without its input."""
        job = StreamJob(
            self._spark,
            self._spec,
            self._transport,
            skip,
            skip_backlog_first=skip is None and next(self._may_skip, False),
            lines=self._lines,
            traces=self._traces,
        )
        job.reserve_of = self._spec.settings.history
        self._end_if_asked()
        return job


def served(held: ExitStack, spec: JobSpec, lines: JobLines, *, standby: bool) -> bool:
    """Serve the job's metrics until ``held`` ends; False if they can't be.

    Raises:
        ConfigError: the port can't be opened. A standby may have the leader's, and only warns.
    """
    try:
        held.enter_context(exposed(spec, lines.status))
    except ConfigError as error:
        if not standby:
            raise
        lines.warn(f"{error}; a standby serves them once it leads")
        return False
    return True


def exposed(spec: JobSpec, status: JobStatus) -> AbstractContextManager[object]:
    """A context in which Prometheus can read the job's metrics, if the settings have a port.

    Raises:
        ConfigError: the port can't be opened.
    """
    key = "job_port" if spec.name == "quota" else f"{spec.name}_port"
    port = getattr(spec.settings.metrics, key, None)
    if port is None:
        return nullcontext()
    from quotaplane.metrics.exposition import endpoint, registry_of  # needs prometheus-client

    registry = registry_of(spec.name, status.readings)
    host = spec.settings.metrics.host
    return endpoint(registry, host, port, f"metrics.{key}", status.start_waits_for)
