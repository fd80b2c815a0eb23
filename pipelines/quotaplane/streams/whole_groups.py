"""Checks the bytes of the quotas that a batch reads: Spark would take damaged ones for others."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from quotaplane.deltalog.log import local_folder
from quotaplane.deltalog.read import changes_fault
from quotaplane.history.store import damaged, not_written, open_table, table_uri
from quotaplane.history.tables import RESOURCE_GROUPS
from quotaplane.settings import History

_SOURCE: Final = 1
"""The change feed is the query's second source."""


def refuse_damaged_groups(
    history: History, positions: Callable[[int], Mapping[str, list[Any]]], seq: int
) -> None:
    """Check what a batch reads of ``resource_groups``: the whole table at first, then its changes.

    Args:
        history: the table's location.
        positions: returns the offsets where a batch's input begins and ends.
        seq: the batch.

    Raises:
        HistoryError: bytes of it are damaged, or can't be read.
    """
    folder = local_folder(table_uri(history, RESOURCE_GROUPS.name))
    if folder is None:
        return
    ends = positions(seq)
    begin, end = (_offset(ends[name]) for name in ("from", "to"))
    if end is None or begin == end:
        return
    if begin is None:
        open_table(history, RESOURCE_GROUPS.name)  # checks it
        return
    try:
        # An offset may be within a version.
        versions = range(begin["reservoirVersion"], end["reservoirVersion"] + 1)
        fault = changes_fault(folder, versions)
    except OSError as error:
        raise not_written(history, RESOURCE_GROUPS.name, error) from None
    if fault is not None:
        raise damaged(history, RESOURCE_GROUPS.name, fault)


def _offset(offsets: list[Any]) -> dict[str, Any] | None:
    """How far the feed was read; None: it was not, or the query has none."""
    offset = offsets[_SOURCE] if len(offsets) > _SOURCE else None
    return offset if isinstance(offset, dict) and "reservoirVersion" in offset else None
