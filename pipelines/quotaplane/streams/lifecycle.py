"""The life cycle of a streaming query: start, guard each batch, wait, stop."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Final, Protocol

from py4j.protocol import Py4JError, Py4JJavaError

from quotaplane.agents.clock_steps import ClockSteps, describe_step
from quotaplane.errors import DeposedError, QuotaplaneError, SlowPythonError
from quotaplane.history.disk_reserve import OF_JOBS, keep_reserves, release_reserve
from quotaplane.settings import History
from quotaplane.streams.batch_attempts import KILLED, BatchAttempts
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.operator import OUTPUT_SCHEMA
from quotaplane.streams.progress import note_disks, note_progress
from quotaplane.streams.query_failures import known_failure, root_cause, text_of
from quotaplane.streams.skipped_batches import SingleBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


Sink = Callable[["DataFrame", int], None]
"""The function for ``foreachBatch``: gets a batch's outputs (computed lazily) and its id."""


_PATIENT_S: Final = 2.0
"""If the clock was set back by less, Spark may wait for that time."""

_SLOW_STARTS: Final = 5
"""The job ends after so many slow starts of Python in a row."""


class Closable(Protocol):
    """Something that is open for as long as the query runs."""

    def close(self) -> None:
        """Write what is pending and release it."""


class RunningQuery:
    """A running query; subclasses start it."""

    query: StreamingQuery
    alone: SingleBatch | None = None
    """The one batch that the query runs before it ends; None: it runs until stopped."""
    begin_anew: bool = False
    """Start the query again, as Spark waits for a time that has passed already."""
    folders: Mapping[str, str] = {}
    """Local folders that the job writes, by their names in the metrics."""
    still_leads: Callable[[], None] = staticmethod(lambda: None)
    """Raises ``DeposedError`` if another process leads now."""
    reserve_of: History | None = None
    """The history beside which the job keeps a reserve for a full disk."""

    def __init__(self, attempts: BatchAttempts, *beside: Closable, lines: JobLines) -> None:
        self.attempts = attempts
        self.lines = lines
        self._beside = beside
        self._clock = ClockSteps()
        lines.status.count("clock_steps", 0)  # Prometheus sees no increase without a first value
        self._failure: QuotaplaneError | None = None

    def start(
        self,
        outputs: DataFrame,
        sink: Sink,
        *,
        name: str,
        interval_s: float,
        alone: SingleBatch | None,
        ready: str,
    ) -> None:
        """Start the query.

        Args:
            outputs: the operator's rows; without input if ``alone`` says so.
            sink: called with each batch's outputs.
            name: of the query, in Spark's UI.
            interval_s: of the trigger.
            alone: run only this batch, then end.
            ready: printed when the first batch begins, unless ``alone`` is given.
        """
        self.alone = alone
        writer = outputs.writeStream.queryName(name)
        writer = writer.option("checkpointLocation", self.attempts.checkpoint)
        if alone is None:
            writer = writer.trigger(processingTime=f"{interval_s * 1000:.0f} milliseconds")
        else:
            # Runs the unfinished batch on the offsets that Spark logged for it, then ends.
            writer = writer.trigger(once=True)
            sink = _of_batch(sink, alone)
        self.query = writer.foreachBatch(self._guarded(sink, ready)).start()

    def _guarded(self, sink: Sink, ready: str) -> Sink:
        """The sink, with attempts counted, the status kept, and its exception remembered."""
        ready_lines = [] if self.alone else [ready]

        def end_batch(outputs: DataFrame, seq: int) -> None:
            self.lines.status.round_began(seq)
            while ready_lines:
                self.lines.say("ready", f"{ready_lines.pop()}; begins with round {seq}")
            self.attempts.begin(seq)
            try:
                sink(outputs, seq)
            except QuotaplaneError as error:
                self._failure = error  # Spark keeps only its text, inside a Java exception
                raise
            if self.reserve_of is not None:
                keep_reserves(self.reserve_of)
            note_disks(self.lines.status, self.folders)
            self.lines.status.round_ended()

        return end_batch

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for the query to end; True if it did.

        Raises:
            QuotaplaneError: why it failed, if the cause is known; else Spark's own exception.
        """
        try:
            if timeout_s is None:
                self.query.awaitTermination()
                return True
            return bool(self.query.awaitTermination(timeout_s))  # type: ignore[arg-type]
        except Exception as error:
            known = self._failure or known_failure(text_of(error))
            if known is not None:
                raise known from None
            raise

    def note_progress(self) -> None:
        """Copy Spark's progress to the status."""
        progress = self.query.lastProgress
        if progress is not None:
            note_progress(self.lines.status, progress)

    def look_at_clock(self) -> None:
        """Print a warning if this host's clock was set.

        Spark begins the next micro-batch at a time of the wall clock. If that was set back, Spark
        would wait for as long; a query that starts anew does not.
        """
        step_s = self._clock.check()
        if not step_s:
            return
        self.lines.status.count("clock_steps")
        self.begin_anew = self.alone is None and step_s < -_PATIENT_S
        then = (
            "Spark would wait for the time it was before, so the query starts again"
            if self.begin_anew
            else "reports are compared with the new time"
        )
        self.lines.warn(f"{describe_step(step_s)}: {then}. Check that NTP runs on this host")

    def _last_batch(self) -> int | None:
        progress = self.query.lastProgress
        return None if progress is None else int(progress["batchId"])

    def stop(self, patience_s: float = 30.0) -> None:
        """Stop between two batches if possible, so that no work is repeated."""
        pause, begun = threading.Event(), self._last_batch()
        for _ in range(int(patience_s / 0.02)):
            if not self.query.isActive or not self.query.status["isTriggerActive"]:
                break
            if self._last_batch() != begun:  # a busy job never pauses; a batch just ended
                break
            pause.wait(0.02)
        self.query.stop()
        for resource in self._beside:
            resource.close()


