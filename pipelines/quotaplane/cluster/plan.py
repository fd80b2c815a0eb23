"""What to change in our table of quotas, given a cluster's groups: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.errors import InputError
from quotaplane.history.groups import check_name
from quotaplane.model import BASIC, RATE_COLUMNS, FloatArray

_PUBLISH = slice(0, 2)


class Puts(NamedTuple):
    """Groups to put, and their quotas (n, 7) as ``history.groups.put_groups`` takes them."""

    groups: list[str]
    quotas: FloatArray


def unfit(groups: Sequence[str]) -> dict[str, str]:
    r"""The groups whose names our table can't have, and why.

    >>> unfit(["rg", "a\tb"])
    {'a\tb': "group 'a\\tb': has a character that can't be printed; it is left out"}
    """
    found = {}
    for group in groups:
        try:
            check_name(group)
        except InputError as error:
            found[group] = f"{error}; it is left out"
    return found


def puts(groups: Sequence[str], rates: FloatArray, rows: pa.Table, *, take_over: bool) -> Puts:
    """Which of the cluster's groups differ from the table, and what they are to be put to.

    The cluster's quota holds in the four dimensions that it has; everything else stays as it is.

    Args:
        groups: n different names.
        rates: their quotas in the cluster, (n, 4) per second, +inf is unlimited.
        rows: the table, as ``history.groups.list_groups`` has it.
        take_over: whether an unlimited publish rate may be the enforcer's doing: the cluster then
            says nothing about it, and the table keeps what it has (docs/adr/0010-take-over.md).
    """
    quotas = np.full((len(groups), len(RATE_COLUMNS)), np.nan)
    quotas[:, :BASIC] = rates
    if take_over:
        hidden = quotas[:, _PUBLISH]
        hidden[np.isinf(hidden)] = np.nan
    place = pc.index_in(pa.array(groups, pa.string()), value_set=rows["group"].combine_chunks())
    before = rows.take(place)
    held = np.column_stack([_rates(before, name) for name in RATE_COLUMNS])
    changed = ~np.asarray(place.is_valid()) | ((quotas != held) & ~np.isnan(quotas)).any(axis=1)
    chosen = np.flatnonzero(changed)
    return Puts([groups[i] for i in chosen.tolist()], quotas[chosen])


def absent(groups: Sequence[str], rows: pa.Table, others: pa.Array) -> list[str]:
    """The groups of the table that the cluster has not, nor are among ``others``."""
    there = pa.concat_arrays([pa.array(groups, pa.string()), others])
    names = rows["group"].combine_chunks()
    found: list[str] = names.filter(pc.invert(pc.is_in(names, value_set=there))).to_pylist()
    return found


def created_by(by: str, groups: Sequence[str], rows: pa.Table, changes: Any) -> list[str]:
    """Those of the groups that ``by`` created; ``changes`` are ``history.groups.group_changes``.

    Whom the log does not know any more was created by who wrote the row, as far as one can tell.
    """
    creator = dict(zip(rows["group"].to_pylist(), rows["updated_by"].to_pylist(), strict=True))
    creator |= {change["group"]: change["by"] for change in changes if change["from"] is None}
    return [group for group in groups if creator[group] == by]


def _rates(rows: pa.Table, name: str) -> FloatArray:
    filled = rows[name].fill_null(np.inf).combine_chunks()
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.float64)
