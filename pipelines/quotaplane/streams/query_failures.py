"""Finds what Spark's message about a failed query says of the cause."""

from __future__ import annotations

import re
from typing import Final

from quotaplane import errors
from quotaplane.deltalog.error_text import DOCTOR, REFUSED_KEYS, disk_failure
from quotaplane.errors import HistoryError, QuotaplaneError, SlowPythonError, TransportError
from quotaplane.history.tables import TABLES

_CAUSE: Final = re.compile(r"\b([\w.]+(?:Error|Exception): .+)$")
_MAX_LINE: Final = 1000

_BAD_RECORD: Final = "Received exception when fetching the next record"
"""Kafka's client says this about a record that it can't read, e.g. with a wrong checksum."""

_SLOW_PYTHON: Final = "Python worker failed to connect back"
"""Spark says this if a Python process that it started for a source has not connected in 10 s."""

_LOST_TABLE: Final = re.compile(r"File (?:file:)?(\S+)/_delta_log(?:/\S+)? does not exist")

_LOST_FILE: Final = re.compile(
    r"reading file (?:file:(?://)?)?(.+?)/(?:[^/\s]+=[^/\s]*/|_change_data/|_delta_log/)*"
    r"([^/\s]+\.(?:parquet|json))\b"
)
"""A file of a table that is missing or damaged: the table's folder, and the file's name."""

_OF_S3: Final = re.compile(r"\b\w+Exception: (.*\bsoftware\.amazon\.awssdk\.\S+?Exception: .*)")
"""How Spark's connector says what Amazon's library says of a request."""
_KEYS_REFUSED: Final = re.compile(r"Status Code: 40[13]|ExpiredToken|InvalidToken")

_WITHOUT_PLACE: Final = (
    "[DELTA_SCHEMA_NOT_SET]",
    "[DELTA_TABLE_NOT_FOUND]",
    "[DELTA_PATH_DOES_NOT_EXIST]",
    "[PATH_NOT_FOUND]",
)
"""How messages begin about a table whose folder was moved away while a stream is set up."""


def known_failure(text: str) -> QuotaplaneError | None:
    r"""The known error in Spark's message about a failed query: ours or Kafka's; else None.

    >>> known_failure("in _round\nquotaplane.errors.HistoryError: no such table\n\tat org.")
    HistoryError('no such table')
    >>> known_failure("[STREAM_FAILED] File file:/h/resource_groups/_delta_log does not exist")
    HistoryError('history table resource_groups at /h/resource_groups: is missing; restore its
    folder, then start the job again')
    >>> known_failure("... while reading file file:/h/usage/date=2026-03-01/1.parquet. ...")
    HistoryError('history table usage at /h/usage: 1.parquet is missing or damaged; run `quotaplane
    doctor`, which says what is lost and how to mend it')
    >>> s3 = "getFileStatus on s3a://b/c: software.amazon.awssdk.services.s3.model.S3Exception: "
    >>> known_failure(f"a.AccessDeniedException: {s3}null (Service: S3, Status Code: 403)")
    HistoryError("Spark can't read or write its files on the store: the store refuses: see the keys
    in history.storage_options")
    >>> known_failure(f"a.AWSStatus500Exception: {s3}Fault (Service: S3, Status Code: 500)\n\tat x")
    HistoryError("Spark can't read or write its files on the store: Fault (Service: S3, Status Code:
    500)")
    >>> known_failure("[STREAM_FAILED] Query terminated: Python worker failed to connect back.")
    SlowPythonError('Spark waited 10 s in vain for a Python process to start: this host has too
    little processor time, or its Python environment is broken (see the log of Spark)')
    """
    ours = re.findall(r"^(?:.*: )?quotaplane\.errors\.(\w+): (.+)$", text, re.MULTILINE)
    if ours:
        kind, message = ours[-1]
        error_type: type[QuotaplaneError] = getattr(errors, kind, QuotaplaneError)
        return error_type(message)
    kafka = re.findall(r"(org\.apache\.kafka\.[\w.]+(?:Exception|Error): .+)", text)
    if any(_BAD_RECORD in line for line in kafka):
        return None  # caused by the batch, not by the cluster
    if kafka:
        return TransportError(f"reports topics: {kafka[-1].rpartition('.errors.')[2]}")
    if _SLOW_PYTHON in text:
        return SlowPythonError(
            "Spark waited 10 s in vain for a Python process to start: this host has too little "
            "processor time, or its Python environment is broken (see the log of Spark)"
        )
    if "KAFKA_DATA_LOSS" in text or "failOnDataLoss" in text:
        return TransportError(
            "reports topics: reports behind the checkpoint were deleted (retention, or a topic "
            "created again); to continue without them set transport.fail_on_data_loss to false"
        )
    lost = _LOST_TABLE.search(text)
    if lost is not None:
        return lost_table(lost[1])
    lost = _LOST_FILE.search(text)
    if lost is not None:
        return _of_table(lost[1], f"{lost[2]} is missing or damaged; {DOCTOR}")
    of_s3 = _OF_S3.search(text)
    if of_s3 is not None:  # so the batch is not blamed
        refused = _KEYS_REFUSED.search(of_s3[1])
        why = REFUSED_KEYS if refused else of_s3[1].rpartition("Exception: ")[2][:_MAX_LINE]
        return HistoryError(f"Spark can't read or write its files on the store: {why}")
    disk = disk_failure(text)
    if disk is not None:
        return HistoryError(f"Spark can't write its checkpoint or temporary files: {disk}")
    return None


def text_of(error: Exception) -> str:
    """The text of an error, and Spark's stack trace, which has the causes."""
    return f"{error}\n{getattr(error, '_stackTrace', '')}"


def root_cause(text: str) -> str:
    r"""The most telling line of Spark's message about a failure.

    >>> root_cause("[STREAM_FAILED] Query terminated:\nTraceback:\nKeyError: 'a'\n\tat org.apache")
    "KeyError: 'a'"
    >>> root_cause("Job aborted: lost task 0.0: java.lang.OutOfMemoryError: heap\n\tat a")
    'java.lang.OutOfMemoryError: heap'
    >>> root_cause("[NO_SUCH] There is none.\n\tat java")
    '[NO_SUCH] There is none.'
    """
    lines = [line[:_MAX_LINE] for line in text.splitlines()]
    causes = [match[1] for line in lines if (match := _CAUSE.search(line))]
    return causes[-1] if causes else next((line for line in lines if line.strip()), "no message")


def names_lost_table(text: str) -> bool:
    """Whether Spark's message is about a table that is not there, without saying which.

    >>> names_lost_table("[DELTA_SCHEMA_NOT_SET] Table schema is not set.")
    True
    """
    return text.startswith(_WITHOUT_PLACE)


def lost_table(place: str) -> QuotaplaneError:
    """The error for a table that was there, and is gone.

    >>> lost_table("/h/resource_groups").exit_code, lost_table("/topics/reports").exit_code
    (4, 3)
    """
    return _of_table(place, "is missing; restore its folder, then start the job again")


def _of_table(place: str, problem: str) -> QuotaplaneError:
    name = place.rpartition("/")[2]
    if name in TABLES:
        return HistoryError(f"history table {name} at {place}: {problem}")
    return TransportError(f"topic {name} at {place}: {problem}")
