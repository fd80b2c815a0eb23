"""What goes into the operator: reports and quota changes as packed events, by shard."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyspark import TaskContext

from quotaplane.history.store import table_uri
from quotaplane.model import RATE_COLUMNS, IntArray, group_id
from quotaplane.packing import pack
from quotaplane.policy import POLICY_COLUMNS
from quotaplane.settings import History, Reports, Settings
from quotaplane.streams.operator import EVENT_SCHEMA
from quotaplane.streams.partition import keys_of_shards
from quotaplane.wire.events import pack_groups, pack_reports
from quotaplane.wire.reports import decode

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Batches = Iterable[pa.RecordBatch]
Mapper = Callable[[Batches], Iterator[pa.RecordBatch]]

_GROUP_COLUMNS = ("group", *RATE_COLUMNS, *POLICY_COLUMNS)


def packed_events(
    kind: str, payloads: Iterable[tuple[int, bytes]], keys: IntArray
) -> pa.RecordBatch:
    """Rows for the operator; a payload belongs to a shard, whose key it gets."""
    rows = list(payloads)
    return pa.record_batch(
        {
            "kind": pa.array([kind] * len(rows), pa.string()),
            "key": pa.array(keys[[shard for shard, _ in rows]], pa.int32()),
            "payload": pa.array([payload for _, payload in rows], pa.binary()),
        }
    )


def _to_report_events(reports: Reports, shards: int) -> Mapper:
    keys = keys_of_shards(shards)

    def to_events(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            decoded = decode(
                batch["value"].to_pylist(),
                batch["published_at_ms"].to_numpy(zero_copy_only=False),
                batch["position"].to_pylist(),
                now_ms=batch["now_ms"][0].as_py(),
                reports=reports,
            )
            yield packed_events("reports", pack_reports(decoded, shards), keys)
            if decoded.rejected.num_rows:
                # Any shard will do; each task of this stage takes another.
                shard = _partition_id() % shards
                yield packed_events("rejected", [(shard, pack(decoded.rejected))], keys)

    return to_events


def _partition_id() -> int:
    context = TaskContext.get()
    return 0 if context is None else context.partitionId()


def _to_group_events(shards: int) -> Mapper:
    keys = keys_of_shards(shards)

    def to_events(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            if not batch.num_rows:
                continue
            names = batch["group"].to_pylist()
            change = np.asarray(batch["_change_type"].to_pylist(), dtype=object)
            columns = {name: batch[name] for name in _GROUP_COLUMNS}
            columns["group_id"] = pa.array(map(group_id, names), pa.int64())
            columns["deleted"] = pa.array(change == "delete", pa.bool_())
            columns["version"] = batch["_commit_version"]
            yield packed_events("groups", pack_groups(pa.table(columns), shards), keys)

    return to_events


def report_events(reports: DataFrame, settings: Settings) -> DataFrame:
    """Decode reports (``value``, ``published_at_ms``, ``position``) into events.

    ``now`` is the micro-batch's own time, so that a batch run again decides the same.
    """
    return reports.selectExpr(
        "value", "published_at_ms", "position", "unix_millis(current_timestamp()) AS now_ms"
    ).mapInArrow(_to_report_events(settings.reports, settings.shards), EVENT_SCHEMA)


def group_events(spark: SparkSession, history: History, shards: int) -> DataFrame:
    """Follow the change feed of ``resource_groups``: first all rows there are, then each change."""
    feed = spark.readStream.format("delta").option("readChangeFeed", "true")
    changes = feed.load(table_uri(history, "resource_groups"))
    return (
        changes.where("_change_type <> 'update_preimage'")
        .select(*_GROUP_COLUMNS, "_change_type", "_commit_version")
        .mapInArrow(_to_group_events(shards), EVENT_SCHEMA)
    )
