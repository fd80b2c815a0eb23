"""Tables between the decoder and the operator, and their form as bytes by shard.

A payload of reports is two Arrow IPC streams, one after the other: the headers of all reports of
the batch, then one shard's entries. Thus every shard sees every broker's heartbeat, whatever groups
the broker uses. Brokers that left their cluster's list are an input of their own: JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa

from quotaplane.arrow import pack, unpack
from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.model import (
    BASIC,
    COUNTER_COLUMNS,
    IN_FORCE_COLUMNS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    BoolArray,
    IntArray,
    shard_of,
)


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


HEADERS: Final = pa.schema(
    [
        _required("broker", pa.string()),
        _required("started_at_ms", pa.int64()),
        _required("sequence", pa.int64()),
        _required("published_at_ms", pa.int64()),
        _required("window_s", pa.float64()),
        _required("applied_epoch", pa.int64()),
        _required("applied_seq", pa.int64()),
        _required("uses_ids", pa.bool_()),
        _required("position", pa.string()),
    ]
)
"""One row per usable report. Stock reports have ``started_at_ms`` 0, ``sequence`` = the publish
time.

``applied_epoch`` and ``applied_seq`` are -1 if the broker has no limits yet or does not report
them.
"""

OBSERVED: Final = pa.field("observed", pa.bool_(), nullable=False)
"""A column of headers: another program made the report from the broker's counters."""

NAMED_EVERY: Final = pa.field("named_every", pa.int64(), nullable=False)
"""A column of headers: one of so many reports names each of the broker's groups; 0: each report."""

OPTIONAL_HEADERS: Final = (OBSERVED, NAMED_EVERY)
"""Columns that follow those of ``HEADERS``, in this order, if they are not 0 for some report of the
batch."""

ENTRIES: Final = pa.schema(
    [
        _required("report", pa.int32()),
        _required("group_id", pa.int64()),
        pa.field("group", pa.string()),
        *(_required(name, pa.float64()) for name in RATE_COLUMNS[:BASIC]),
    ]
)
"""One row per resource group in a report: ``report`` is its header's row; NaN: unchanged.

``group`` is null if the report has ids. Columns of ``OPTIONAL_ENTRIES`` follow if any report of the
batch has them.
"""

OPTIONAL_ENTRIES: Final = (
    RATE_COLUMNS[BASIC:],
    THROTTLED_COLUMNS[:BASIC],
    THROTTLED_COLUMNS[BASIC:],
    IN_FORCE_COLUMNS[: BASIC + 1],
    IN_FORCE_COLUMNS[BASIC + 1 :],
    COUNTER_COLUMNS[:BASIC],
    COUNTER_COLUMNS[BASIC:],
)
"""Sets of columns, each present as a whole or not at all, in this order; NaN: not reported.

The basic dimensions are separate from the others, which few brokers report.
"""


def entries_schema(*optional: tuple[str, ...]) -> pa.Schema:
    """The schema of entries with some of ``OPTIONAL_ENTRIES``."""
    names = [name for columns in optional for name in columns]
    return pa.schema([*ENTRIES, *(_required(name, pa.float64()) for name in names)])


REJECTED: Final = pa.schema(
    [
        _required("reason", pa.string()),
        _required("detail", pa.string()),
        _required("position", pa.string()),
        _required("published_at_ms", pa.int64()),
        _required("counts_as_bad", pa.bool_()),
        _required("reports", pa.int64()),
        _required("raw", pa.binary()),
        pa.field("sender", pa.string()),
    ]
)
"""One row per unusable report, or unusable part of one; ``reason`` is a code of ``reasons``.

``reports`` is the number of reports that the row stands for; ``position`` is the first one's.
``sender`` is the broker that the report names, if that could be read.
"""

GROUPS: Final = pa.schema(
    [
        _required("group", pa.string()),
        _required("group_id", pa.int64()),
        *(pa.field(name, pa.float64()) for name in RATE_COLUMNS),
        *(pa.field(name, kind) for name, kind in POLICY_COLUMNS.items()),
        _required("deleted", pa.bool_()),
        _required("version", pa.int64()),
    ]
)
"""One row per change of a resource group, valid from ``version`` on.

A null quota is unlimited; another null has the value in ``policy_options.DEFAULTS``.
"""


@dataclass(frozen=True)
class Decoded:
    """A batch of reports as tables: ``HEADERS``, ``ENTRIES`` (and optional ones), ``REJECTED``."""

    headers: pa.Table
    entries: pa.Table
    rejected: pa.Table


def pack_reports(decoded: Decoded, shards: int) -> list[tuple[int, bytes]]:
    """One payload per shard, in order; none if the batch has no usable report."""
    if not decoded.headers.num_rows:
        return []
    headers = pack(decoded.headers)
    parts = enumerate(_by_shard(decoded.entries, shards))
    return [(shard, headers + pack(part)) for shard, part in parts]


def unpack_reports(payloads: Sequence[bytes]) -> tuple[pa.Table, pa.Table]:
    """The headers and the entries of several payloads for one shard, joined.

    ``report`` is rebased to the joined headers. An optional column is present if any payload has
    it; the others' rows are NaN.
    """
    headers, entries, offset = [], [], 0
    for payload in payloads:
        head, part = unpack(payload)
        if offset:
            moved = pa.array(part["report"].to_numpy() + np.int32(offset))
            part = part.set_column(0, ENTRIES.field("report"), moved)
        offset += head.num_rows
        headers.append(head)
        entries.append(part)
    headers = _alike(headers)
    given = {name for part in entries for name in part.column_names}
    schema = entries_schema(*(columns for columns in OPTIONAL_ENTRIES if columns[0] in given))
    entries = [_with_columns(part, schema) for part in entries]
    if not payloads:
        return HEADERS.empty_table(), ENTRIES.empty_table()
    return pa.concat_tables(headers).combine_chunks(), pa.concat_tables(entries).combine_chunks()


