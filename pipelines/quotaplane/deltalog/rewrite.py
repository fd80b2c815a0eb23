"""Commits to a local Delta table that replace files by others with the same rows."""

from __future__ import annotations

import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quotaplane.deltalog.log import LOG, Log

MOST_WRITER_VERSION: Final = 2
"""Highest writer version of the tables that this module can change: their commits may have files
only. Later versions may need more, for example a mapping of column names."""


@dataclass(frozen=True)
class NewFile:
    """A Parquet file in the table's folder, not yet part of the table."""

    path: str
    """Relative to the table."""
    partition: Mapping[str, str]
    """Values of the partition columns, as text."""
    rows: int
    least: Mapping[str, Any]
    """The smallest value of some columns: numbers, text, or times as ISO 8601 in UTC."""
    most: Mapping[str, Any]
    """The largest value of the same columns."""

    def add(self, folder: Path, now_ms: int, *, data_change: bool) -> dict[str, Any]:
        """The action of a commit."""
        stats = {
            "numRecords": self.rows,
            "minValues": self.least,
            "maxValues": self.most,
            "nullCount": {},
        }
        return {
            "path": self.path,
            "partitionValues": self.partition,
            "size": (folder / self.path).stat().st_size,
            "modificationTime": now_ms,
            "dataChange": data_change,
            "stats": json.dumps(stats, ensure_ascii=False),
        }


def commit_rewrite(
    folder: Path, version: int, removed: Mapping[str, Mapping[str, str]], added: Sequence[NewFile]
) -> bool:
    """Make a version of a table with files replaced; False: another writer made that version.

    The commit says that no row changed. It is not synced (see ``durable``).

    Args:
        folder: the table's folder.
        version: the version to make, the newest one plus 1.
        removed: the paths of files of the version before, with their partition's values.
        added: the files that have the rows of the removed ones.

    Raises:
        OSError: the log can't be written.
    """
    now_ms = int(time.time() * 1000)
    counts = {"numFilesAdded": len(added), "numFilesRemoved": len(removed)}
    actions: list[dict[str, Any]] = [
        {
            "commitInfo": {
                "timestamp": now_ms,
                "operation": "OPTIMIZE",
                "operationParameters": {},
                "operationMetrics": counts,
                "engineInfo": "quotaplane",
            }
        }
    ]
    actions += (
        {
            "remove": {
                "path": path,
                "deletionTimestamp": now_ms,
                "dataChange": False,
                "extendedFileMetadata": True,
                "partitionValues": dict(partition),
            }
        }
        for path, partition in removed.items()
    )
    actions += ({"add": file.add(folder, now_ms, data_change=False)} for file in added)
    return make_commit(folder, version, actions)


def make_commit(folder: Path, version: int, actions: Sequence[Mapping[str, Any]]) -> bool:
    """Write a version's actions to the log, all or nothing; False: the version exists already.

    Raises:
        OSError: the log can't be written.
    """
    text = "".join(json.dumps(action, ensure_ascii=False) + "\n" for action in actions)
    begun = folder / LOG / f"_commit_{uuid.uuid4()}.json.tmp"
    try:
        begun.write_text(text, encoding="utf-8")
        os.link(begun, Log(folder, {}, {}).commit(version))
    except FileExistsError:
        return False
    finally:
        begun.unlink(missing_ok=True)
    return True
