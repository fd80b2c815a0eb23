"""Formats a table's rows as JSON texts, without a loop over rows."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


def json_rows(table: pa.Table) -> pa.Array:
    r"""One JSON object per row, in the columns' order: strings, finite numbers, booleans.

    >>> table = pa.table({"who": ["a\n", None], "n": [1, 2], "x": [0.1, 1e300], "on": [True, None]})
    >>> print(*json_rows(table).to_pylist(), sep="\n")
    {"who": "a\n", "n": 1, "x": 0.1, "on": true}
    {"who": null, "n": 2, "x": 1e+300, "on": null}
    """
    parts: list[pa.Array | pa.Scalar | str] = ["{"]
    for name, column in zip(table.column_names, table.columns, strict=True):
        joined = column.combine_chunks()
        written = _quoted(joined) if pa.types.is_string(joined.type) else joined.cast(pa.string())
        parts += [
            f"{', ' if len(parts) > 1 else ''}{json.dumps(name)}: ",
            written.fill_null("null"),
        ]
    return pc.binary_join_element_wise(*parts, "}", "")


def _quoted(texts: pa.StringArray) -> pa.StringArray:
    quoted = pc.binary_join_element_wise('"', texts, '"', "")
    odd = pc.match_substring_regex(texts, r'[\x00-\x1f"\\]').fill_null(False)
    at = np.flatnonzero(odd.to_numpy(zero_copy_only=False))
    if not len(at):
        return quoted
    escaped = [
        json.dumps(text, ensure_ascii=False) for text in texts.take(pa.array(at)).to_pylist()
    ]
    return pc.replace_with_mask(quoted, odd, pa.array(escaped, pa.string()))
