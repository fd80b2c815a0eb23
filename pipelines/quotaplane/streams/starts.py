"""The starts of a job, each with the first round that counts to it.

That round publishes all limits that are in force, so it must be the same round whenever a
micro-batch runs again. A start is therefore noted in the checkpoint before its query runs, and
counts from the first round that no earlier process has begun.
"""

from __future__ import annotations

import json
from typing import Final, Protocol

from quotaplane.errors import ConfigError
from quotaplane.streams.noted_input import NoteFolder

_NOTE: Final = "starts.json"


class StartsFolder(NoteFolder, Protocol):
    """A checkpoint folder with Spark's log of batches."""

    def newest_batch(self) -> int | None:
        """The last batch that was begun; None: there is none."""


class Starts:
    """The starts by micro-batch; to make it notes one more start.

    Raises:
        ConfigError: the note can't be read.

    >>> class InMemory:
    ...     path, text, newest = "checkpoint", None, None
    ...     def read(self, name): return self.text
    ...     def write(self, name, text): self.text = text
    ...     def newest_batch(self): return self.newest
    >>> folder = InMemory()
    >>> Starts(folder).of_batch(0)
    0
    >>> folder.newest = 7  # batch 7 may have been published, so it must not change
    >>> again = Starts(folder)
    >>> again.of_batch(7), again.of_batch(8), again.of_batch(9)
    (0, 8, 8)
    """

    def __init__(self, folder: StartsFolder) -> None:
        newest = folder.newest_batch()
        first = 0 if newest is None else newest + 1
        text = folder.read(_NOTE)
        try:
            noted = [] if text is None else [int(seq) for seq in json.loads(text)]
        except (ValueError, TypeError):
            wrong = f"checkpoint {folder.path}: {_NOTE} can't be read; delete it"
            raise ConfigError(wrong) from None
        # Of the batches that were begun, only the newest may run again.
        self._firsts = [*[seq for seq in noted if seq < first][-1:], first]
        if self._firsts != noted:
            folder.write(_NOTE, json.dumps(self._firsts))

    def of_batch(self, seq: int) -> int:
        """The first round of the start that a batch counts to; -1: it is not known."""
        return max((first for first in self._firsts if first <= seq), default=-1)
