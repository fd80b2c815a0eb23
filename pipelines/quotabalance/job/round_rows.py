"""A balance round as rows of the history tables ``load``, ``balance_decisions``,
``balance_rounds``.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions
from quotabalance.planning.reported_loads import (
    COUNT_COLUMNS,
    LIMIT_COLUMNS,
    RATE_COLUMNS,
    USAGE_COLUMNS,
    ReportedLoads,
)
from quotabalance.record.tables import BALANCE_DECISIONS
from quotaplane.history.table_parts import STAMP_COLUMNS, list_of

_DECISION: Final = pa.schema(
    [field for field in BALANCE_DECISIONS.schema if field.name not in STAMP_COLUMNS]
)


def load_rows(loads: ReportedLoads, cluster: str) -> pa.Table:
    """One row per report, with its bundles in lists."""
    reports, bundles = loads
    counts = np.bincount(bundles["report"].to_numpy(), minlength=len(reports))
    offsets = pa.array(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32))

    def lists(name: str) -> pa.Array:
        values = bundles[name].combine_chunks()
        return pa.ListArray.from_arrays(offsets, values, type=list_of(values.type))

    columns: dict[str, Any] = {
        "cluster": pa.array([cluster] * len(reports), pa.string()),
        **{name: reports[name] for name in ("broker", "started_at_ms", "sequence")},
        **{name: reports[name] for name in ("measured_at_ms", "published_at_ms", "position")},
        **{name: reports[name] for name in ("draining", *USAGE_COLUMNS, *LIMIT_COLUMNS)},
        "bundles": lists("bundle"),
        **{name: lists(name) for name in (*RATE_COLUMNS, *COUNT_COLUMNS)},
    }
    return pa.table(columns)


def decision_rows(
    decisions: Decisions, cluster: str, *, plan_hash: str, enforced: bool
) -> pa.Table:
    """One row per move, split and skip."""
    rows: list[tuple[Any, ...]] = [
        ("move", *move[:4], [], move.label, move.reason, 1) for move in decisions.moves
    ]
    rows += [
        ("split", each.bundle, each.owner, "", None, each.boundaries, each.label, each.reason, 1)
        for each in decisions.splits
    ]
    rows += [
        ("skip", each.subject, "", "", None, [], each.label, each.reason, each.bundles)
        for each in decisions.skips
    ]
    first = len(decisions.moves) + len(decisions.splits)
    whole = [
        (cluster, row[0], place, *row[1:], plan_hash if place < first else "", enforced)
        for place, row in enumerate(rows)
    ]
    columns = list(zip(*whole, strict=True)) if whole else [()] * len(_DECISION)
    arrays = [pa.array(list(c), f.type) for c, f in zip(columns, _DECISION, strict=True)]
    return pa.Table.from_arrays(arrays, schema=_DECISION)


def round_row(load: ClusterLoad, decisions: Decisions, **given: Any) -> pa.Table:
    """The row of a round, without ``positions``; ``given`` has the columns that are not counts."""
    carried = load.throughput_of_brokers()
    columns: dict[str, Any] = {
        **given,
        "bundles": len(load.bundles),
        "bytes_per_s": float(carried.sum()),
        "max_mean": load.max_by_mean(),
        "moves": len(decisions.moves),
        "moved_bytes_per_s": float(sum(move.bytes_per_s for move in decisions.moves)),
        "splits": len(decisions.splits),
        "skips": len(decisions.skips),
    }
    brokers = pa.array([list(load.brokers)], list_of(pa.string()))
    table = pa.table({name: [value] for name, value in columns.items()})
    return table.append_column("brokers", brokers)
