"""The operator's inputs: changes of groups as packed events, by shard."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
from pyspark.errors import AnalysisException

from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.model import RATE_COLUMNS, group_id
from quotaplane.parsing.folders import spark_uri
from quotaplane.settings import History
from quotaplane.streams.operator import EVENT_SCHEMA
from quotaplane.streams.partition import keys_of_shards
from quotaplane.streams.query_failures import lost_table, names_lost_table
from quotaplane.streams.sources import Batches, Mapper, packed_events
from quotaplane.wire.shard_inputs import pack_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_GROUPS_AT_ONCE: Final = 50_000
"""Changes of groups that are packed together. Each pack has a payload for every shard, and Spark
sends 100 rows at a time: with many shards these would be payloads of a row or two."""
_GROUP_COLUMNS = ("resource_group", *RATE_COLUMNS, *POLICY_COLUMNS)


def _joined(batches: Batches) -> Iterator[pa.Table]:
    """The rows of some batches at a time, in their order; none has no rows."""
    ahead, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        ahead.append(batch)
        rows += batch.num_rows
        if rows >= _GROUPS_AT_ONCE:
            yield pa.Table.from_batches(ahead)
            ahead, rows = [], 0
    if rows:
        yield pa.Table.from_batches(ahead)


def _to_group_events(shards: int) -> Mapper:
    keys = keys_of_shards(shards)

    def to_events(batches: Batches) -> Iterator[pa.RecordBatch]:
        for rows in _joined(batches):
            names = rows["resource_group"].to_pylist()
            change = np.asarray(rows["_change_type"].to_pylist(), dtype=object)
            columns = {name: rows[name] for name in _GROUP_COLUMNS[1:]}
            columns["group"] = rows["resource_group"]
            columns["group_id"] = pa.array(map(group_id, names), pa.int64())
            columns["deleted"] = pa.array(change == "delete", pa.bool_())
            columns["version"] = rows["_commit_version"]
            yield packed_events("groups", pack_groups(pa.table(columns), shards), keys)

    return to_events


def group_events(spark: SparkSession, history: History, shards: int) -> DataFrame:
    """Read the change feed of ``resource_groups``: all existing rows first, then each change.

    Raises:
        HistoryError: the table is gone, which was there when the job began to start.
    """
    from quotaplane.history.store import table_uri  # executors start sooner without deltalake

    place = table_uri(history, "resource_groups")
    feed = spark.readStream.format("delta").option("readChangeFeed", "true")
    try:
        changes = feed.load(spark_uri(place))
    except AnalysisException as error:
        if names_lost_table(str(error)):
            raise lost_table(place) from None
        raise
    return (
        changes.where("_change_type <> 'update_preimage'")
        .select(*_GROUP_COLUMNS, "_change_type", "_commit_version")
        .mapInArrow(_to_group_events(shards), EVENT_SCHEMA)
    )
