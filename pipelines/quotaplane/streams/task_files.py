"""History tables whose rows the tasks of a micro-batch write into files, and the driver commits.

The rows of a large round would otherwise go through the task's JVM, to the driver's JVM, and from
there to its Python, only to be written there.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from quotaplane.deltalog.error_text import one_line
from quotaplane.history.tables import TABLES
from quotaplane.model import Round
from quotaplane.settings import History
from quotaplane.streams.shard_program import Batch, Output

if TYPE_CHECKING:
    from quotaplane.history.data_files import Written
    from quotaplane.history.disk_mark import DiskMark

FILES: Final = "files"
"""Kind of the output that replaces those whose rows were written: see ``sink``."""
NOT_WRITTEN: Final = "not_written"
"""Kind of the output that says why rows were left, though there are many: text."""


@dataclass(frozen=True)
class TaskFiles:
    """Writes the tables of a task's outputs.

    Executors get the options of the history's store with it, which may have secrets.
    """

    history: History
    epoch: int
    tables: Collection[str]
    """Names of the tables to write; the other outputs stay as they are."""
    least_bytes: int
    """Rows of smaller tables go to the driver, which writes those of all tasks into one file."""
    mark: DiskMark | None = None
    """The driver writes all tables where it is not found: the history is on another disk."""

    def without_written(self, outputs: Sequence[Output], batch: Batch) -> Iterator[Output]:
        """Write the large tables; yields one output about the files, and those that are left."""
        if self.mark is not None and not self.mark.is_here():
            yield from outputs
            return
        stamp = Round(self.epoch, batch.seq, batch.now_ms)
        written: dict[str, Written] = {}
        failed = ""
        for output in outputs:
            made = None
            if not failed and self._is_large(output):
                try:
                    made = self._written(output, stamp)
                except OSError as error:  # the driver tries to write them, and says what is wrong
                    failed = one_line(error)
            if made is None:
                yield output
            else:
                before = written.get(output.kind)
                written[output.kind] = made if before is None else before + made
        if written:
            found = {name: each.to_json() for name, each in written.items()}
            yield Output(FILES, json.dumps(found).encode())
        if failed:
            yield Output(NOT_WRITTEN, failed.encode())

    def _is_large(self, output: Output) -> bool:
        rows = output.content
        return (
            output.kind in self.tables
            and not isinstance(rows, bytes)
            and rows.nbytes >= self.least_bytes
        )

    def _written(self, output: Output, stamp: Round) -> Written:
        # Only here, so that the workers of small jobs start faster
        from quotaplane.history.data_files import write_rows

        return write_rows(self.history, TABLES[output.kind], output.content, stamp)
