"""The output of a running job: its own lines on stderr, Spark's log in a file, how it ended."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from quotaplane.errors import QuotaplaneError
from quotaplane.parsing.folders import location
from quotaplane.settings import DeltaTransport, KafkaTransport, TransportSettings
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.query_failures import known_failure, root_cause
from quotaplane.streams.spark_log import SparkLog, open_log


@contextmanager
def speaking(
    job: str, checkpoint: str, lines: JobLines
) -> Iterator[tuple[SparkLog, Callable[[], None]]]:
    """A context in which a job prints its lines and has a log for Spark's output.

    The second value ends the job if a signal asked for that and Python dropped the exception (see
    ``end_at_once_on_signals``); it is to be called after each step of the start.

    However the job ends, one line says why. The traceback of an unforeseen error goes to the log,
    and so does all output on ``sys.stderr`` until the process ends: PySpark's threads print
    tracebacks when the JVM dies, sometimes late.

    Raises:
        QuotaplaneError: why the job failed, in one line.
    """
    log = open_log(job, checkpoint, lines.conditions)
    log.take_python_logs()
    # Before the first line: whoever waits for it may interrupt the job at once.
    requests = end_at_once_on_signals()
    lines.start()
    lines.say("starting", f"the {job} job (process {os.getpid()}), Spark's log {log.place}")
    sys.stderr = log.as_text()

    def end_if_asked() -> None:
        if requests:
            raise requests[0]

    try:
        try:
            yield log, end_if_asked
        except Exception as error:
            # The JVM gets Ctrl-C as well: then Spark's complaint may be all that is left of it.
            if requests:
                raise requests[0] from error
            raise
    except QuotaplaneError as error:
        lines.end(f"failed with exit code {error.exit_code}, Spark's log {log.place}")
        raise
    except (KeyboardInterrupt, SystemExit) as request:
        name = "Ctrl-C" if isinstance(request, KeyboardInterrupt) else "SIGTERM"
        lines.end(f"{name} before the first round")
        raise
    except Exception as error:
        log.write(traceback.format_exc().encode(errors="replace"))
        failure = known_failure(str(error)) or QuotaplaneError(
            f"{type(error).__name__}: {root_cause(str(error))} (Spark's log {log.place})"
        )
        lines.end(f"failed with exit code {failure.exit_code}, Spark's log {log.place}")
        raise failure from None


@contextmanager
def own_signal_handlers() -> Iterator[None]:
    """A context in which PySpark can't replace our handler for Ctrl-C.

    PySpark installs one when it starts, and that one calls the JVM in the middle of other calls.
    """
    set_handler = signal.signal

    def unless_for_ctrl_c(number: int, handler: Any, /) -> Any:
        if number == signal.SIGINT and callable(handler):
            return signal.getsignal(number)
        return set_handler(number, handler)

    signal.signal = unless_for_ctrl_c  # type: ignore[assignment]
    try:
        yield
    finally:
        signal.signal = set_handler


def end_at_once_on_signals() -> list[BaseException]:
    """Let SIGTERM and Ctrl-C end the process; for the time before the job runs.

    Python drops an exception that a signal raises in a destructor or in a callback from C.

    Returns:
        The exceptions that signals have raised so far; it grows with each signal.
    """
    raised: list[BaseException] = []

    def end(number: int, frame: FrameType | None) -> None:
        raised.append(KeyboardInterrupt() if number == signal.SIGINT else SystemExit(0))
        raise raised[-1]

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end)
    return raised


def transport_in_words(transport: TransportSettings, incoming: Sequence[str], outgoing: str) -> str:
    """The topics that a job reads and writes, for the ready line."""
    if isinstance(transport, DeltaTransport):
        where = location(transport.path)
    elif isinstance(transport, KafkaTransport):
        where = f"Kafka at {transport.bootstrap_servers}"
    else:
        where = f"Pulsar at {transport.service_url}"
    return f"reads {', '.join(incoming)} and writes {outgoing} ({where})"
