"""Counts failed attempts at a micro-batch, across restarts, and lets an administrator skip one.

A batch whose input can't be processed fails at every start. After ``MOST_FAILURES`` failures the
job refuses to run it again and explains how to continue without its input (``--skip-batch``).

Spark writes a batch's offsets before it runs the batch, and a commit afterwards. A batch with
offsets but no commit therefore failed at least once; that first failure needs no file of ours. From
the second attempt on, ``attempts.json`` is written before the batch runs, because a JVM that is
killed or out of memory writes nothing afterwards.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from quotaplane.errors import ConfigError, FailedBatchError
from quotaplane.texts import first_few

if TYPE_CHECKING:
    from quotaplane.streams.checkpoint import CheckpointFolder

MOST_FAILURES: Final = 3
_NOTE: Final = "attempts.json"
KILLED: Final = "Spark's JVM is gone (killed, or out of memory)"
_MAX_REASON: Final = 300
_SHOWN_RANGES: Final = 10


@dataclass(frozen=True)
class _Note:
    """Content of ``attempts.json``."""

    batch: int
    failures: int = 0
    reason: str = KILLED
    """Why the last attempt failed, in one line."""
    skip: bool = False
    """An administrator decided to commit the batch without its input."""


class BatchAttempts:
    """Attempts at the batch that the checkpoint runs next; ``job`` is the job's name."""

    def __init__(self, folder: CheckpointFolder, job: str) -> None:
        self.checkpoint = folder.uri
        self._folder = folder
        self._job = job
        self._running: int | None = None
        batch = folder.unfinished_batch()
        self._first = None if batch is None else self._noted(batch) or _Note(batch, failures=1)
        self._ranges = [] if batch is None else [part.text for part in folder.ranges(batch)]

    @property
    def to_skip(self) -> int | None:
        """The batch to commit without its input; None if there is none."""
        return self._first.batch if self._first is not None and self._first.skip else None

    def skip(self, batch: int, last_written: int | None) -> None:
        """Commit a batch without its input, now or at a later start.

        The decision is written first: after a crash the batch must not run with its input, or
        brokers could get two different messages with one sequence number. For the same reason
        ``last_written``, the newest batch of which anything was published, can't be skipped.

        Raises:
            ConfigError: the batch is not the next to run, or was processed already.
        """
        first = self._first
        if first is None:
            wrong = "no batch is unfinished, so there is none to skip"
        elif first.batch != batch:
            wrong = f"the batch that runs next is {first.batch}"
        elif last_written is not None and last_written >= batch and not first.skip:
            wrong = "it was processed and only has to be committed; start without --skip-batch"
        else:
            self._first = replace(first, skip=True)
            self._write(self._first)
            return
        raise ConfigError(f"--skip-batch {batch}: checkpoint {self._folder.path}: {wrong}")

    def check(self) -> None:
        """Refuse to run a batch that failed too often.

        Raises:
            FailedBatchError: the batch failed ``MOST_FAILURES`` times.
        """
        if self._first is not None and self._first.failures >= MOST_FAILURES:
            raise self._refusal(self._first)

    def begin(self, batch: int) -> None:
        """Record an attempt; call this before the batch runs."""
        self._running = batch
        first = self._first
        if first is not None and first.batch == batch and not first.skip:
            self._first = replace(first, failures=first.failures + 1, reason=KILLED)
            self._write(self._first)

    def failed(self, reason: str) -> FailedBatchError | None:
        """Record why the running batch failed; an error if it failed too often, else None."""
        first = self._first
        if first is None or first.batch != self._running or first.skip:
            return None
        self._first = replace(first, reason=" ".join(reason.split())[:_MAX_REASON])
        with suppress(Py4JError, OSError):  # the JVM may be gone
            self._write(self._first)
        return self._refusal(self._first) if first.failures >= MOST_FAILURES else None

    def outlook(self) -> str:
        """A text about what the next start will do, after the running batch failed."""
        first = self._first
        if first is None or first.batch != self._running:
            return "after a restart the job continues where it stopped"
        if first.skip:
            return f"after a restart the job skips batch {first.batch}"
        return (
            f"batch {first.batch}, which reads {first_few(self._ranges, _SHOWN_RANGES)}, failed "
            f"{first.failures} times; after {MOST_FAILURES} failures the job does not run it again"
        )

    def excuse(self) -> None:
        """Do not count this attempt: the batch did not cause the job's end."""
        with suppress(Py4JError, OSError):  # the JVM may be gone
            batch = self._folder.unfinished_batch()
            if batch is None:
                return
            first = self._first
            if first is None or first.batch != batch:
                self._write(_Note(batch))
            elif self._running == batch and not first.skip:
                try:
                    self._write(replace(first, failures=first.failures - 1))
                except (Py4JError, OSError):
                    # On a full disk; to count one failure needs no file.
                    self._folder.delete(_NOTE)

    def _refusal(self, attempts: _Note) -> FailedBatchError:
        path = self._folder.path
        return FailedBatchError(
            f"checkpoint {path}: batch {attempts.batch} failed {attempts.failures} times and is "
            f"not run again; it reads {first_few(self._ranges, _SHOWN_RANGES)}; last failure: "
            f"{attempts.reason}. To continue without its reports: ./spark-submit.sh "
            f"{self._job} --conf FILE --skip-batch {attempts.batch}; to retry it with more "
            f"memory or another version: delete {path}/{_NOTE}"
        )

    def _noted(self, batch: int) -> _Note | None:
        """The file's content if it is about ``batch``, else None."""
        text = self._folder.read(_NOTE)
        try:
            note = None if text is None else _Note(**json.loads(text))
        except (ValueError, TypeError):
            raise ConfigError(
                f"checkpoint {self._folder.path}: {_NOTE} can't be read; delete it"
            ) from None
        return note if note is not None and note.batch == batch else None

    def _write(self, attempts: _Note) -> None:
        self._folder.write(_NOTE, json.dumps(asdict(attempts)))


def open_attempts(
    folder: CheckpointFolder, job: str, skip_batch: int | None, last_written: int | None = None
) -> BatchAttempts:
    """The attempts of a job that starts now.

    Args:
    folder: the job's checkpoint.
    job: the job's name in commands.
    skip_batch: the batch that the administrator wants to skip.
    last_written: the newest batch of which anything was published.

    Raises:
    ConfigError: the batch can't be skipped.
    FailedBatchError: the next batch failed too often.
    """
    attempts = BatchAttempts(folder, job)
    if skip_batch is not None:
        attempts.skip(skip_batch, last_written)
    if attempts.to_skip is None:
        attempts.check()
    return attempts
