"""Namespaces that have many more bundles than their load needs. Pure."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotabalance.planning.bundle_limits import BundleLimits
from quotabalance.planning.reported_loads import COUNT_COLUMNS, RATE_COLUMNS

LEAST_BUNDLES: Final = 4
"""Pulsar's default for a new namespace: so many are never too many."""

TOO_MANY: Final = 4
"""A namespace with this many times the bundles that it needs, most of them idle, has too many."""

_AMOUNTS: Final = ("topics", "sessions", "messages_per_s", "bytes_per_s")


def bundle_use(load: pa.Table, limits: BundleLimits) -> pa.Table:
    """The number of bundles that each namespace has, and that its load needs.

    Args:
        load: rows of the table ``load``.
        limits: the most of a bundle.

    Returns:
        A row for each namespace, those with the most bundles first: ``namespace``; ``bundles``;
        ``idle``, those without traffic in all rows; ``needed``, the fewest equal bundles of which
        none would be above a limit, at least ``LEAST_BUNDLES``; ``topics`` and ``sessions`` of each
        bundle's newest row, ``messages_per_s`` and ``bytes_per_s`` of its busiest.
    """
    rows = load.sort_by([("epoch", "ascending"), ("seq", "ascending")]).combine_chunks()
    brokers = rows["broker"].to_pylist()
    newest = np.zeros(len(rows), np.bool_)
    newest[list({broker: row for row, broker in enumerate(brokers)}.values())] = True
    flat: dict[str, Any] = {
        name: pc.list_flatten(rows[name]).to_numpy().astype(np.float64)
        for name in (*RATE_COLUMNS, *COUNT_COLUMNS)
    }
    sizes = pc.list_value_length(rows["bundles"]).to_numpy()
    is_newest = np.repeat(newest, sizes)
    columns = {
        "bundle": pc.list_flatten(rows["bundles"]),
        "now": is_newest,
        "messages_per_s": flat["messages_in_per_s"] + flat["messages_out_per_s"],
        "bytes_per_s": flat["bytes_in_per_s"] + flat["bytes_out_per_s"],
        **{name: np.where(is_newest, np.maximum(flat[name], 0), 0) for name in COUNT_COLUMNS},
    }
    bundles = _grouped(pa.table(columns), "bundle", "max")
    bundles = bundles.filter(bundles["now"])
    busy = pc.or_(
        pc.greater(bundles["bytes_per_s"], 0.0), pc.greater(bundles["messages_per_s"], 0.0)
    )
    of_namespace = bundles.drop(["bundle", "now"])
    of_namespace = of_namespace.append_column("idle", pc.cast(pc.invert(busy), pa.int64()))
    of_namespace = of_namespace.append_column("bundles", pa.array(np.ones(len(bundles), np.int64)))
    names = pc.replace_substring_regex(bundles["bundle"], "/[^/]*$", "")
    found = _grouped(of_namespace.append_column("namespace", names), "namespace", "sum")
    most = np.array(limits, np.float64)
    amounts = np.stack([found[name].to_numpy() for name in _AMOUNTS], axis=1)
    parts = np.ceil(np.divide(amounts, most, out=np.zeros_like(amounts), where=most > 0))
    needed = np.maximum(parts.max(axis=1, initial=0.0), LEAST_BUNDLES).astype(np.int64)
    found = found.append_column("needed", pa.array(needed))
    order = ("namespace", "bundles", "idle", "needed", *_AMOUNTS)
    return found.select(order).sort_by([("bundles", "descending"), ("namespace", "ascending")])


def too_many(use: pa.Table) -> pa.Table:
    """The namespaces with many idle bundles, of a result of ``bundle_use``."""
    bundles, idle = use["bundles"].to_numpy(), use["idle"].to_numpy()
    many = (bundles >= TOO_MANY * use["needed"].to_numpy()) & (2 * idle > bundles)
    return use.filter(pa.array(many))


def _grouped(table: pa.Table, key: str, how: str) -> pa.Table:
    """Rows of one key as one row, with the columns' names kept."""
    names = [name for name in table.column_names if name != key]
    grouped = table.group_by(key).aggregate([(name, how) for name in names])
    return grouped.rename_columns(
        [name if name == key else name.removesuffix(f"_{how}") for name in grouped.column_names]
    )
