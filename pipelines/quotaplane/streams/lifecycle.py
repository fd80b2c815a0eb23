"""What all streaming jobs have in common: what they say, and how they end."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Protocol

from py4j.protocol import Py4JError, Py4JJavaError

from quotaplane import errors
from quotaplane.errors import QuotaplaneError, TransportError
from quotaplane.streams.batch_attempts import KILLED, BatchAttempts
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.lone_batches import Alone
from quotaplane.streams.operator import OUTPUT_SCHEMA

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery


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
    if any(_BAD_RECORD in line for line in kafka):
        return None  # the batch's own failure, not the cluster's
    if kafka:
        return TransportError(f"reports topics: {kafka[-1].rpartition('.errors.')[2]}")
    if "KAFKA_DATA_LOSS" in text or "failOnDataLoss" in text:
        return TransportError(
            "reports topics: reports behind the checkpoint are gone (retention, or a topic made "
            "anew); set transport.fail_on_data_loss to false to go on without them"
        )
    return None


Sink = Callable[["DataFrame", int], None]
"""For ``foreachBatch``: is given a batch's outputs, whose reading runs the batch, and its id."""

_CAUSE: Final = re.compile(r"\b([\w.]+(?:Error|Exception): .+)$")
_MAX_LINE: Final = 1000

_BAD_RECORD: Final = "Received exception when fetching the next record"
"""What Kafka's client says of a record that it can't read, as of one with a broken checksum."""


def root_cause(text: str) -> str:
    r"""The line that says most, out of what Spark says about a failure.

    >>> root_cause("[STREAM_FAILED] Query terminated:\nTraceback:\nKeyError: 'a'\n\tat org.apache")
    "KeyError: 'a'"
    >>> root_cause("Job aborted: lost task 0.0: java.lang.OutOfMemoryError: heap\n\tat a")
    'java.lang.OutOfMemoryError: heap'
    >>> root_cause("[NO_SUCH] There is none.\n\tat java")
    '[NO_SUCH] There is none.'
    """
    lines = [line[:_MAX_LINE] for line in text.splitlines()]
    found = [match[1] for line in lines if (match := _CAUSE.search(line))]
    return found[-1] if found else next((line for line in lines if line.strip()), "no message")


class Closable(Protocol):
    """What is open beside the query."""

    def close(self) -> None:
        """Let go of it; nothing is left unwritten."""


class RunningQuery:
    """A running query, which its class starts."""

    query: StreamingQuery
    alone: Alone | None = None
    """The one batch that the query runs before it ends by itself; None: it goes on."""

    def __init__(self, attempts: BatchAttempts, *beside: Closable, lines: JobLines) -> None:
        self.attempts = attempts
        self.lines = lines
        self._beside = beside
        self._failure: QuotaplaneError | None = None

    def start(
        self,
        outputs: DataFrame,
        sink: Sink,
        *,
        name: str,
        interval_s: float,
        alone: Alone | None,
        ready: str,
    ) -> None:
        """Start the query; where ``alone`` is without input, so are the ``outputs``.

        ``ready``: what is said at its first batch, unless that runs alone.
        """
        self.alone = alone
        writer = outputs.writeStream.queryName(name)
        writer = writer.option("checkpointLocation", self.attempts.checkpoint)
        if alone is None:
            writer = writer.trigger(processingTime=f"{interval_s * 1000:.0f} milliseconds")
        else:
            # Runs the batch that was begun, with the input that Spark noted for it, and ends.
            writer = writer.trigger(once=True)
            sink = _of_batch(sink, alone)
        self.query = writer.foreachBatch(self._guarded(sink, ready)).start()

    def _guarded(self, sink: Sink, ready: str) -> Sink:
        """Notes and counts the attempt before the sink runs the batch, keeps what it raises."""
        unsaid = [] if self.alone else [ready]

        def end_batch(outputs: DataFrame, seq: int) -> None:
            self.lines.status.round_began(seq)
            while unsaid:
                self.lines.say("ready", f"{unsaid.pop()}; begins with round {seq}")
            self.attempts.begin(seq)
            try:
                sink(outputs, seq)
            except QuotaplaneError as error:
                self._failure = error  # Spark would only pass its text on, in a Java exception
                raise
            self.lines.status.round_ended()

        return end_batch

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

    def note_backlog(self) -> None:
        """Ask Spark how much its sources have not read yet, for the status line."""
        progress = self.query.lastProgress
        if progress is not None:
            with suppress(ValueError, TypeError, LookupError):  # no figure is worth the job's end
                self.lines.status.set_gauge("backlog", backlog_of(json.loads(progress.json)))

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
        for each in self._beside:
            each.close()


