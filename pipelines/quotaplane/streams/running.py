"""What all streaming jobs have in common: how they end, on request or by a failure."""

from __future__ import annotations

import re
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Protocol

from py4j.protocol import Py4JNetworkError

from quotaplane import errors
from quotaplane.errors import QuotaplaneError, TransportError

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

    def __init__(self, *beside: Closable) -> None:
        self._beside = beside
        self._failure: QuotaplaneError | None = None

    def guarded(self, sink: Callable[[DataFrame, int], None]) -> Callable[[DataFrame, int], None]:
        """For ``foreachBatch``: keeps what the sink raises, for ``wait``."""

        def end_batch(outputs: DataFrame, seq: int) -> None:
            try:
                sink(outputs, seq)
            except QuotaplaneError as error:
                self._failure = error  # Spark would only pass its text on, in a Java exception
                raise

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


def run_until_stopped(job: StreamingJob) -> None:
    """Let a job run until SIGTERM or Ctrl-C, which let the batch at hand end.

    Raises:
        QuotaplaneError: what made it fail, or that its JVM is gone.
    """
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
