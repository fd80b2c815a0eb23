"""Rows as a history table has them: in its schema, with the stamp of their round."""

from __future__ import annotations

from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.deltalog.error_text import one_line
from quotaplane.errors import HistoryError
from quotaplane.history.table_parts import STAMP_COLUMNS, TIMESTAMP, Table
from quotaplane.model import Round
from quotaplane.texts import LATEST_MS


def stamped(table: Table, rows: pa.Table, stamp: Round) -> pa.Table:
    """Convert rows to the table's schema, and add the stamp (epoch, seq, round_at, date).

    ``rows`` has the table's other columns; nullable ones may be absent and become null.
    A timestamp column ``x`` is given as ``x_ms`` (epoch milliseconds, int64): a negative one
    (Kafka's "no time") becomes null, one past the year 9999 is cut to that. NaN and infinite rates
    become null. Strings may be dictionary arrays.

    Raises:
        HistoryError: a column is missing, unknown, of another type, or null where it must not be.
    """
    at = datetime.fromtimestamp(stamp.now_ms / 1000, tz=timezone.utc)
    constants = {"epoch": stamp.epoch, "seq": stamp.seq, "round_at": at, "date": at.date()}
    sources = {
        field.name: f"{field.name}_ms" if field.type == TIMESTAMP else field.name
        for field in table.schema
        if field.name not in STAMP_COLUMNS
    }
    absent = {
        name
        for name, source in sources.items()
        if source not in rows.column_names and table.schema.field(name).nullable
    }
    wanted = {source for name, source in sources.items() if name not in absent}
    unknown = sorted(set(rows.column_names) ^ wanted)
    if unknown:
        problem = "unknown column" if unknown[0] in rows.column_names else "missing column"
        raise HistoryError(f"rows for history table {table.name}: {problem} {unknown[0]}")
    columns = []
    for field in table.schema:
        if field.name in constants:
            value = pa.scalar(constants[field.name], field.type)
            columns.append(pa.repeat(value, rows.num_rows))
            continue
        if field.name in absent:
            columns.append(pa.nulls(rows.num_rows, field.type))
            continue
        column = _converted(rows.column(sources[field.name]), field, table)
        if not field.nullable and column.null_count:
            raise HistoryError(f"rows for history table {table.name}: {field.name} has a null")
        columns.append(column)
    # Without comments: a table keeps those that it was made with and refuses others.
    fields = [
        pa.field(field.name, column.type, field.nullable)
        for field, column in zip(table.schema, columns, strict=True)
    ]
    return pa.Table.from_arrays(columns, schema=pa.schema(fields))


def _converted(column: pa.ChunkedArray, field: pa.Field, table: Table) -> pa.ChunkedArray:
    kind = column.type
    if pa.types.is_dictionary(kind) and kind.value_type == field.type:
        return column
    try:
        if field.type == TIMESTAMP:
            known = pc.if_else(pc.greater_equal(column, 0), column, None)
            latest = pc.min_element_wise(known, pa.scalar(LATEST_MS), skip_nulls=False)
            return latest.cast(pa.timestamp("ms", tz="UTC")).cast(TIMESTAMP)
        if pa.types.is_floating(field.type):
            return pc.if_else(pc.is_finite(column), column, None).cast(field.type)
        return column.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise HistoryError(
            f"rows for history table {table.name}: {field.name}: {one_line(error)}"
        ) from None