def backlog_of(progress: dict[str, Any]) -> int | None:
    """How many messages wait in the topics, where the source tells (Kafka does); else None.

    ``progress``: Spark's report of a micro-batch.

    >>> source = {"endOffset": {"reports": {"0": 5}}, "latestOffset": {"reports": {"0": 9, "1": 2}}}
    >>> backlog_of({"sources": [source, {"endOffset": {"version": 1}, "latestOffset": None}]})
    6
    """
    behind = [
        _messages_in(source["latestOffset"]) - _messages_in(source["endOffset"])
        for source in progress["sources"]
        if source["latestOffset"] is not None
    ]
    return sum(behind) if behind else None


def _messages_in(offset: object) -> int:
    """Kafka's offsets, ``{topic: {partition: offset}}``, added up; 0 for those of other sources."""
    topics = offset.values() if isinstance(offset, dict) else ()
    partitions = [topic for topic in topics if isinstance(topic, dict)]
    return sum(place for each in partitions for place in each.values() if isinstance(place, int))


def _of_batch(sink: Sink, alone: Alone) -> Sink:
    def end_batch(outputs: DataFrame, seq: int) -> None:
        if seq != alone.batch:
            raise RuntimeError(f"batch {seq} runs in place of batch {alone.batch}")
        letters = outputs.sparkSession.createDataFrame(list(alone.letters), OUTPUT_SCHEMA)
        sink(outputs.unionByName(letters), seq)

    return end_batch


def run_until_stopped(
    start: Callable[[int | None], RunningQuery], skip_batch: int | None = None
) -> str:
    """Let a job run until SIGTERM or Ctrl-C, which let the batch at hand end; says what ended it.

    ``start`` starts it, and is given the batch that an operator wants to skip. It is called again
    where what it started ran a batch alone.

    Raises:
        FailedBatchError: a batch failed, as it did before, and is not run again.
        QuotaplaneError: what else made the job fail, or that its JVM is gone.
    """
    signals: list[str] = []

    def stop(number: int, frame: FrameType | None) -> None:
        signals.append(signal.Signals(number).name)

    job = start(skip_batch)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    _run(job, signals)
    while job.alone is not None and not signals:
        if job.alone.done:
            job.lines.warn(job.alone.done)
        job = start(None)
        _run(job, signals)
    return f"stopped by {signals[0]}" if signals else "Spark ended the query"


def _run(job: RunningQuery, signals: list[str]) -> None:
    try:
        try:
            while not signals and not job.wait(timeout_s=0.5):
                job.note_backlog()
            if signals:
                job.lines.say("stopping", f"{signals[0]}; the round at hand may end")
        finally:
            job.stop()
    except QuotaplaneError:
        job.attempts.excuse()
        raise
    except Exception as error:
        # Who stops all processes at once (systemd, a shell's timeout) stops Spark under our feet.
        # Its batch is done again by the next start; what it says of that is no news.
        if not signals:
            raise _failure(job.attempts, error) from None
    job.attempts.excuse()


def _failure(attempts: BatchAttempts, error: Exception) -> Exception:
    """What is raised for an error that is not known to have its cause outside the batch."""
    jvm_is_gone = isinstance(error, (Py4JError, ConnectionError)) and not isinstance(
        error, Py4JJavaError
    )
    refusal = attempts.failed(KILLED if jvm_is_gone else root_cause(str(error)))
    if refusal is not None:
        return refusal
    if jvm_is_gone:
        return QuotaplaneError(f"{KILLED}; {attempts.outlook()}")
    return error
