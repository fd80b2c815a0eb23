"""Computes what to change in the table ``resource_groups``, given a cluster's groups; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrays import filled
from quotaplane.errors import InputError
from quotaplane.groups.names import check_name
from quotaplane.groups.pulsar_fields import NO_FIELDS
from quotaplane.model import BASIC, PUBLISH, RATE_COLUMNS, BoolArray, FloatArray
from quotaplane.pulsar_admin.resource_groups import to_cluster
from quotaplane.registry.rows_after import collisions


class Puts(NamedTuple):
    """The groups to write into the table, and those whose publish quota the cluster lacks."""

    groups: list[str]
    """(n,) groups to write."""
    quotas: FloatArray
    """(n, dimensions) quotas of ``groups``, as ``registry.table.put_groups`` takes them."""
    fields: list[str]
    """(n,) the column ``pulsar_fields`` of ``groups``."""
    revived: list[str]
    """New groups that get the last publish quota that is known of them."""
    unknown: list[str]
    """New groups that are not written, as their publish quota is unknown."""
    kept: list[str]
    """Groups that keep the table's publish quota, as the cluster has none."""


def unfit(groups: Sequence[str]) -> dict[str, str]:
    r"""The groups whose names the table does not accept, and why.

    >>> unfit(["rg", "a\tb"])
    {'a\tb': "group 'a\\tb': has a character that can't be printed; it is left out"}
    """
    reasons = {}
    for group in groups:
        try:
            check_name(group)
        except InputError as error:
            reasons[group] = f"{error}; it is left out"
    return reasons


def taken(groups: Sequence[str], rows: pa.Table) -> dict[str, str]:
    """The groups that the table can't have because another group has their id, and why.

    A group in the table keeps its id; of several new groups with one id, the first by name gets it.
    ``groups`` are valid names.
    """
    # Rows in the table are never left out, even if somebody else wrote two with one id.
    new = sorted(np.array(groups, object)[~known(groups, rows)])
    return {
        group: f"group {group!r}: has the same id as {holder!r}, and is left out; give it another "
        "name in the cluster"
        for group, holder in collisions(rows, new).items()
    }


def puts(
    groups: Sequence[str],
    rates: FloatArray,
    fields: Mapping[str, str],
    rows: pa.Table,
    *,
    silent: BoolArray,
    last: Mapping[str, FloatArray],
) -> Puts:
    """Find the cluster's groups that differ from the table, and the quotas to write for them.

    The cluster decides the basic dimensions and its other fields; the rest stays as it is. Where
    the cluster's publish quota may be hidden, the table keeps its own, and a new group gets the
    last one that is known of it. A new group without any is not written, as it would be unlimited.

    Args:
        groups: n different names.
        rates: their quotas in the cluster, (n, 4) per second; inf = unlimited.
        fields: what else each has in the cluster, by group.
        rows: the table, as ``registry.table.list_groups`` returns it.
        silent: (n,) groups whose unlimited publish rate in the cluster means nothing, as the
            enforcer may have set it (docs/adr/0010-take-over.md).
        last: last known publish quota (2,), by group.
    """
    place = pc.index_in(pa.array(groups, pa.string()), value_set=rows["group"].combine_chunks())
    in_table = np.asarray(place.is_valid())
    recorded_rows = rows.take(place)
    recorded = np.column_stack([filled(recorded_rows, name, np.inf) for name in RATE_COLUMNS])
    quotas = np.full(recorded.shape, np.nan)
    quotas[:, :BASIC] = rates
    publish = quotas[:, PUBLISH]  # a view
    hidden = silent[:, None] & np.isinf(publish)
    kept = in_table & (hidden & np.isfinite(recorded[:, PUBLISH])).any(axis=1)
    # A quota that was handed back to the cluster is rounded up, which is no change.
    unchanged = hidden | (publish == to_cluster(recorded[:, PUBLISH]))
    publish[in_table[:, None] & unchanged] = np.nan
    revived = np.zeros(len(groups), np.bool_)
    for at in np.flatnonzero(~in_table & hidden.any(axis=1)).tolist():
        if groups[at] in last:
            publish[at] = np.where(hidden[at], last[groups[at]], publish[at])
            revived[at] = (hidden[at] & np.isfinite(publish[at])).any()
    unknown = ~in_table & silent & np.isinf(publish).all(axis=1)
    changed = ~in_table | ((quotas != recorded) & ~np.isnan(quotas)).any(axis=1)
    others = np.array([fields[group] for group in groups], object)
    changed |= others != recorded_rows["pulsar_fields"].fill_null(NO_FIELDS).to_numpy()

    def named(which: BoolArray) -> list[str]:
        return [groups[at] for at in np.flatnonzero(which).tolist()]

    chosen = changed & ~unknown
    return Puts(
        *(named(chosen), quotas[chosen], others[chosen].tolist()),
        *(named(revived), named(unknown), named(kept)),
    )


