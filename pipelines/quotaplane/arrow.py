"""Operations on Arrow columns, and tables as bytes, for transport and for stored state."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import BoolArray, FloatArray, IntArray

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")
"""Compression halves repeated names; Spark copies a payload several times, so size matters."""


def pack(*tables: pa.Table | pa.RecordBatch) -> bytes:
    """Encode each table as an Arrow IPC stream, one after the other.

    >>> [table.to_pydict() for table in unpack(pack(pa.table({"a": [1]}), pa.table({"b": ["x"]})))]
    [{'a': [1]}, {'b': ['x']}]
    """
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
            writer.write(table)
    return bytes(sink.getvalue())


def unpack(payload: bytes) -> list[pa.Table]:
    """Decode the tables that ``pack`` encoded."""
    source = pa.BufferReader(payload)
    tables = []
    while source.tell() < source.size():
        with pa.ipc.open_stream(source) as reader:
            tables.append(reader.read_all())
    return tables


def no_rows(schema: pa.Schema) -> pa.Table:
    """An empty table, as ``schema.empty_table()``, which would import pandas: a quarter second.

    >>> no_rows(pa.schema({"a": pa.int64()})).to_pydict()
    {'a': []}
    """
    columns = [pa.nulls(0, field.type) for field in schema]
    return pa.Table.from_batches([pa.RecordBatch.from_arrays(columns, schema=schema)])


def one_chunk(column: pa.ChunkedArray) -> Any:
    """The column as one array; of a dictionary ``combine_chunks`` makes a column of one chunk."""
    joined = column.combine_chunks()
    return joined.chunk(0) if isinstance(joined, pa.ChunkedArray) else joined


def bools(array: pa.BooleanArray | pa.ChunkedArray) -> BoolArray:
    """An Arrow array of truth values without nulls as a numpy array."""
    return np.asarray(array.to_numpy(zero_copy_only=False), dtype=np.bool_)


def filled(rows: pa.Table, name: str, default: float) -> FloatArray:
    """A column of numbers, with ``default`` in place of its nulls."""
    column = rows[name].fill_null(default).combine_chunks()
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def indices_of(names: pa.StringArray, among: pa.StringArray) -> IntArray:
    """The index of each name (n,) in ``among``; -1: it is not there."""
    index = pc.index_in(names, value_set=among).fill_null(-1)
    return np.asarray(index.to_numpy(zero_copy_only=False), dtype=np.int64)
