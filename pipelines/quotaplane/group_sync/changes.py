"""Computes what to change in the table ``resource_groups``, given a cluster's groups; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.arrow import filled
from quotaplane.enforce.custody import NONE, quota
from quotaplane.errors import InputError
from quotaplane.groups.names import check_name
from quotaplane.groups.pulsar_fields import NO_FIELDS
from quotaplane.model import BASIC, PUBLISH, RATE_COLUMNS, BoolArray, FloatArray
from quotaplane.pulsar_admin.resource_groups import to_cluster
from quotaplane.registry.rows_after import collisions


class Puts(NamedTuple):
    """The groups to write into the table, and those whose publish quota the cluster hides."""

    groups: list[str]
    """(n,) groups to write."""
    quotas: FloatArray
    """(n, dimensions) quotas of ``groups``, as ``registry.table.put_groups`` takes them."""
    fields: list[str]
    """(n,) the column ``pulsar_fields`` of ``groups``."""
    revived: list[str]
    """New groups that get the publish quota of their copy."""
    hidden: list[str]
    """Groups with a publish quota that the cluster does not have."""


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
    copies: Mapping[str, FloatArray],
) -> Puts:
    """Find the cluster's groups that differ from the table, and the quotas to write for them.

    The cluster decides the basic dimensions and its other fields; the rest stays as it is.
    ``custody.quota`` says what a publish rate of -1 in the cluster means.

    Args:
        groups: n different names.
        rates: their quotas in the cluster, (n, 4) per second; inf = unlimited.
        fields: what else each has in the cluster, by group.
        rows: the table, as ``registry.table.list_groups`` returns it.
        copies: the publish quotas (2,) of which the cluster has a copy, of new groups.
    """
    place = pc.index_in(pa.array(groups, pa.string()), value_set=rows["group"].combine_chunks())
    in_table = np.asarray(place.is_valid())
    recorded_rows = rows.take(place)
    recorded = np.column_stack([filled(recorded_rows, name, np.inf) for name in RATE_COLUMNS])
    quotas = np.full(recorded.shape, np.nan)
    quotas[:, :BASIC] = rates
    table = np.where(in_table[:, None], recorded[:, PUBLISH], np.nan)
    copied = np.array([copies.get(group, NONE) for group in groups]).reshape(table.shape)
    publish = quota(rates[:, PUBLISH], table, copied)
    hidden = (np.isinf(rates[:, PUBLISH]) & np.isfinite(publish)).any(axis=1)
    # A quota that was given back to the cluster is rounded up, which is no change.
    same = (publish == table) | (publish == to_cluster(table))
    quotas[:, PUBLISH] = np.where(same, np.nan, publish)
    changed = ~in_table | ((quotas != recorded) & ~np.isnan(quotas)).any(axis=1)
    others = np.array([fields[group] for group in groups], object)
    changed |= others != recorded_rows["pulsar_fields"].fill_null(NO_FIELDS).to_numpy()

    def named(which: BoolArray) -> list[str]:
        return [groups[at] for at in np.flatnonzero(which).tolist()]

    return Puts(
        *(named(changed), quotas[changed], others[changed].tolist()),
        *(named(hidden & ~in_table), named(hidden)),
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
