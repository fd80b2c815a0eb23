"""Stream of the changes that `quotaplane groups` commits: each change once, as what it was."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from chispa import assert_approx_df_equality, assert_df_equality
from delta.tables import DeltaTable
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from quotaplane.cli.main import main
from quotaplane.deltalog.log import list_log
from quotaplane.errors import HistoryError
from quotaplane.history.maintenance import maintain
from quotaplane.history.store import table_uri
from quotaplane.model import RATE_COLUMNS
from quotaplane.query.spark_engine import register_views
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import History
from quotaplane.streams.group_events import group_events
from quotaplane.streams.query_failures import known_failure
from tests.unit.deltalog.broken_cases import added, checkpointed, cut
from tests.unit.deltalog.damage_cases import flip

NAN, INF = float("nan"), float("inf")
FOLLOWED = "_commit_version", "_change_type", "resource_group", "publish_messages_per_s", "mode"
CHANGED = "version", "changed_by", "change", "resource_group", "publish_messages_per_s"

Follow = Callable[[], list[tuple[Any, ...]]]


@pytest.fixture
def follow(spark: SparkSession, history: History, tmp_path: Path) -> Follow:
    """Runs the stream until it has caught up; what is new since it last ran, by version."""

    def follow() -> list[tuple[Any, ...]]:
        seen: list[tuple[Any, ...]] = []

        def note(batch: DataFrame, seq: int) -> None:
            seen.extend(tuple(row) for row in batch.select(*FOLLOWED).collect())

        feed = spark.readStream.format("delta").option("readChangeFeed", "true")
        query = (
            feed.load(table_uri(history, "resource_groups"))
            .writeStream.foreachBatch(note)
            .trigger(availableNow=True)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .start()
        )
        query.awaitTermination()
        return sorted(seen)

    return follow


def put(
    history: History,
    *groups: str,
    rate: float = 10.0,
    mode: str | None = None,
    by: str = "ann",
) -> None:
    policy = pa.table({"mode": pa.array([mode] * len(groups), pa.string())})
    quotas = np.array([[rate, *[NAN] * (len(RATE_COLUMNS) - 1)]] * len(groups))
    put_groups(history, groups, quotas, by, policy=policy)


def test_a_stream_follows_every_kind_of_change(history: History, follow: Follow) -> None:
    put(history, "a", "b")
    assert follow() == [(1, "insert", "a", 10.0, None), (1, "insert", "b", 10.0, None)]
    put(history, "a", rate=20.0, mode="soft")
    put(history, "a", rate=20.0, mode="soft", by="bob")  # the same again is no change
    put(history, "b", "c", rate=30.0)
    delete_groups(history, ["a"], "ann")
    put(history, "c", rate=INF)
    put(history, "c", rate=NAN, mode="shadow")
    assert follow() == [
        (2, "update_postimage", "a", 20.0, "soft"),
        (2, "update_preimage", "a", 10.0, None),
        (3, "insert", "c", 30.0, None),
        (3, "update_postimage", "b", 30.0, None),
        (3, "update_preimage", "b", 10.0, None),
        (4, "delete", "a", 20.0, "soft"),
        (5, "update_postimage", "c", None, None),
        (5, "update_preimage", "c", 30.0, None),
        (6, "update_postimage", "c", None, "shadow"),
        (6, "update_preimage", "c", None, None),
    ]
    assert follow() == []


def test_a_stream_that_starts_late_begins_with_what_there_is(
    history: History, follow: Follow
) -> None:
    put(history, "a", "b")
    put(history, "a", rate=20.0)
    delete_groups(history, ["b"], "ann")
    assert follow() == [(3, "insert", "a", 20.0, None)]


@pytest.mark.nightly
def test_a_stream_survives_maintenance(history: History, follow: Follow) -> None:
    for number in range(5):
        put(history, f"g{number}")
    assert len(follow()) == 5
    put(history, "g0", rate=20.0)
    maintain(history, datetime.now(timezone.utc) + timedelta(days=400), keep_days=1)
    put(history, "g1", rate=20.0)
    assert [row[1:4] for row in follow()] == [
        ("update_postimage", "g0", 20.0),
        ("update_preimage", "g0", 10.0),
        ("update_postimage", "g1", 20.0),
        ("update_preimage", "g1", 10.0),
    ]


@pytest.mark.nightly
def test_the_whole_feed_stays_readable_after_many_commits(
    spark: SparkSession, history: History
) -> None:
    for number in range(120):  # past a checkpoint of the log
        put(history, "a", rate=float(number))
    feed = spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    changes = feed.load(table_uri(history, "resource_groups"))
    found = changes.where("_change_type <> 'update_preimage'")
    assert_df_equality(
        found.select("_commit_version", "publish_messages_per_s"),
        spark.createDataFrame(
            [(number + 1, float(number)) for number in range(120)],
            "_commit_version long, publish_messages_per_s double",
        ),
        ignore_row_order=True,
        ignore_metadata=True,
    )


def test_the_view_tells_who_changed_what(spark: SparkSession, history: History) -> None:
    put(history, "a")
    put(history, "a", rate=20.0, by="bob")
    delete_groups(history, ["a"], "zed")
    register_views(spark, history)
    changes = spark.table("resource_group_changes").orderBy("version", "change")
    assert_df_equality(
        changes.select(*CHANGED),
        spark.createDataFrame(
            [
                (1, "ann", "insert", "a", 10.0),
                (2, "bob", "update_postimage", "a", 20.0),
                (2, "bob", "update_preimage", "a", 10.0),
                (3, "zed", "delete", "a", 20.0),
            ],
            "version long, changed_by string, change string, resource_group string, "
            "publish_messages_per_s double",
        ),
        ignore_nullable=True,
        ignore_metadata=True,
    )
    commits = DeltaTable.forPath(spark, table_uri(history, "resource_groups")).history()
    # The feed has the time of the commit's file, the log's history the writer's.
    assert_approx_df_equality(
        changes.selectExpr("version", "CAST(changed_at AS double) AS at_s").distinct(),
        commits.where("version > 0").selectExpr("version", "CAST(timestamp AS double) AS at_s"),
        precision=1.0,
        ignore_nullable=True,
        ignore_row_order=True,
    )


@pytest.mark.nightly
@pytest.mark.parametrize("broken", [2, 3])
def test_a_stream_goes_on_behind_a_table_that_was_mended(
    spark: SparkSession, history: History, follow: Follow, broken: int
) -> None:
    """Versions are not used again: it would pass over a change with the number of a lost one."""
    table = Path(history.path) / "resource_groups"
    for rate in (10.0, 20.0, 30.0):
        put(history, "a", rate=rate)
    assert len(follow()) == 1
    list_log(table).commit(broken).write_bytes(b"")
    assert main(["doctor", "--mend", "--history", history.path]) == 11
    left = 10.0 * (broken - 1)
    assert_df_equality(
        DeltaTable.forPath(spark, str(table)).toDF().select("publish_messages_per_s"),
        spark.createDataFrame([(left,)], "publish_messages_per_s double"),
        ignore_metadata=True,
    )
    assert follow() == []
    put(history, "a", rate=40.0)
    assert follow() == [
        (4, "update_postimage", "a", 40.0, None),
        (4, "update_preimage", "a", left, None),
    ]
    assert [change["to"]["publish_messages_per_s"] for change in group_changes(history)][-1] == 40.0
    register_views(spark, history)
    assert spark.table("resource_group_changes").where("version = 4").count() == 2


@pytest.mark.nightly
def test_a_stream_goes_on_behind_a_file_that_was_taken_out(
    history: History, follow: Follow
) -> None:
    """Its rows are lost, which is no change; restoring them is one."""
    table = Path(history.path) / "resource_groups"
    put(history, "a", rate=10.0)
    damaged = added(table, 1)
    put(history, "b", rate=20.0)
    checkpointed(table)
    assert len(follow()) == 2
    flip(damaged)
    assert main(["doctor", "--mend", "--history", history.path]) == 11
    assert follow() == []
    assert main(["groups", "restore", "--from-history", "--history", history.path]) == 0
    assert follow() == [(4, "insert", "a", 10.0, None)]


@pytest.mark.parametrize("damage", [Path.unlink, cut], ids=["missing", "damaged"])
def test_a_lost_data_file_is_a_known_end(
    history: History, follow: Follow, damage: Callable[[Path], object]
) -> None:
    put(history, "a")
    damage(added(Path(table_uri(history, "resource_groups")), 1))
    with pytest.raises(StreamingQueryException) as caught:
        follow()
    known = known_failure(str(caught.value))
    assert isinstance(known, HistoryError), str(caught.value)
    assert re.search(r"table resource_groups at .*\.parquet is missing or damaged", str(known))


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "an empty log"])
def test_a_table_that_goes_away_while_the_job_starts_is_one_line(
    spark: SparkSession, history: History, tmp_path: Path, left: str
) -> None:
    table = Path(table_uri(history, "resource_groups"))
    table.rename(tmp_path / "away")
    if left != "nothing":
        (table / "_delta_log" if left == "an empty log" else table).mkdir(parents=True)
    with pytest.raises(HistoryError, match=r"history table resource_groups at .* is missing"):
        group_events(spark, history, shards=1)