def known(groups: Sequence[str], rows: pa.Table) -> BoolArray:
    """Which of the groups (n,) the table has."""
    in_table = pc.is_in(pa.array(groups, pa.string()), value_set=rows["group"].combine_chunks())
    return np.asarray(in_table, np.bool_)


def changed_between(before: pa.Table, after: pa.Table) -> set[str]:
    """The groups that were put or deleted between two reads of the table.

    Both have the columns ``group`` and ``updated_at``.
    """
    if before is after:
        return set()
    now, then = after["group"].combine_chunks(), before["group"].combine_chunks()
    place = pc.index_in(now, value_set=then)
    same = pc.equal(before["updated_at"].combine_chunks().take(place), after["updated_at"])
    put = after.filter(pc.invert(same.fill_null(False)))["group"].to_pylist()
    deleted = before.filter(pc.invert(pc.is_in(then, value_set=now)))["group"].to_pylist()
    return {*put, *deleted}


def last_quotas(changes: Iterable[Mapping[str, Any]]) -> dict[str, FloatArray]:
    """The newest publish quota (2,) of each group in the table's history; inf = unlimited.

    Groups that were always unlimited are left out. ``changes`` come from
    ``registry.change_feed.group_changes``.
    """
    names = RATE_COLUMNS[PUBLISH]
    quotas: dict[str, FloatArray] = {}
    for change in changes:
        for state in (change["from"], change["to"]):
            publish = [np.inf if state is None or state[c] is None else state[c] for c in names]
            if np.isfinite(publish).any():
                quotas[change["group"]] = np.array(publish)
    return quotas


def absent(groups: Sequence[str], rows: pa.Table, others: pa.Array) -> list[str]:
    """The groups of the table that are neither among the cluster's ``groups`` nor ``others``."""
    known_names = pa.concat_arrays([pa.array(groups, pa.string()), others])
    names = rows["group"].combine_chunks()
    missing: list[str] = names.filter(pc.invert(pc.is_in(names, value_set=known_names))).to_pylist()
    return missing


def created_by(by: str, groups: Sequence[str], rows: pa.Table, changes: Any) -> list[str]:
    """Those of the groups that ``by`` created; ``changes`` come from ``registry.table``.

    If the creating commit is no longer in the log, the row's last writer counts as its creator.
    """
    creator = dict(zip(rows["group"].to_pylist(), rows["updated_by"].to_pylist(), strict=True))
    creator |= {change["group"]: change["by"] for change in changes if change["from"] is None}
    return [group for group in groups if creator[group] == by]


def rivals(by: str, groups: Sequence[str], rows: pa.Table) -> set[str]:
    """Other clusters (writers of the same kind as ``by``) that wrote these groups' rows last."""
    writers = rows.filter(pc.is_in(rows["group"], value_set=pa.array(groups, pa.string())))[
        "updated_by"
    ]
    kind = by.partition(":")[0] + ":"
    return {other for other in writers.to_pylist() if other.startswith(kind) and other != by}
