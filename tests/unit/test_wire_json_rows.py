"""JSON of tables: whatever is in them, a JSON parser reads the same."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.wire.json_rows import json_rows

ROW = st.fixed_dictionaries(
    {
        "text": st.none() | st.text(st.characters(codec="utf-8")),
        "whole": st.none() | st.integers(-(2**63), 2**63 - 1),
        "number": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "on": st.none() | st.booleans(),
    }
)
SCHEMA = pa.schema(
    [("text", pa.string()), ("whole", pa.int64()), ("number", pa.float64()), ("on", pa.bool_())]
)


@given(rows=st.lists(ROW, max_size=20))
def test_a_parser_reads_what_is_in_the_table(rows: list[dict[str, object]]) -> None:
    table = pa.Table.from_pylist(rows, schema=SCHEMA)
    assert [json.loads(text) for text in json_rows(table).to_pylist()] == rows
