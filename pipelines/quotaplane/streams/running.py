"""What all streaming jobs have in common: what they say, and how they end."""

from __future__ import annotations

import json
import re
import signal
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Protocol

from py4j.protocol import Py4JNetworkError

from quotaplane import errors
from quotaplane.errors import QuotaplaneError, TransportError
from quotaplane.streams.job_lines import JobLines

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
    if kafka:
        return TransportError(f"reports topics: {kafka[-1].rpartition('.errors.')[2]}")
    if "KAFKA_DATA_LOSS" in text or "failOnDataLoss" in text:
        return TransportError(
            "reports topics: reports behind the checkpoint are gone (retention, or a topic made "
            "anew); set transport.fail_on_data_loss to false to go on without them"
        )
    return None


class Closable(Protocol):
    """What is open beside the query."""

    def close(self) -> None:
        """Let go of it; nothing is left unwritten."""


class StreamingJob:
    """A running query; its class starts ``query``, with ``guarded`` at its end."""

    query: StreamingQuery

    def __init__(self, *beside: Closable, lines: JobLines) -> None:
        self.lines = lines
        self._beside = beside
        self._failure: QuotaplaneError | None = None

    def guarded(
        self, sink: Callable[[DataFrame, int], None], ready: str
    ) -> Callable[[DataFrame, int], None]:
        """For ``foreachBatch``: says ``ready`` once, keeps what the sink raises."""
        said: list[str] = []

        def end_batch(outputs: DataFrame, seq: int) -> None:
            self.lines.status.round_began(seq)
            if not said:
                self.lines.say("ready", f"{ready}; begins with round {seq}")
                said.append(ready)
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


def run_until_stopped(job: StreamingJob) -> str:
    """Let a job run until SIGTERM or Ctrl-C, which let the batch at hand end; says what ended it.

    Raises:
        QuotaplaneError: what made it fail, or that its JVM is gone.
    """
    stopping = threading.Event()
    signals: list[str] = []

    def stop(number: int, frame: FrameType | None) -> None:
        signals.append(signal.Signals(number).name)
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    try:
        try:
            while not stopping.is_set() and not job.wait(timeout_s=0.5):
                job.note_backlog()
            if signals:
                job.lines.say("stopping", f"{signals[0]}; the round at hand may end")
        finally:
            job.stop()
    except QuotaplaneError:
        raise
    except Exception as error:
        # Who stops all processes at once (systemd, a shell's timeout) stops Spark under our feet.
        # Its batch is done again by the next start; what it says of that is no news.
        if stopping.is_set():
            return f"stopped by {signals[0]}"
        if isinstance(error, (Py4JNetworkError, ConnectionError)):
            raise QuotaplaneError(
                "Spark's JVM is gone (killed, or out of memory); started again, the job goes on "
                "where it was"
            ) from None
        raise
    return f"stopped by {signals[0]}" if signals else "Spark ended the query"
