"""A table and a stream of events get the answers of the pure step, over restarts and changes."""

from __future__ import annotations

import argparse
import json
import shutil
import time
from collections.abc import Iterator
from datetime import datetime, timezone
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from chispa import assert_df_equality
from deltalake import write_deltalake
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from quotaplane.errors import InputError
from quotaplane.model import DIMENSIONS, FloatArray
from quotaplane.registry.table import delete_groups, put_groups
from quotaplane.settings import History, parse_settings
from quotaplane.streams.sources import group_events
from quotaplane.streams.throttle.dry_run import add_options, dry_run
from quotaplane.streams.throttle.frames import (
    Throttled,
    definitions_from,
    throttle_stream,
    throttle_table,
    totals,
)
from quotaplane.streams.throttle.job import request_events
from quotaplane.throttle.entities import begin
from quotaplane.throttle.requests import Bounds
from quotaplane.throttle.step import Decided, decide

T0 = 1_690_000_000_000
BOUNDS = Bounds(late_ms=60_000, ahead_ms=30_000)
SHARDS = 2
DEFINITIONS = pa.table(
    {
        "group": ["a", "b", "c", "d"],
        "publish_messages_per_s": [5.0, 5.0, 5.0, None],
        "publish_bytes_per_s": [1.0, None, 100.0, None],
        "throttle": [
            None,
            '{"*": {"mode": "hard"}}',
            '{"*": {"law": "windowed_rate", "mode": "hard"}}',
            '{"*": {"law": "sliding_window"}}',
        ],
    }
)


def recorded(n: int, seed: int = 1) -> pa.Table:
    """n events in the order of time and of position; one in ten is of nobody that has a quota."""
    random = np.random.default_rng(seed)
    at_us = (T0 + np.sort(random.integers(0, 20_000, n))) * 1000
    return pa.table(
        {
            "entity": random.choice(["a", "b", "c", "d", "nobody"], n),
            "at": pa.array(at_us, pa.timestamp("us", "UTC")),
            "units": random.choice([0.0, 1.0, 2.5, 9.0], n),
            "dimension": random.choice(np.array([None, "publish_bytes"], object), n),
            "position": [f"t/0@{number}" for number in range(n)],
            "tag": np.arange(n),
        }
    )