def _of_batch(sink: Sink, alone: SingleBatch) -> Sink:
    def end_batch(outputs: DataFrame, seq: int) -> None:
        if seq != alone.batch:
            raise RuntimeError(f"batch {seq} runs in place of batch {alone.batch}")
        rows = [(letter.kind, letter.payload) for letter in alone.letters]
        letters = outputs.sparkSession.createDataFrame(rows, OUTPUT_SCHEMA)
        sink(outputs.unionByName(letters), seq)

    return end_batch


Outlast = Callable[[Exception, Callable[[], object]], bool]
"""Gets a failure, and whether the job is to end; see ``JobPlaces.outlast``."""


def _nothing_to_outlast(error: Exception, stopped: Callable[[], object]) -> bool:
    return False


def run_until_stopped(
    start: Callable[[int | None], RunningQuery],
    skip_batch: int | None = None,
    outlast: Outlast = _nothing_to_outlast,
) -> str:
    """Run a job until SIGTERM or Ctrl-C, after which the current batch may end; returns why it
    ended.

    ``start`` starts the job; its argument is the batch that is to be skipped, or None. It is called
    again after each batch that ran alone, when this host's clock was set back, when a full disk
    ended it but had a reserve, when Python started too slowly for Spark, and when ``outlast`` says
    that the store of the history or checkpoint was away.

    Raises:
        FailedBatchError: a batch failed too often and is not run again.
        QuotaplaneError: any other known failure, or the JVM died.
    """
    signals: list[str] = []

    def stop(number: int, frame: FrameType | None) -> None:
        if not signals:
            # At once: YARN kills a job a quarter of a second later, and this is its last line then.
            job.lines.say(
                "stopping",
                f"{signal.Signals(number).name}; waiting for the current round to end "
                "(if the job is killed before, the next start runs it again)",
            )
        signals.append(signal.Signals(number).name)

    def stopped() -> bool:
        return bool(signals)

    slow_starts = 0
    job = start(skip_batch)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    while True:
        try:
            if not _run(job, stopped, outlast) or stopped():
                break
            slow_starts = 0
        except SlowPythonError as error:
            slow_starts += 1
            # The next start of this process may not let a noted batch run alone, unread: a new
            # process does.
            if stopped() or job.alone is not None or slow_starts == _SLOW_STARTS:
                raise
            job.lines.warn(f"{error}; the query starts again")
        except QuotaplaneError as error:
            history = job.reserve_of
            if stopped() or history is None:
                raise
            if not release_reserve(history, OF_JOBS, error, job.lines.warn):
                raise
        again = _started_again(start, stopped, outlast)
        if again is None:
            break
        job = again
    return f"stopped by {signals[0]}" if signals else "Spark ended the query"


def _started_again(
    start: Callable[[int | None], RunningQuery], stopped: Callable[[], bool], outlast: Outlast
) -> RunningQuery | None:
    """The query, started; None: the job was stopped meanwhile."""
    while not stopped():
        try:
            return start(None)
        except DeposedError:
            raise
        except Exception as error:
            if not outlast(error, stopped):
                raise
    return None


def _run(job: RunningQuery, stopped: Callable[[], bool], outlast: Outlast) -> bool:
    """Run a query until it ends or the job is stopped; True: it is to start again."""
    try:
        try:
            while not (stopped() or job.begin_anew) and not job.wait(timeout_s=0.5):
                job.note_progress()
                job.look_at_clock()
        finally:
            job.stop()
    except DeposedError:
        raise  # the checkpoint may be the other process's by now: write nothing there
    except Exception as error:
        # First, as all that follows uses the store.
        was_away = not _jvm_is_gone(error) and outlast(error, stopped)
        if was_away and stopped():
            return False
        # Spark also fails if another process wrote into the checkpoint: then that is the cause.
        _end_if_deposed(job)
        if isinstance(error, QuotaplaneError) or was_away:
            job.attempts.excuse()
            if was_away and job.alone is None:  # else as with Python's slow starts
                job.lines.warn(f"{root_cause(text_of(error))}; the query starts again")
                return True
            raise
        # A signal to the whole process group (systemd, a shell's timeout) also stops Spark. The
        # next start runs its batch again, so Spark's complaint is no error.
        if not stopped():
            raise _failure(job.attempts, error) from None
    job.attempts.excuse()
    if job.alone is not None and job.alone.done and not stopped():
        job.lines.warn(job.alone.done)
    return job.alone is not None or job.begin_anew


def _end_if_deposed(job: RunningQuery) -> None:
    try:
        job.still_leads()
    except DeposedError:
        raise
    except QuotaplaneError:
        return  # that the history can't be read now is not why the job fails


def _jvm_is_gone(error: Exception) -> bool:
    return isinstance(error, (Py4JError, ConnectionError)) and not isinstance(error, Py4JJavaError)


def _failure(attempts: BatchAttempts, error: Exception) -> Exception:
    """The exception to raise for an error that may be caused by the batch."""
    jvm_is_gone = _jvm_is_gone(error)
    refusal = attempts.failed(KILLED if jvm_is_gone else root_cause(str(error)))
    if refusal is not None:
        return refusal
    if jvm_is_gone:
        return QuotaplaneError(f"{KILLED}; {attempts.outlook()}")
    return error
