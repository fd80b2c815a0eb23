"""SQL of DuckDB for the rows of a table: of its files, or of a copy."""

from __future__ import annotations

import re
from datetime import datetime

import duckdb
import pyarrow as pa
from deltalake import DeltaTable

from quotaplane.history.ddl import sql_type
from quotaplane.history.tables import TIMESTAMP, Table


def rows_of_files(table: Table) -> str:
    """A query for the rows of the files in the variable of the table.

    The empty table before them gives the types.
    """
    # The name of a file's folder has the partition; other folders of its path may look like one.
    partitions = "".join(
        f", CAST(regexp_extract(filename, '.*/{name}=([^/]*)/', 1) AS "
        f"{type_name(table.schema.field(name).type)}) AS {name}"
        for name in table.partition_by
    )
    files = (
        f"read_parquet(getvariable('{table.name}_files'), hive_partitioning = false, "
        "filename = true)"
    )
    columns = ", ".join(table.schema.names)
    return (
        f"SELECT {columns} FROM "
        f"({no_rows(table)} UNION ALL BY NAME SELECT *{partitions} FROM {files})"
    )


def no_rows(table: Table) -> str:
    """A query for no rows, with the table's columns."""
    nulls = ", ".join(f"CAST(NULL AS {type_name(f.type)}) AS {f.name}" for f in table.schema)
    return f"SELECT {nulls} WHERE false"


def rows_of_copy(
    session: duckdb.DuckDBPyConnection,
    table: Table,
    opened: DeltaTable,
    since: datetime | None,
    until: datetime | None,
    group: str | None,
) -> str:
    """A query for a copy of the rows in a temporary table, which may be larger than the memory."""
    conditions = [
        f"round_at {comparison} '{limit.isoformat()}'"
        for comparison, limit in ((">=", since), ("<=", until))
        if limit is not None and "round_at" in table.schema.names
    ]
    if group is not None and "resource_group" in table.schema.names:
        conditions.append(f"resource_group = {quoted(group)}")
    arriving = opened.scan(predicate=" AND ".join(conditions) or None)
    session.register("arriving_rows", pa.RecordBatchReader.from_stream(arriving))
    columns = ", ".join(f"CAST({f.name} AS {type_name(f.type)}) AS {f.name}" for f in table.schema)
    session.execute(f"CREATE TEMP TABLE {table.name}_rows AS SELECT {columns} FROM arriving_rows")
    session.unregister("arriving_rows")
    return f"SELECT * FROM {table.name}_rows"


def type_name(kind: pa.DataType) -> str:
    """DuckDB's name of a column type; it knows most of Spark's."""
    if pa.types.is_list(kind):
        return f"{type_name(kind.value_type)}[]"
    return "TIMESTAMPTZ" if kind == TIMESTAMP else sql_type(kind)


def quoted(text: str) -> str:
    """A text as a literal.

    >>> quoted("o'hara")
    "'o''hara'"
    """
    return "'" + text.replace("'", "''") + "'"


def escaped(path: str) -> str:
    """A path of which DuckDB takes no part for a pattern.

    >>> escaped("a*b")
    'a[*]b'
    """
    return re.sub(r"([\[*?])", r"[\1]", path)
