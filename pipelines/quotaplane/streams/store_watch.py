"""A job whose history's store is away: it waits, and says so.

Spark and the deltalake package ask again without a word.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from deltalake import DeltaTable
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.fs import DeltaStorageHandler
from pydantic import SecretStr

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import STORE
from quotaplane.deltalog.error_text import REFUSED_KEYS, with_advice
from quotaplane.errors import ConfigError, DeposedError, HistoryError
from quotaplane.history.store import storage_options, table_uri
from quotaplane.history.tables import ROUNDS
from quotaplane.parsing.folders import local_folder
from quotaplane.settings import History

_PATIENT: Final = {
    "max_retries": "200",
    "retry_timeout": "300s",
    "backoff_config.max_backoff": "2s",  # so it goes on soon after the store is back
}
_PAUSE_S: Final = 2.0
_ONE_TRY: Final = {"max_retries": "0", "timeout": "5s", "connect_timeout": "5s"}


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


@contextmanager
def watched_store(
    history: History,
    conditions: Conditions,
    *,
    ask: Callable[[History], None] = ask_store,
    every_s: float = 5.0,
) -> Iterator[None]:
    """Ask the store within this context, one request each ``every_s``; never a local disk."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(every_s):
            try:
                ask(history)
            except HistoryError as error:
                conditions.note(STORE, "", error)
            else:
                conditions.note(STORE, "", None)

    watcher = threading.Thread(target=watch, name="store-watch", daemon=True)
    if local_folder(history.path) is None:
        watcher.start()
    try:
        yield
    finally:
        ended.set()


@contextmanager
def outlasting(
    history: History,
    say: Callable[[str], None],
    *,
    read: Callable[[History], None] = read_store,
    pause: Callable[[float], object] = time.sleep,
    at_most_s: float = 300.0,
) -> Iterator[None]:
    """Let a failure in this context come only when the store can be read again.

    The next start would fail as well, within seconds, and YARN starts a job only a few times.
    """
    try:
        yield
    except (ConfigError, DeposedError):
        raise
    except Exception:
        if local_folder(history.path) is None:
            _wait_until_read(history, say, read, pause, at_most_s)
        raise


def _wait_until_read(
    history: History,
    say: Callable[[str], None],
    read: Callable[[History], None],
    pause: Callable[[float], object],
    at_most_s: float,
) -> None:
    for attempt in range(round(at_most_s / _PAUSE_S)):
        try:
            read(history)
        except HistoryError as error:
            if REFUSED_KEYS in str(error):
                return
            if not attempt:
                say(f"{error}; this process ends when it can be read, or after {at_most_s:g} s")
        else:
            return
        pause(_PAUSE_S)
