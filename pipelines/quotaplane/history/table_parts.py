"""The parts of the history's tables: columns with comments, the stamp of a round."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")

STAMP_COLUMNS: Final = ("epoch", "seq", "round_at", "date")
"""Filled in by the writer from the round; rows handed to it do not have them."""


@dataclass(frozen=True)
class Table:
    """One history table; ``schema`` fields carry their comment as metadata."""

    name: str
    comment: str
    schema: pa.Schema
    partition_by: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    snapshot: bool = False
    """The table has the newest rows of each partition only: new rows replace them."""
    by_group: bool = False
    """``maintain`` sorts its days by resource group: see ``group_order``."""

    @property
    def has_change_feed(self) -> bool:
        """Whether changes rewrite its rows and are kept in a feed; other tables only grow."""
        return self.properties.get("delta.enableChangeDataFeed") == "true"

    @property
    def is_current(self) -> bool:
        """Whether its rows are the present state, such as quotas: bytes are checked before reading.

        The other tables are large and have the past.
        """
        return self.snapshot or not {"round_at", "date"} & {*self.schema.names}


def column(name: str, kind: pa.DataType, comment: str, *, null: bool = False) -> pa.Field:
    """A column with its comment; ``null``: it may be null."""
    return pa.field(name, kind, nullable=null, metadata={"comment": comment})


def columns(
    names: Iterable[str], comment: str, kind: pa.DataType | None = None, *, null: bool = True
) -> list[pa.Field]:
    """Columns of one meaning, for example one for each dimension; by default numbers."""
    return [column(name, kind or pa.float64(), comment, null=null) for name in names]


def list_of(kind: pa.DataType) -> pa.DataType:
    """A list type as Delta's: its items are called ``element``; DDL can't forbid nulls in it.

    >>> print(list_of(pa.string()))
    list<element: string>
    """
    return pa.list_(pa.field("element", kind))


_STAMP: Final = [
    column("epoch", pa.int64(), "bumped for each new checkpoint or owner"),
    column("seq", pa.int64(), "the round: id of the micro-batch"),
    column("round_at", TIMESTAMP, "the round's now"),
]
_DATE: Final = column(
    "date", pa.date32(), "UTC day of `round_at`; the partition that maintain expires"
)

CHECKPOINT_INTERVAL: Final = 25
# Measured (docs/adr/0004): an append costs 0.25 ms more for each commit since the last checkpoint,
# 0.03 ms for each old entry left in the log and 0.004 ms for each live file. So there are frequent
# checkpoints, the log is kept for minutes only (these tables need no time travel), and `maintain`
# compacts the files.
HOT: Final = {
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    "delta.enableExpiredLogCleanup": "true",
    "delta.logRetentionDuration": "interval 30 minutes",
    "delta.deletedFileRetentionDuration": "interval 30 minutes",
}


def appended(
    name: str,
    comment: str,
    columns: list[pa.Field],
    *,
    by_date: bool = False,
    by_group: bool = False,
) -> Table:
    """A table that a job appends to: the stamp of its round, then ``columns``."""
    stamp = [*_STAMP, _DATE] if by_date else _STAMP
    partitions = ("date",) if by_date else ()
    schema = pa.schema([*stamp, *columns])
    return Table(name, comment, schema, partitions, HOT, by_group=by_group)


_REPLACES: Final = b"replaces"


def replacing(rows: pa.Table, values: Iterable[int]) -> pa.Table:
    """Rows for a snapshot table that replace all rows with these values of its partition column.

    >>> rows = replacing(pa.table({"shard": [1]}), [0, 1])
    >>> replaced_by(rows)
    [0, 1]
    """
    return rows.replace_schema_metadata({_REPLACES: ",".join(map(str, values))})


def replaced_by(rows: pa.Table) -> list[int]:
    """The values whose rows are to be replaced: see ``replacing``; of other rows none."""
    values = (rows.schema.metadata or {}).get(_REPLACES, b"")
    return [int(value) for value in values.split(b",") if value]


def snapshot(name: str, comment: str, columns: list[pa.Field], *, by: str) -> Table:
    """A table whose rows a job replaces, by values of the column ``by``."""
    schema = pa.schema([*_STAMP, *columns])
    return Table(name, comment, schema, (by,), HOT, snapshot=True)
