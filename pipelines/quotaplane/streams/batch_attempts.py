"""How often the batch failed that a checkpoint stands at, counted over restarts.

A batch whose input can't be processed fails at every start. After ``MOST_FAILURES`` the job refuses
to run it again, and says how to go on without its reports (``--skip-batch``).

Spark writes a batch's offsets before it runs it and a commit after it. So a batch with offsets and
without a commit was begun and did not end: that is the first failure, which needs no note. From the
second attempt on the note ``attempts.json`` is written before the batch runs, since a JVM that is
out of memory, or killed, writes nothing afterwards.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError

from quotaplane.errors import ConfigError, FailedBatchError

if TYPE_CHECKING:
    from quotaplane.streams.checkpoint import CheckpointFolder

MOST_FAILURES: Final = 3
_NOTE: Final = "attempts.json"
KILLED: Final = "Spark's JVM is gone (killed, or out of memory)"
_MAX_REASON: Final = 300
_SHOWN_RANGES: Final = 10


@dataclass(frozen=True)
class _Note:
    """What is known of a batch: ``reason`` is that of its last failure, in one line."""

    batch: int
    failures: int = 0
    reason: str = KILLED
    skip: bool = False
    """An operator decided that it is committed without its reports."""


class BatchAttempts:
    """The attempts at the batch that a checkpoint stands at; ``job`` is the job's name."""

    def __init__(self, folder: CheckpointFolder, job: str) -> None:
        self.checkpoint = folder.path
        self._folder = folder
        self._job = job
        self._running: int | None = None
        batch = folder.unfinished_batch()
        self._first = None if batch is None else self._noted(batch) or _Note(batch, failures=1)
        self._ranges = [] if batch is None else [part.text for part in folder.ranges(batch)]

    @property
    def to_skip(self) -> int | None:
        """The batch that is to be committed without its reports; None if none is."""
        return self._first.batch if self._first is not None and self._first.skip else None

    def skip(self, batch: int, last_written: int | None) -> None:
        """Decide that a batch is committed without its reports, by this start or a later one.

        It is noted before it is done. Were the batch to run with its reports after a crash, or did
        it before, brokers could be told two things under one number: ``last_written``, the newest
        batch of which anything was published, is not skipped.

        Raises:
            ConfigError: it is not the batch that would run next, or was processed.
        """
        first = self._first
        if first is None:
            wrong = "no batch was begun and not ended, so there is none to skip"
        elif first.batch != batch:
            wrong = f"the batch that runs next is {first.batch}"
        elif last_written is not None and last_written >= batch and not first.skip:
            wrong = "it was processed and only has to be committed; start without this option"
        else:
            self._first = replace(first, skip=True)
            self._write(self._first)
            return
        raise ConfigError(f"--skip-batch {batch}: checkpoint {self._folder.path}: {wrong}")

    def check(self) -> None:
        """Return if the batch may be run.

        Raises:
            FailedBatchError: it failed too often.
        """
        if self._first is not None and self._first.failures >= MOST_FAILURES:
            raise self._refusal(self._first)

    def begin(self, batch: int) -> None:
        """Note that a batch is run now; to be called before it is."""
        self._running = batch
        first = self._first
        if first is not None and first.batch == batch and not first.skip:
            self._first = replace(first, failures=first.failures + 1, reason=KILLED)
            self._write(self._first)

    def failed(self, reason: str) -> FailedBatchError | None:
        """Note why the batch at hand failed, if it did before; an error if it did too often."""
        first = self._first
        if first is None or first.batch != self._running or first.skip:
            return None
        self._first = replace(first, reason=" ".join(reason.split())[:_MAX_REASON])
        with suppress(Py4JError, OSError):  # the JVM may be gone
            self._write(self._first)
        return self._refusal(self._first) if first.failures >= MOST_FAILURES else None

    def outlook(self) -> str:
        """What another start would do after the batch at hand failed."""
        first = self._first
        if first is None or first.batch != self._running:
            return "started again, the job goes on where it was"
        if first.skip:
            return f"started again, the job goes on to skip batch {first.batch}"
        return (
            f"batch {first.batch}, which reads {_shown(self._ranges)}, failed {first.failures} "
            f"times; after {MOST_FAILURES} failures the job does not run it again"
        )

    def excuse(self) -> None:
        """Do not count this attempt: the job ends for a reason that is not the batch's."""
        with suppress(Py4JError, OSError):  # the JVM may be gone
            batch = self._folder.unfinished_batch()
            if batch is None:
                return
            first = self._first
            if first is None or first.batch != batch:
                self._write(_Note(batch))
            elif self._running == batch and not first.skip:
                self._write(replace(first, failures=first.failures - 1))

    def _refusal(self, attempts: _Note) -> FailedBatchError:
        path = self._folder.path
        return FailedBatchError(
            f"checkpoint {path}: batch {attempts.batch} failed {attempts.failures} times and is "
            f"not run again; it reads {_shown(self._ranges)}; the last failure: {attempts.reason}. "
            "To go on without its reports: ./spark-submit.sh "
            f"{self._job} --conf FILE --skip-batch {attempts.batch}; to try it again with more "
            f"memory or another version: delete {path}/{_NOTE}"
        )

    def _noted(self, batch: int) -> _Note | None:
        """The note, if there is one of this batch."""
        text = self._folder.read(_NOTE)
        try:
            found = None if text is None else _Note(**json.loads(text))
        except (ValueError, TypeError):
            raise ConfigError(
                f"checkpoint {self._folder.path}: {_NOTE} can't be read; delete it"
            ) from None
        return found if found is not None and found.batch == batch else None

    def _write(self, attempts: _Note) -> None:
        self._folder.write(_NOTE, json.dumps(asdict(attempts)))


def _shown(ranges: list[str]) -> str:
    more = len(ranges) - _SHOWN_RANGES
    return ", ".join(ranges[:_SHOWN_RANGES]) + (f" and {more} more" if more > 0 else "")


def open_attempts(
    folder: CheckpointFolder, job: str, skip_batch: int | None, last_written: int | None = None
) -> BatchAttempts:
    """The attempts of a job that starts now, with what its operator decided.

    Raises:
        ConfigError: the batch can't be skipped.
        FailedBatchError: the batch that runs next failed too often.
    """
    attempts = BatchAttempts(folder, job)
    if skip_batch is not None:
        attempts.skip(skip_batch, last_written)
    if attempts.to_skip is None:
        attempts.check()
    return attempts
