"""A round's usage and limits as rows of the history tables."""

from __future__ import annotations

import pyarrow as pa

from quotaplane.quota.outcome import Outcome


def usage_history(used: pa.Table) -> pa.Table:
    """Rows of the history table ``usage``, or of another that names groups as it does."""
    names = ["resource_group" if name == "group" else name for name in used.column_names]
    return used.rename_columns(names)


def limit_history(outcome: Outcome, lease_ms: int) -> pa.Table:
    """Limits that changed and limits that ended, as rows of the history table ``limits``."""
    table = _with_constants(outcome.changed, lease_ms, ended=False)
    if not len(outcome.ended):
        return table
    over = outcome.ended.select(["broker", "group"])
    over = over.append_column("ended_because", outcome.ended["why"])
    ended = _with_constants(over, lease_ms, ended=True)
    return pa.concat_tables([table, ended], promote_options="default").unify_dictionaries()


def _with_constants(table: pa.Table, lease_ms: int, *, ended: bool) -> pa.Table:
    table = usage_history(table).append_column(
        "lease_ms", pa.repeat(pa.scalar(lease_ms, pa.int64()), len(table))
    )
    return table.append_column("ended", pa.repeat(pa.scalar(ended), len(table)))
