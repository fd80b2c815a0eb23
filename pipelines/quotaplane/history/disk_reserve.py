"""Reserves of disk space beside the history's tables, one for jobs and one for commands.

There are two, so that a job on a full disk does not use up the space that a command needs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeVar

from quotaplane.console.terminal import warn
from quotaplane.deltalog.error_text import is_full
from quotaplane.deltalog.log import local_folder
from quotaplane.deltalog.reserve import Reserve
from quotaplane.errors import QuotaplaneError
from quotaplane.history.store import location_of
from quotaplane.settings import History

OF_JOBS: Final = ".reserve-of-jobs"
OF_COMMANDS: Final = ".reserve-of-commands"
_Done = TypeVar("_Done")


def keep_reserves(history: History) -> None:
    """Create missing reserve files if there is room; takes microseconds if they exist."""
    folder = local_folder(history.path)
    if folder is not None:
        for name in (OF_JOBS, OF_COMMANDS):
            Reserve(folder, name).keep(int(history.reserve_mb * 1_000_000 / 2))


def release_reserve(
    history: History, name: str, error: BaseException, say: Callable[[str], None] = warn
) -> bool:
    """Free a reserve if a full disk caused an error; returns whether that made room.

    ``say`` prints a line about it.
    """
    folder = local_folder(history.path)
    if folder is None or not is_full(error):
        return False
    size_bytes = Reserve(folder, name).release()
    if size_bytes:
        say(
            f"history at {location_of(history)}: the disk is full; its reserve of "
            f"{size_bytes / 1_000_000:g} MB was given up, which is soon used up: free some space, "
            "for example with `quotaplane maintain --keep-days N`"
        )
    return size_bytes > 0


def with_reserve(history: History, work: Callable[[], _Done]) -> _Done:
    """Run ``work``, and again with the reserve's space if the disk is full.

    Raises:
        QuotaplaneError: an error of ``work``, for instance if there is no reserve any more.
    """
    try:
        return work()
    except QuotaplaneError as error:
        if not release_reserve(history, OF_COMMANDS, error):
            raise
    return work()
