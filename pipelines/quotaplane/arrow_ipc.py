"""Arrow tables as bytes: how everything travels between tasks, and how state is at rest."""

from __future__ import annotations

from typing import Final

import pyarrow as pa

_OPTIONS: Final = pa.ipc.IpcWriteOptions(compression="lz4")
"""Names take half the bytes and repeat themselves; Spark copies a payload several times."""


def pack(*tables: pa.Table | pa.RecordBatch) -> bytes:
    """Each table as an Arrow IPC stream, one behind the other.

    >>> [table.to_pydict() for table in unpack(pack(pa.table({"a": [1]}), pa.table({"b": ["x"]})))]
    [{'a': [1]}, {'b': ['x']}]
    """
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema, options=_OPTIONS) as writer:
            writer.write(table)
    return bytes(sink.getvalue())


def unpack(payload: bytes) -> list[pa.Table]:
    """The tables that ``pack`` was given."""
    source = pa.BufferReader(payload)
    tables = []
    while source.tell() < source.size():
        with pa.ipc.open_stream(source) as reader:
            tables.append(reader.read_all())
    return tables
