"""Renders the tables as Spark SQL: ``python -m quotaplane.history.ddl schemas/tables``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Final

import pyarrow as pa

from quotaplane.history.tables import TABLES, TIMESTAMP, Table

TYPES: Final = {
    pa.int64(): "BIGINT",
    pa.float64(): "DOUBLE",
    pa.string(): "STRING",
    pa.binary(): "BINARY",
    pa.bool_(): "BOOLEAN",
    pa.date32(): "DATE",
    TIMESTAMP: "TIMESTAMP",
    pa.float32(): "FLOAT",
    pa.int32(): "INT",
}
"""Spark SQL's names of the column types."""


def render(table: Table) -> str:
    """The ``CREATE TABLE`` statement of a table, with its comments and properties.

    >>> print(render(Table("t", "A table.", pa.schema([pa.field("n", pa.int64(), False)]))))
    -- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`.
    CREATE TABLE t (
      n BIGINT NOT NULL
    )
    USING delta
    COMMENT 'A table.';
    <BLANKLINE>
    """
    lines = ["-- Generated from quotaplane.history.tables by `python -m quotaplane.history.ddl`."]
    lines.append(f"CREATE TABLE {table.name} (")
    lines.append(",\n".join(f"  {_column(field)}" for field in table.schema))
    lines.append(")\nUSING delta")
    if table.partition_by:
        lines.append(f"PARTITIONED BY ({', '.join(table.partition_by)})")
    end = f"COMMENT {_quoted(table.comment)}"
    if table.properties:
        properties = (f"  {_quoted(k)} = {_quoted(v)}" for k, v in table.properties.items())
        end += "\nTBLPROPERTIES (\n" + ",\n".join(properties) + "\n)"
    return "\n".join([*lines, end]) + ";\n"


def _column(field: pa.Field) -> str:
    name = field.name
    comment = (field.metadata or {}).get(b"comment", b"").decode()
    return (
        f"{name} {sql_type(field.type)}"
        + ("" if field.nullable else " NOT NULL")
        + (f" COMMENT {_quoted(comment)}" if comment else "")
    )


def sql_type(kind: pa.DataType) -> str:
    """Spark SQL's name of a column type."""
    return f"ARRAY<{TYPES[kind.value_type]}>" if pa.types.is_list(kind) else TYPES[kind]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def write_all(folder: Path) -> None:
    """Write ``<table>.sql`` for every table into an existing folder."""
    for table in TABLES.values():
        (folder / f"{table.name}.sql").write_text(render(table), encoding="utf-8")


if __name__ == "__main__":
    write_all(Path(sys.argv[1]))
