"""Ids in place of the names of groups, of which a batch may have a bounded number of new ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from quotaplane.groups.ids import NOT_READ, NewNames, ids_of, ids_of_column
from quotaplane.model import BoolArray, IntArray
from quotaplane.wire.report_block import Block


def with_ids(blocks: Sequence[Block], usable: BoolArray, most_new: int) -> list[Block]:
    """The entries of usable reports, with ids; ``NOT_READ`` where a batch has too many new names.

    A third of the ``most_new`` names is for whatever comes first. If that is not enough, the rest
    is divided evenly among the reports that have unread names, those with the fewest first: so a
    few reports with many invented names leave room for the new names of others.
    """
    room = NewNames(most_new // 3)
    found = []
    for block in blocks:
        if not (chosen := usable[block.report]).all():
            block = block.take(np.flatnonzero(chosen))
        if len(block.ids):
            found.append(replace(block, ids=_ids(block, room)))
    if not room.left:
        _read_evenly(found, most_new - most_new // 3)
    return found


def _ids(block: Block, room: NewNames) -> IntArray:
    if block.names is None:
        return block.ids
    if block.report[0] == block.report[-1]:  # names of one report hardly repeat
        return ids_of(block.names.to_numpy(zero_copy_only=False).tolist(), room)
    return ids_of_column(block.names, room)


def _read_evenly(blocks: Sequence[Block], most_new: int) -> None:
    """Read more names of the blocks, in place."""
    unread: list[tuple[IntArray, IntArray, pa.Array]] = []
    for block in blocks:
        if block.names is not None:  # a report may also give this number as an id
            at = np.flatnonzero(block.ids == NOT_READ)
            parts = _by_report(block.report[at], at)
            unread += [(block.ids, part, block.names.take(pa.array(part))) for part in parts]
    if not unread:
        return
    unread.sort(key=lambda one: len(one[1]))
    for number, (ids, at, names) in enumerate(unread):
        most = most_new // (len(unread) - number)
        room = NewNames(most)
        ids[at[:most]] = ids_of(names.slice(0, most).to_pylist(), room)
        most_new -= most - room.left
    # Once for all: a search of what is cached takes as long for one name as for many.
    found = ids_of_column(pa.concat_arrays([names for _, _, names in unread]), NewNames(0))
    ends = np.cumsum([len(at) for _, at, _ in unread])
    for (ids, at, _), part in zip(unread, np.split(found, ends[:-1]), strict=True):
        ids[at] = part


def _by_report(report: IntArray, at: IntArray) -> list[IntArray]:
    """``at`` in parts; entries of a report are in one piece."""
    return np.split(at, np.flatnonzero(np.diff(report)) + 1) if len(at) else []
