"""The session that jobs and tests share, and the workers that it forks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import chispa
import pytest
from pyspark.sql import SparkSession

from quotaplane.errors import ConfigError
from quotaplane.streams.partition import keys_of_shards, partition_of
from quotaplane.streams.session import LAUNCHED_BY, build_session
from tests.spark.fixtures import JVM_OPTIONS


def test_settings_come_from_the_file_that_jobs_use(spark: SparkSession) -> None:
    file = Path(__file__).parents[2] / "conf" / "spark-defaults.conf"
    lines = [line.split(None, 1) for line in file.read_text("utf-8").splitlines()]
    wanted = {line[0]: line[1].strip() for line in lines if line and not line[0].startswith("#")}

    assert len(wanted) > 10
    found = spark.sparkContext.getConf()
    # Spark itself adds JVM options before the file's; for the driver, tests have their own.
    executors = "spark.executor.extraJavaOptions"
    for key, options in {
        "spark.driver.extraJavaOptions": JVM_OPTIONS,
        executors: wanted[executors],
    }.items():
        del wanted[key]
        assert (found.get(key) or "").endswith(options)
    assert {key: found.get(key) for key in wanted} == wanted


def test_workers_have_their_libraries_and_read_no_archives(spark: SparkSession) -> None:
    def look(_: Iterator[int]) -> list[tuple[list[str], list[str], str]]:
        archives = [*sys.path, *sys.path_importer_cache]
        archives = [entry for entry in archives if ".jar" in entry or "pyspark.zip" in entry]
        preloaded = [name for name in ("numpy", "pandas", "pyarrow") if name in sys.modules]
        return [(archives, preloaded, sys.executable)]

    seen = spark.sparkContext.parallelize([0], 1).mapPartitions(look).collect()

    assert seen == [([], ["numpy", "pandas", "pyarrow"], os.environ["PYSPARK_PYTHON"])]


def test_each_shard_has_a_shuffle_partition_of_its_own(spark: SparkSession) -> None:
    keys = list(range(-50, 200))
    rows = spark.createDataFrame([(key,) for key in keys], "key int")
    found = rows.selectExpr("key", "pmod(hash(key), 7) AS partition")
    by_us = zip(keys, partition_of(keys, 7).tolist(), strict=True)
    expected = spark.createDataFrame(by_us, "key int, partition int")
    chispa.assert_df_equality(found, expected, ignore_nullable=True, ignore_row_order=True)

    for shards in (1, 2, 7):
        keys = keys_of_shards(shards).tolist()
        shuffled = spark.createDataFrame([(key,) for key in keys], "key int")
        shuffled = shuffled.repartition(shards, "key").selectExpr("key", "spark_partition_id() p")
        where = {row.key: row.p for row in shuffled.collect()}
        assert [where[key] for key in keys] == list(range(shards))


def test_a_job_that_the_launcher_did_not_start_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(LAUNCHED_BY, raising=False)
    with pytest.raises(ConfigError, match=r"^quota: .*\./spark-submit\.sh JOB$"):
        build_session("quota")