def senders(headers: pa.Table) -> IntArray:
    """(n,) an index of each report's sender: its broker, or the enforcer that observes that one."""
    broker = headers["broker"].combine_chunks().dictionary_encode().indices.to_numpy()
    code: IntArray = 2 * broker.astype(np.int64)
    if OBSERVED.name in headers.column_names:
        code += headers[OBSERVED.name].to_numpy()
    return code


def some_reports(
    headers: pa.Table, entries: pa.Table, kept: BoolArray
) -> tuple[pa.Table, pa.Table]:
    """Only the reports ``kept`` (n,), with their entries."""
    report = entries["report"].to_numpy()
    row = pa.array((np.cumsum(kept) - 1)[report].astype(np.int32))
    entries = entries.set_column(0, ENTRIES.field("report"), row)
    remaining = entries.filter(pa.array(kept[report])).combine_chunks()
    return headers.filter(pa.array(kept)), remaining


def pack_groups(changes: pa.Table | pa.RecordBatch, shards: int) -> list[tuple[int, bytes]]:
    """Changes of groups (``GROUPS``, columns in any order) as a payload per shard with changes.

    Missing columns of quotas and of the policy count as null.
    """
    table = changes if isinstance(changes, pa.Table) else pa.Table.from_batches([changes])
    for field in GROUPS:
        if field.nullable and field.name not in table.column_names:
            table = table.append_column(field.name, pa.nulls(len(table), field.type))
    table = table.select(GROUPS.names).cast(GROUPS)
    return [
        (shard, pack(part)) for shard, part in enumerate(_by_shard(table, shards)) if part.num_rows
    ]


def unpack_groups(payloads: Sequence[bytes]) -> pa.Table:
    """The changes of several payloads as one table, in the payloads' order."""
    if not payloads:
        return GROUPS.empty_table()
    tables = [table for payload in payloads for table in unpack(payload)]
    return pa.concat_tables(tables).combine_chunks()


def _by_shard(table: pa.Table, shards: int) -> Iterator[pa.Table]:
    """Each shard's rows, sorted by id; rows with equal ids keep their order.

    The state is sorted by id, too, so the operator accesses its memory sequentially.
    """
    ids = table["group_id"].to_numpy()
    order = np.argsort(ids, kind="stable")
    shard = shard_of(ids[order], shards).astype(np.uint16)  # settings: at most 4096
    by_shard = np.argsort(shard, kind="stable")
    order, shard = order[by_shard], shard[by_shard]
    bounds = np.searchsorted(shard, np.arange(shards + 1)).tolist()
    for begin, end in pairwise(bounds):
        yield table.take(pa.array(order[begin:end]))


def _alike(headers: Sequence[pa.Table]) -> list[pa.Table]:
    """The headers, all with those of ``OPTIONAL_HEADERS`` that any has."""
    given = {name for part in headers for name in part.column_names}
    wanted = [field for field in OPTIONAL_HEADERS if field.name in given]
    return [_with_optional(part, wanted) for part in headers]


def _with_optional(headers: pa.Table, wanted: Sequence[pa.Field]) -> pa.Table:
    for field in wanted:
        if field.name not in headers.column_names:
            no = pa.array(np.zeros(headers.num_rows), pa.float64()).cast(field.type)
            headers = headers.append_column(field, no)
    return headers.select([*HEADERS.names, *(field.name for field in wanted)])


def _with_columns(entries: pa.Table, schema: pa.Schema) -> pa.Table:
    if entries.num_columns == len(schema):
        return entries
    unknown: Any = pa.array(np.full(entries.num_rows, np.nan))
    columns = [entries[name] if name in entries.column_names else unknown for name in schema.names]
    return pa.Table.from_arrays(columns, schema=schema)


START: Final = "start"
"""Kind of the input."""


def pack_start(first_seq: int) -> bytes:
    """Encode a job's start by its first round."""
    return str(first_seq).encode()


def unpack_start(payloads: Sequence[bytes]) -> int:
    """Decode the newest start; -1: there is none.

    >>> unpack_start([pack_start(7)]), unpack_start([])
    (7, -1)
    """
    return max(map(int, payloads), default=-1)


DEPARTURES: Final = "departures"
"""Kind of the input."""

_COLUMNS: Final = pa.schema(
    [
        pa.field("broker", pa.string(), nullable=False),
        pa.field("left_at_ms", pa.int64(), nullable=False),
    ]
)
"""A row per broker that is not in the cluster's list and was there; ``left_at_ms``: when the first
list without it was read."""


def pack_departures(left_at_ms: Mapping[str, int]) -> bytes:
    """Encode the departures by broker."""
    return json.dumps(left_at_ms, sort_keys=True).encode()


def unpack_departures(payloads: Sequence[bytes]) -> pa.Table:
    """Decode departures; each broker has one row.

    >>> unpack_departures([pack_departures({"b1": 7})]).to_pylist()
    [{'broker': 'b1', 'left_at_ms': 7}]
    """
    left_at_ms: dict[str, int] = {}
    for payload in payloads:
        left_at_ms |= json.loads(payload)
    return pa.table([list(left_at_ms), list(left_at_ms.values())], schema=_COLUMNS)
