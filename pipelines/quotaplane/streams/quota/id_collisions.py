"""Finds groups with different names and the same id: one definition holds, the others are refused.

`groups put` refuses such a name, so these rows were written by another program. Without this check
one group would replace the other, with its quota.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import IntArray
from quotaplane.quota.groups import Groups


def without_clashes(changes: pa.Table, defined: Groups) -> tuple[pa.Table, list[tuple[int, str]]]:
    """The changes (``shard_inputs.GROUPS``) that may be applied, and (row, text) of the refused
    ones.

    A ``defined`` group keeps its id until it is deleted; of new groups the first one put gets it.
    """
    suspects = _suspects(changes, defined)
    if not len(suspects):
        return changes, []
    rows = changes.select(["group", "group_id", "deleted", "version"]).take(pa.array(suspects))
    order = sorted(
        zip(suspects.tolist(), rows.to_pylist(), strict=True),
        # In one commit a delete comes before a put of the same group.
        key=lambda pair: (pair[1]["version"], not pair[1]["deleted"], pair[1]["group"]),
    )
    holders: dict[int, str | None] = {
        number: _holder(defined, number) for number in rows["group_id"].unique().to_pylist()
    }
    dropped, refused = [], []
    for at, row in order:
        holder, name = holders[row["group_id"]], row["group"]
        if holder is None or holder == name:
            holders[row["group_id"]] = None if row["deleted"] else name
            continue
        dropped.append(at)
        if not row["deleted"]:
            wrong = f"has the same id as group {holder!r} and no effect: put it by another name"
            refused.append((at, wrong))
    keep = np.ones(len(changes), bool)
    keep[dropped] = False
    return changes.filter(pa.array(keep)), sorted(refused)


def _suspects(changes: pa.Table, defined: Groups) -> IntArray:
    """Rows whose id also belongs to another name, among the changes or the defined groups."""
    ids = changes["group_id"].to_numpy()
    names = pa.concat_arrays([changes["group"].combine_chunks().cast(pa.string()), defined.names])
    both = np.concatenate([ids, defined.ids])
    order = np.argsort(both, kind="stable")
    alike = np.flatnonzero(np.diff(both[order]) == 0)
    first, second = (names.take(pa.array(order[at])) for at in (alike, alike + 1))
    differ: IntArray = alike[pc.not_equal(first, second).to_numpy(zero_copy_only=False)]
    if not len(differ):
        return differ
    suspects: IntArray = np.flatnonzero(np.isin(ids, both[order[differ]]))
    return suspects


def _holder(defined: Groups, number: int) -> str | None:
    place = int(np.searchsorted(defined.ids, number))
    if place < len(defined) and defined.ids[place] == number:
        return str(defined.names[place].as_py())
    return None
