"""Says that a history's store is away: Spark and the deltalake package ask again without a word."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import STORE
from quotaplane.errors import HistoryError
from quotaplane.history.store import ask_store
from quotaplane.parsing.folders import local_folder
from quotaplane.settings import History


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
