"""Definitions of groups of which the ids are the same: one of them holds, and the others are told.

`groups put` refuses the second of two such names, so somebody else wrote it into the table. Taken
in, either would replace the other, quota and all.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import IntArray
from quotaplane.quota.groups import Groups


def without_clashes(changes: pa.Table, defined: Groups) -> tuple[pa.Table, list[tuple[int, str]]]:
    """The changes (``wire.events.GROUPS``) that may be taken in, and what to tell of the others.

    A group that is ``defined`` keeps its id until it is deleted; of new ones it is the one that was
    put first. Told are rows of ``changes``, with what is wrong.
    """
    suspects = _suspects(changes, defined)
    if not len(suspects):
        return changes, []
    rows = changes.select(["group", "group_id", "deleted", "version"]).take(pa.array(suspects))
    order = sorted(
        zip(suspects.tolist(), rows.to_pylist(), strict=True),
        # A commit that deletes a row and puts one for the same group has put it.
        key=lambda one: (one[1]["version"], not one[1]["deleted"], one[1]["group"]),
    )
    holders: dict[int, str | None] = {
        number: _holder(defined, number) for number in rows["group_id"].unique().to_pylist()
    }
    dropped, told = [], []
    for at, row in order:
        holder, name = holders[row["group_id"]], row["group"]
        if holder is None or holder == name:
            holders[row["group_id"]] = None if row["deleted"] else name
            continue
        dropped.append(at)
        if not row["deleted"]:
            wrong = f"has the same id as group {holder!r} and no effect: put it by another name"
            told.append((at, wrong))
    kept = np.ones(len(changes), bool)
    kept[dropped] = False
    return changes.filter(pa.array(kept)), sorted(told)


def _suspects(changes: pa.Table, defined: Groups) -> IntArray:
    """The rows whose id is also that of another name, here or among the groups defined."""
    ids = changes["group_id"].to_numpy()
    names = pa.concat_arrays([changes["group"].combine_chunks().cast(pa.string()), defined.names])
    both = np.concatenate([ids, defined.ids])
    order = np.argsort(both, kind="stable")
    alike = np.flatnonzero(np.diff(both[order]) == 0)
    one, other = (names.take(pa.array(order[at])) for at in (alike, alike + 1))
    differ: IntArray = alike[pc.not_equal(one, other).to_numpy(zero_copy_only=False)]
    if not len(differ):
        return differ
    suspects: IntArray = np.flatnonzero(np.isin(ids, both[order[differ]]))
    return suspects


def _holder(defined: Groups, number: int) -> str | None:
    place = int(np.searchsorted(defined.ids, number))
    if place < len(defined) and defined.ids[place] == number:
        return str(defined.names[place].as_py())
    return None
