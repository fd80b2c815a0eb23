"""What the tests of the audits have in common: a history by the second, and exact answers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from chispa import assert_df_equality
from pyspark.sql import DataFrame, SparkSession

from quotaplane.history.writer import HistoryWriter
from quotaplane.model import Round
from quotaplane.settings import History
from tests.unit.history_cases import NOON_MS, rounds


def at(second: float) -> datetime:
    return datetime.fromtimestamp(NOON_MS / 1000 + second, tz=timezone.utc)


def write(history: History, happened: Mapping[float, Mapping[str, Any]], epoch: int = 1) -> None:
    """Rounds by the second they happened at; each is its own seq."""
    with HistoryWriter(history, f"checkpoint-{epoch}") as writer:
        for seq, (second, tables) in enumerate(happened.items()):
            stamp = Round(epoch, seq, NOON_MS + int(second * 1000))
            writer.append_round(stamp, {**tables, "rounds": rounds()})


def check(
    spark: SparkSession, found: DataFrame, rows: Sequence[tuple[Any, ...]], schema: str
) -> None:
    wanted = spark.createDataFrame(list(rows), schema)
    assert_df_equality(found, wanted, ignore_nullable=True, ignore_metadata=True)