def by_the_step(events: pa.Table, definitions: pa.Table = DEFINITIONS) -> Decided:
    at_ms = events["at"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    _, decided = decide(begin(definitions), events.append_column("at_ms", at_ms), 2 * T0, BOUNDS)
    return decided


def same(got: DataFrame, expected: pa.Table) -> None:
    as_frame = got.sparkSession.createDataFrame(expected.select(got.columns))
    assert_df_equality(
        got, as_frame, ignore_row_order=True, ignore_nullable=True, allow_nan_equality=False
    )


def test_a_table_gets_the_answers_of_the_step(spark: SparkSession) -> None:
    events = recorded(2_000)
    mixed = events.take(pa.array(np.random.default_rng(2).permutation(len(events))))
    bad = pa.table(
        {
            "entity": [None, "a", "b"],
            "at": pa.array([T0 * 1000, None, T0 * 1000], events.schema.field("at").type),
            "units": [1.0, 1.0, -1.0],
            "dimension": pa.nulls(3, pa.string()),
            "position": ["bad@1", "bad@2", "bad@3"],
            "tag": [-1, -2, -3],
        }
    )
    told = throttle_table(
        spark.createDataFrame(pa.concat_tables([mixed, bad])), DEFINITIONS, BOUNDS
    )
    expected = by_the_step(events)
    same(told.decisions(), expected.decisions)
    rejected = told.rejected().select("tag", "reason").orderBy("tag").collect()
    assert [tuple(row) for row in rejected] == [
        (-3, "bad_units"),
        (-2, "no_time"),
        (-1, "no_entity"),
    ]
    metrics = expected.metrics
    for name in ("since", "until"):
        at = metrics[f"{name}_ms"].cast(pa.timestamp("ms", "UTC")).cast(pa.timestamp("us", "UTC"))
        metrics = metrics.append_column(name, at)
    same(totals(told.metrics()), metrics)


def test_a_message_is_one_event_and_nothing_else(spark: SparkSession) -> None:
    one = '{"entity": "a", "at_ms": 5, "units": 1, "id": "x", "more": {"b": [1]}}'
    good = [one, f" {one}\n", '{"entity": "a", "at_ms": 5, "units": 1e17}']
    bad = [one + one, f"{one}\n{one}", f"{one},{one}", one + "]", one + "}", one + "x", one[:-1]]
    bad += [f"[{one}]", f"{one}]{one}", "", "1", "null", '"a"']
    bad += [one.replace('"x"', '"' + "x" * (64 << 10) + '"')]
    odd = [one.replace("1,", f"{units},") for units in ("NaN", "Infinity", "-Infinity", "1e999")]
    values = [(text.encode(), str(n)) for n, text in enumerate(good + bad + odd)]
    read = request_events(spark.createDataFrame(values, "value binary, position string"))
    rows = sorted(read.collect(), key=lambda row: int(row["position"]))
    told = [(row["entity"], row["raw"]) for row in rows]
    expected = [(None, text) for text in bad] + [("a", text) for text in odd]
    assert told[:3] == [("a", None)] * 3
    assert told[3:] == [(name, text.encode()[:4096]) for name, text in expected]
    said = {name: [row[name] for row in rows] for name in ("entity", "units")}
    _, decided = decide(begin(), pa.table({**said, "at_ms": [5] * len(rows)}), T0, BOUNDS)
    assert decided.rejected["reason"].to_pylist() == ["no_entity"] * len(bad) + ["bad_units"] * 4


def test_definitions_may_be_a_frame_of_spark_or_pandas(spark: SparkSession) -> None:
    events = spark.createDataFrame(recorded(50))
    for given in (spark.createDataFrame(DEFINITIONS), DEFINITIONS.to_pandas()):
        assert definitions_from(given).equals(begin(DEFINITIONS).definitions)
    told = throttle_table(events, pd.DataFrame({"group": ["a"]}), BOUNDS)
    assert told.decisions().where("balance IS NOT NULL").count() == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda events: events.drop("units"), "events: column units is missing"),
        (
            lambda events: events.withColumn("at", F.col("tag")),
            "events: column at must be a timestamp, not bigint",
        ),
        (
            lambda events: events.withColumn("admitted", F.lit(1)),
            "events: column admitted has the name of a column that is added",
        ),
        (
            lambda events: events.withColumn("Admitted", F.lit(1)),
            "events: column Admitted has the name of a column that is added",
        ),
        (
            lambda events: events.withColumnRenamed("units", "Units"),
            "events: column Units must be called units",
        ),
    ],
)
def test_events_of_another_form_are_refused(spark: SparkSession, change: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^{message}$"):
        throttle_table(change(spark.createDataFrame(recorded(1))), DEFINITIONS, BOUNDS)


def test_definitions_of_another_form_are_refused() -> None:
    with pytest.raises(InputError, match="definitions: column group is missing"):
        definitions_from(pa.table({"name": ["a"]}))
    with pytest.raises(InputError, match="definitions: group 'a' is defined twice"):
        definitions_from(pa.table({"group": ["a", "b", "a"]}))


def quotas_of(*messages_per_s: float) -> FloatArray:
    quotas = np.full((len(messages_per_s), len(DIMENSIONS)), np.inf)
    quotas[:, 0] = messages_per_s
    return quotas


class Stream:
    """Events as appends to a Delta table, one micro-batch each; what was answered is kept."""

    def __init__(self, spark: SparkSession, folder: Path, definitions: Any) -> None:
        self._spark, self._folder, self._definitions = spark, folder, definitions
        self.decisions: dict[int, pa.Table] = {}
        self.rejected: dict[int, pa.Table] = {}
        self.metrics: dict[int, pa.Table] = {}

    def send(self, *parts: pa.Table) -> None:
        for part in parts:
            write_deltalake(self._folder / "events", part, mode="append")

    def run(self) -> None:
        events = (
            self._spark.readStream.format("delta")
            .option("maxFilesPerTrigger", 1)
            .load(str(self._folder / "events"))
        )
        definitions = self._definitions() if callable(self._definitions) else self._definitions
        told = throttle_stream(events, definitions, BOUNDS, shards=SHARDS)

        def keep(outputs: DataFrame, number: int) -> None:
            one: Throttled = told.of(outputs.persist())
            self.decisions[number] = one.decisions().toArrow()
            self.rejected[number] = one.rejected().toArrow()
            self.metrics[number] = one.metrics().toArrow()
            outputs.unpersist()

        query = (
            told.outputs.writeStream.foreachBatch(keep)
            .option("checkpointLocation", str(self._folder / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(300)

    def undo(self) -> int:
        """As if the job had died before it committed its last batch."""
        commits = self._folder / "checkpoint" / "commits"
        last = max(int(path.name) for path in commits.glob("[0-9]*"))
        for name in (str(last), f".{last}.crc"):
            (commits / name).unlink()
        return last

    @property
    def all_decisions(self) -> pa.Table:
        return pa.concat_tables(self.decisions.values()).sort_by("tag")


@pytest.fixture
def stream(spark: SparkSession, tmp_path: Path) -> Stream:
    return Stream(spark, tmp_path, DEFINITIONS)


def in_parts(events: pa.Table, *cuts: int) -> list[pa.Table]:
    edges = [0, *cuts, len(events)]
    return [events.slice(a, b - a) for a, b in pairwise(edges)]


def test_a_stream_gets_the_answers_of_the_step_over_restarts_too(stream: Stream) -> None:
    events = recorded(600)
    first, second, third, fourth = in_parts(events, 250, 300, 301)
    stream.send(first, second)
    stream.run()
    stream.send(third, fourth)
    stream.run()
    expected = by_the_step(events).decisions
    assert stream.all_decisions.equals(
        expected.select(stream.all_decisions.column_names).cast(stream.all_decisions.schema)
    )

    last = stream.undo()
    before = stream.decisions.pop(last).sort_by("tag"), stream.metrics.pop(last).sort_by("entity")
    stream.run()
    assert stream.decisions[last].sort_by("tag").equals(before[0])
    assert stream.metrics[last].num_rows == before[1].num_rows


def test_what_is_late_is_answered_or_a_dead_letter(stream: Stream) -> None:
    def one(entity: str, after_ms: int, tag: int) -> pa.Table:
        at = datetime.fromtimestamp((T0 + after_ms) / 1000, timezone.utc)
        row = {"entity": entity, "at": at, "units": 2.0, "tag": tag}
        return pa.Table.from_pylist(
            [row], schema=pa.schema([recorded(0).schema.field(n) for n in row])
        )

    stream.send(one("a", 70_000, 0), one("a", 69_000, 1), one("a", 9_000, 2), one("b", 0, 3))
    stream.run()
    got = stream.all_decisions.select(["tag", "balance", "late_ms"]).to_pylist()
    assert [tuple(row.values()) for row in got] == [(0, 3.0, 0), (1, 1.0, 1000), (3, 3.0, 0)]
    rejected = pa.concat_tables(stream.rejected.values())
    assert rejected.select(["tag", "reason"]).to_pylist() == [{"tag": 2, "reason": "too_late"}]


def test_a_quota_that_is_changed_holds_from_the_next_batch_on(
    spark: SparkSession, history: History, tmp_path: Path
) -> None:
    put_groups(history, ["a", "b"], quotas_of(5.0, 5.0), "ann")
    stream = Stream(spark, tmp_path, lambda: group_events(spark, history, SHARDS))

    def send(after_s: int) -> list[tuple[Any, ...]]:
        stream.decisions.clear()
        at = pa.array([(T0 + after_s * 1000) * 1000] * 2, pa.timestamp("us", "UTC"))
        stream.send(pa.table({"entity": ["a", "b"], "at": at, "units": [4.0, 4.0], "tag": [0, 1]}))
        stream.run()
        return [tuple(row.values())[4:7] for row in stream.all_decisions.to_pylist()]

    assert send(0) == [(True, 0, 1.0), (True, 0, 1.0)]
    hard = pa.table({"throttle": ['{"*": {"mode": "hard"}}']})
    put_groups(history, ["a"], quotas_of(1.0), "ann", policy=hard)
    assert send(0) == [(True, 0, -3.0), (True, 600, -3.0)]
    assert send(1) == [(False, 2000, -2.0), (True, 400, -2.0)]
    delete_groups(history, ["a"], "ann")
    assert send(1) == [(True, 0, None), (True, 1200, -6.0)]


@pytest.fixture
def in_tokyo(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        patched.setenv("TZ", "Asia/Tokyo")
        time.tzset()
        yield
    time.tzset()


def tried(spark: SparkSession, *options: str) -> str:
    parser = argparse.ArgumentParser()
    add_options(parser)
    settings = parse_settings(
        {"transport": {"kind": "delta", "path": "t"}, "history": {"path": "h"}, "checkpoint": "c"}
    )
    return dry_run(spark, settings, DEFINITIONS, parser.parse_args(options))


def test_a_dry_run_writes_what_came_of_it_and_sums_it_up(
    spark: SparkSession, tmp_path: Path, in_tokyo: None
) -> None:
    events = recorded(500)
    in_delta, in_parquet = str(tmp_path / "delta"), str(tmp_path / "events.parquet")
    write_deltalake(in_delta, events)
    pq.write_table(events, in_parquet)
    out = str(tmp_path / "out")
    found = json.loads(tried(spark, "--events", in_delta, "--out", out, "--json"))

    expected = by_the_step(events)
    same(spark.read.format("delta").load(f"{out}/decisions"), expected.decisions)
    refused = expected.decisions.filter(pc.invert(expected.decisions["admitted"]))
    delayed = pc.sum(expected.metrics["delayed"]).as_py()
    assert (found["events"], found["refused"], found["delayed"]) == (500, len(refused), delayed)
    assert found["units_refused"] == pc.sum(refused["units"]).as_py()
    assert found["rejected"] == {}
    b = next(row for row in found["most"] if (row["entity"], row["quota_per_s"]) == ("b", 5.0))
    assert b["refused"] == len(refused.filter(pc.equal(refused["entity"], "b")))
    assert spark.read.format("delta").load(f"{out}/metrics").count() == len(expected.metrics)
    assert spark.read.format("delta").load(f"{out}/rejected").count() == 0

    for name in ("decisions", "metrics", "rejected"):
        with pytest.raises(InputError, match=f"has a table {name} already; use another folder"):
            tried(spark, "--events", in_parquet, "--out", out)
        shutil.rmtree(f"{out}/{name}")
    lines = tried(spark, "--events", in_parquet, "--table").splitlines()
    assert lines[0].startswith("500 events of 10 entities, from 2023-07-22T04:2")
    assert lines[2].split()[:2] == ["entity", "dimension"]


def test_a_dry_run_of_nothing_or_of_what_is_not_there(spark: SparkSession, tmp_path: Path) -> None:
    write_deltalake(tmp_path / "empty", recorded(0))
    text = tried(spark, "--events", str(tmp_path / "empty"), "--table")
    assert text.startswith("0 events of 0 entities")
    with pytest.raises(InputError, match=r"--events: .*/none: can't be read: \[PATH_NOT_FOUND\]"):
        tried(spark, "--events", str(tmp_path / "none"))


def test_what_pandas_writes_by_default_is_told_how_to_write(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Spark reads no nanoseconds."""
    at = pa.array([0], pa.timestamp("ns", tz="UTC"))
    pq.write_table(
        pa.table({"entity": ["a"], "at": at, "units": [1.0]}), tmp_path / "nanos.parquet"
    )
    with pytest.raises(InputError, match=r"pandas: to_parquet\(\.\.\., coerce_timestamps='us'\)"):
        tried(spark, "--events", str(tmp_path / "nanos.parquet"))
