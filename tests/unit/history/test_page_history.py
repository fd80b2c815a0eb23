"""The history of the page's benchmark has all columns that the tables have now."""

from __future__ import annotations

import pytest

from benchmarks.page_history import _query
from quotaplane.history.tables import LIMITS, STAMP_COLUMNS, TIMESTAMP, USAGE, Table


@pytest.mark.parametrize("table", [USAGE, LIMITS], ids=lambda table: table.name)
def test_it_makes_every_column(table: Table) -> None:
    query = _query(table, range(1), range(1), range(1))
    assert all(f" AS {name}" in query for name in table.schema.names if name != "date")
    of_round = _query(table, range(1), range(1), range(1), with_stamp=False)
    times = {field.name for field in table.schema if field.type == TIMESTAMP} - {*STAMP_COLUMNS}
    assert all(f" AS {name}_ms" in of_round for name in times)
