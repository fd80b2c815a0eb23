"""A round's limits as rows of the history table ``limits``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa

from quotaplane.laws.reason import REASON_TEXTS
from quotaplane.model import DIMENSIONS
from quotaplane.quota.outcome import Outcome
from quotaplane.streams.quota.limit_messages import as_dictionary, dimensions_of

_INDEX: Final = pa.int16()
"""Index type of dictionary columns; the same for all, so that shards' tables can be joined."""


def limit_history(outcome: Outcome, lease_ms: int) -> pa.Table | None:
    """Limits that changed and limits that ended, as rows of the history table ``limits``."""
    changed = outcome.limits.filter(outcome.limits["changed"])
    dimensions = dimensions_of(changed)
    rates = [f"{name}_per_s" for name in dimensions]
    has_texts = f"{DIMENSIONS[0]}_text" in changed.column_names
    reasons = {
        f"{name}_reason": _as_dictionary_array(changed[f"{name}_text"])
        if has_texts
        else _words(changed[f"{name}_reason"])
        for name in dimensions
    }
    columns = changed.select(["broker", "group", *rates, "enforced"])
    table = _with_constants(columns, reasons, lease_ms, ended=False)
    if not len(outcome.ended):
        return table
    over = outcome.ended.select(["broker", "group"])
    for name in rates:
        over = over.append_column(name, pa.nulls(len(over), pa.float64()))
    over = over.append_column("enforced", pa.nulls(len(over), pa.bool_()))
    why = _as_dictionary_array(outcome.ended["why"])
    ended = _with_constants(
        over, dict.fromkeys((f"{name}_reason" for name in dimensions), why), lease_ms, ended=True
    )
    return pa.concat_tables([table, ended]).unify_dictionaries()


def _with_constants(
    table: pa.Table, reasons: Mapping[str, pa.ChunkedArray], lease_ms: int, *, ended: bool
) -> pa.Table:
    for name, column in reasons.items():
        table = table.append_column(name, column)
    table = table.append_column("lease_ms", pa.repeat(pa.scalar(lease_ms, pa.int64()), len(table)))
    return table.append_column("ended", pa.repeat(pa.scalar(ended), len(table)))


def _words(codes: pa.ChunkedArray) -> pa.Array:
    """Reason codes as texts, dictionary encoded."""
    index = pa.array(codes.to_numpy().astype(np.int16))
    return pa.DictionaryArray.from_arrays(index, pa.array(REASON_TEXTS))


def _as_dictionary_array(column: pa.ChunkedArray) -> pa.DictionaryArray:
    """Strings with the same type as ``_words`` returns, so that both fit into one column."""
    encoded = as_dictionary(column.dictionary_encode())
    return pa.DictionaryArray.from_arrays(encoded.indices.cast(_INDEX), encoded.dictionary)
