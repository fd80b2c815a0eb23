"""A job's places, its history and its checkpoint; on a store these may be away for a while.

Spark and the deltalake package ask a store again without a word, and give up in the end.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pydantic import SecretStr

from quotaplane.agents.known_conditions import STORE
from quotaplane.deltalog.error_text import REFUSED_KEYS, with_advice
from quotaplane.errors import ConfigError, DeposedError, HistoryError
from quotaplane.history.store import storage_options, table_uri
from quotaplane.history.tables import ROUNDS
from quotaplane.parsing.folders import local_folder
from quotaplane.settings import History
from quotaplane.streams.job_lines import JobLines
from quotaplane.streams.query_failures import text_of
from quotaplane.streams.stores import check_connectors, connect, warning_about_readers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_PATIENT: Final = {
    "max_retries": "200",
    "retry_timeout": "300s",
    "backoff_config.max_backoff": "2s",  # so it goes on soon after the store is back
}
_ONE_TRY: Final = {"max_retries": "0", "timeout": "5s", "connect_timeout": "5s"}
_PAUSE_S: Final = 1.0
_AT_MOST_S: Final = 300.0
_SIGNAL_WITHIN_S: Final = 0.2

_OF_STORES: Final = re.compile(
    r"Generic \w+ error"  # of the deltalake package
    r"|Call From \S+ to \S+ failed on|SafeModeException|StandbyException|BlockMissingException"
    r"|could only be written to 0 of the|All datanodes .* are bad"
    r"|AWSClientIOException|AWSServiceThrottledException|AWSStatus500Exception"
)
"""Texts of failures that may come shortly before a store can be read again, or only written."""


def patient(history: History) -> History:
    """The history for a program that goes on when its store was away for some minutes.

    The deltalake package would give up after some seconds, which suits commands.
    """
    if local_folder(history.path) is not None:
        return history
    options = {name: SecretStr(value) for name, value in _PATIENT.items()}
    return history.model_copy(update={"storage_options": {**options, **history.storage_options}})


def ask_store(history: History) -> None:
    """Ask a store once whether it is there, by one request.

    Raises:
        HistoryError: it is not, or refuses.
    """
    with _one_try(history) as options:
        DeltaStorageHandler(history.path, options).get_file_info(["quotaplane"])


def read_store(history: History) -> None:
    """Read the log of a table: a store may answer, and yet have lost the nodes with its bytes.

    Raises:
        HistoryError: it can't be read.
    """
    with _one_try(history) as options, suppress(TableNotFoundError):
        DeltaTable(table_uri(history, ROUNDS.name), storage_options=options)


@contextmanager
def _one_try(history: History) -> Iterator[dict[str, str]]:
    """Options with which a request is made once, and its errors as ours."""
    try:
        yield {**(storage_options(history) or {}), **_ONE_TRY}
    except (DeltaError, OSError) as error:
        raise HistoryError(f"history at {history.path}: {with_advice(error)}") from None


def _never() -> bool:
    return False


class JobPlaces:
    """The history and the checkpoint of a job. Nothing here waits for a local disk.

    Args:
        history: of the job.
        checkpoint: its folder.
        lines: the job's; they say when the store is away, and its rounds are counted there.
        ask: raises ``HistoryError`` if the store gives no answer.
        read: raises ``HistoryError`` if it can't be read.
        pause: lets so many seconds pass.
        clock: monotonic, in seconds.

    Raises:
        ConfigError: Spark will not find the connector of a store.
    """

    def __init__(
        self,
        history: History,
        checkpoint: str,
        lines: JobLines,
        *,
        ask: Callable[[History], None] = ask_store,
        read: Callable[[History], None] = read_store,
        pause: Callable[[float], object] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._history, self._lines = history, lines
        self._places = history.path, checkpoint
        check_connectors(self._places)
        self._ask, self._read, self._pause, self._clock = ask, read, pause, clock
        self._is_store = local_folder(history.path) is None
        self._waits = False
        self._lost: tuple[int, float] | None = None
        """The rounds done when the store was away first, and that time."""

    def connect(self, spark: SparkSession) -> None:
        """Let a session reach them, with the history's keys.

        Raises:
            ConfigError: a connector is missing.
        """
        connect(spark, self._history, self._places)
        readers = warning_about_readers(spark, self._history.path)
        if readers is not None:
            self._lines.warn(readers)

    @contextmanager
    def watched(self, every_s: float = 5.0) -> Iterator[None]:
        """Ask the store within this context, one request each ``every_s``."""
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(every_s):
                wrong = _wrong(self._ask, self._history)
                if not self._waits:  # else the store is read, which says more
                    self._lines.conditions.note(STORE, "", wrong)

        if self._is_store:
            threading.Thread(target=watch, name="store-watch", daemon=True).start()
        try:
            yield
        finally:
            ended.set()

    @contextmanager
    def outlasting(self) -> Iterator[None]:
        """Let a failure in this context come only when the store can be read again.

        A new process could not even be started before, and YARN starts a job only a few times.
        """
        try:
            yield
        except (ConfigError, DeposedError):
            raise
        except Exception:
            with suppress(HistoryError):
                self.wait()
            raise

    def wait(self, stopped: Callable[[], object] = _never) -> bool:
        """Wait until the store can be read, ``stopped()``, or the keys are refused.

        Returns whether it could not be read at first.

        Raises:
            HistoryError: it can't be read, and the job has done no round for five minutes, since
                that was so first.
        """
        if not self._is_store:
            return False
        was_away, wrong = False, self._answer(stopped)
        while wrong is not None and REFUSED_KEYS not in str(wrong):
            was_away = self._waits = True
            self._lines.conditions.note(STORE, "", wrong)
            self._end_if_in_vain(wrong)
            self._pause(_PAUSE_S)
            wrong = self._answer(stopped)
        self._waits = False
        if was_away and wrong is None and not stopped():
            self._lines.conditions.note(STORE, "", None)
        return was_away

    def outlast(self, error: Exception, stopped: Callable[[], object] = _never) -> bool:
        """Whether the store was the cause of a failure; then it can be read again on return.

        Raises:
            Exception: ``error``, as waiting is in vain (see ``wait``).
        """
        try:
            was_away = self.wait(stopped)
            if stopped() or not self._is_store:
                return was_away
            said = text_of(error)
            if not was_away and (not _OF_STORES.search(said) or REFUSED_KEYS in said):
                return False
            self._end_if_in_vain(error)
        except HistoryError:
            raise error from None
        if not was_away:  # it may be writable in a moment
            self._pause(_PAUSE_S)
        return True

    def _end_if_in_vain(self, error: Exception) -> None:
        rounds, now_s = self._lines.status.rounds, self._clock()
        if self._lost is None or self._lost[0] != rounds:
            self._lost = rounds, now_s
        elif now_s - self._lost[1] >= _AT_MOST_S:
            raise HistoryError(str(error))

    def _answer(self, stopped: Callable[[], object]) -> HistoryError | None:
        """Read it, in a thread: signals must be heard while a store is silent."""
        answers = list[HistoryError | None]()
        read, history = self._read, self._history
        reader = threading.Thread(target=lambda: answers.append(_wrong(read, history)), daemon=True)
        reader.start()
        while reader.is_alive() and not stopped():
            reader.join(_SIGNAL_WITHIN_S)
        return answers[0] if answers else None


def _wrong(ask: Callable[[History], None], history: History) -> HistoryError | None:
    try:
        ask(history)
    except HistoryError as error:
        return error
    return None
