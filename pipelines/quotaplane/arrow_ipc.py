"""Encodes Arrow tables as bytes, for transport between tasks and for stored state."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

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
