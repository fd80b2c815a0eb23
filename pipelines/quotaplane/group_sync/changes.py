"""What to change in our table of quotas, given a cluster's groups: no I/O, no clock."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.errors import InputError
from quotaplane.groups.names import check_name
from quotaplane.model import BASIC, PUBLISH, RATE_COLUMNS, BoolArray, FloatArray
from quotaplane.pulsar_admin.resource_groups import to_cluster
from quotaplane.registry.table import collisions


class Puts(NamedTuple):
    """Groups to put, and what the cluster does not tell of others."""

    groups: list[str]
    quotas: FloatArray
    """(n, dimensions) of ``groups``, as ``registry.table.put_groups`` takes them."""
    revived: list[str]
    """New groups that are put with the publish quota that they had last."""
    unknown: list[str]
    """New groups that are not put: nobody knows their publish quota."""
    kept: list[str]
    """Groups whose publish quota is the table's, as the cluster has none."""


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


def taken(groups: Sequence[str], rows: pa.Table) -> dict[str, str]:
    """The groups that our table can't have as another group has their id, and why.

    The group that is in the table holds the id; of several that are not, the first by name.
    ``groups`` are names that fit.
    """
    # Rows of the table are not ours to leave out, even if somebody else made two of one id.
    new = sorted(np.array(groups, object)[~known(groups, rows)])
    return {
        group: f"group {group!r}: has the same id as {holder!r}, and is left out; give it another "
        "name in the cluster"
        for group, holder in collisions(rows, new).items()
    }


def puts(
    groups: Sequence[str],
    rates: FloatArray,
    rows: pa.Table,
    *,
    silent: BoolArray,
    last: Mapping[str, FloatArray],
) -> Puts:
    """Which of the cluster's groups differ from the table, and what they are to be put to.

    The cluster's quota holds in the basic dimensions, which it has; everything else stays as it is.
    Where the cluster is silent about a publish quota, the table keeps what it has, and a new group
    has the last one that is known. A new group without any is not put: it would be unlimited.

    Args:
        groups: n different names.
        rates: their quotas in the cluster, (n, 4) per second, +inf is unlimited.
        rows: the table, as ``history.groups.list_groups`` has it.
        silent: (n,) of which groups an unlimited publish rate says nothing, as it may be the
            enforcer's doing (docs/adr/0010-take-over.md).
        last: by group, the publish quota (2,) that it had last.
    """
    place = pc.index_in(pa.array(groups, pa.string()), value_set=rows["group"].combine_chunks())
    there = np.asarray(place.is_valid())
    before = rows.take(place)
    held = np.column_stack([_rates(before, name) for name in RATE_COLUMNS])
    quotas = np.full(held.shape, np.nan)
    quotas[:, :BASIC] = rates
    publish = quotas[:, PUBLISH]  # a view
    hidden = silent[:, None] & np.isinf(publish)
    kept = there & (hidden & np.isfinite(held[:, PUBLISH])).any(axis=1)
    # What was handed back to the cluster was rounded up, and is no news.
    no_news = hidden | (publish == to_cluster(held[:, PUBLISH]))
    publish[there[:, None] & no_news] = np.nan
    revived = np.zeros(len(groups), np.bool_)
    for at in np.flatnonzero(~there & hidden.any(axis=1)).tolist():
        if groups[at] in last:
            publish[at] = np.where(hidden[at], last[groups[at]], publish[at])
            revived[at] = (hidden[at] & np.isfinite(publish[at])).any()
    unknown = ~there & silent & np.isinf(publish).all(axis=1)
    changed = ~there | ((quotas != held) & ~np.isnan(quotas)).any(axis=1)

    def named(which: BoolArray) -> list[str]:
        return [groups[at] for at in np.flatnonzero(which).tolist()]

    chosen = changed & ~unknown
    return Puts(named(chosen), quotas[chosen], named(revived), named(unknown), named(kept))


def known(groups: Sequence[str], rows: pa.Table) -> BoolArray:
    """Which of the groups (n,) the table has."""
    found = pc.is_in(pa.array(groups, pa.string()), value_set=rows["group"].combine_chunks())
    return np.asarray(found, np.bool_)


def last_quotas(changes: Iterable[Mapping[str, Any]]) -> dict[str, FloatArray]:
    """By group, the newest publish quota (2,) that it ever had, +inf is unlimited.

    Groups that never had a number there are left out. ``changes`` are
    ``history.groups.group_changes``.
    """
    names = RATE_COLUMNS[PUBLISH]
    found: dict[str, FloatArray] = {}
    for change in changes:
        for state in (change["from"], change["to"]):
            publish = [np.inf if state is None or state[c] is None else state[c] for c in names]
            if np.isfinite(publish).any():
                found[change["group"]] = np.array(publish)
    return found


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


def rivals(by: str, groups: Sequence[str], rows: pa.Table) -> set[str]:
    """Other clusters that wrote the rows of these groups last, as ``by`` writes them."""
    wrote = rows.filter(pc.is_in(rows["group"], value_set=pa.array(groups, pa.string())))[
        "updated_by"
    ]
    mark = by.partition(":")[0] + ":"
    return {other for other in wrote.to_pylist() if other.startswith(mark) and other != by}


def _rates(rows: pa.Table, name: str) -> FloatArray:
    filled = rows[name].fill_null(np.inf).combine_chunks()
    return np.asarray(filled.to_numpy(zero_copy_only=False), dtype=np.float64)
