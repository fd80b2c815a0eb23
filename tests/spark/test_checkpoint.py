"""The checkpoint folder's note: what a checkpoint may not be started again with."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quotaplane.errors import ConfigError
from quotaplane.streams.checkpoint import CheckpointFolder


@pytest.mark.parametrize("strict_lease_s", [None, 60.0])
def test_a_folder_opened_again_is_the_same_checkpoint(
    spark: SparkSession, tmp_path: Path, strict_lease_s: float | None
) -> None:
    first = CheckpointFolder(spark, str(tmp_path)).open(2, 7, strict_lease_s)
    again = CheckpointFolder(spark, str(tmp_path)).open(2, 8, strict_lease_s)
    assert (first, again.epoch) == (again, 7)


@pytest.mark.parametrize(
    ("shards", "strict_lease_s", "message"),
    [
        (3, 60.0, "shards: .* was started with 2, not 3"),
        (2, None, "limits: .*transition strict and lease_s 60, not transition fast; .*new"),
        (2, 30.0, "limits: .*lease_s 60, not transition strict and lease_s 30"),
    ],
)
def test_what_a_checkpoint_cannot_go_on_with_is_told(
    spark: SparkSession, tmp_path: Path, shards: int, strict_lease_s: float | None, message: str
) -> None:
    folder = CheckpointFolder(spark, str(tmp_path))
    folder.open(2, 7, 60.0)
    with pytest.raises(ConfigError, match=message):
        folder.open(shards, 8, strict_lease_s)
    assert folder.open(2, 8, 60.0).epoch == 7


def test_a_note_from_before_there_was_strict_goes_on_fast(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "quotaplane.json").write_text('{"id": "x", "epoch": 3, "shards": 2}')
    folder = CheckpointFolder(spark, str(tmp_path))
    assert folder.open(2, 8, None).id == "x"
    with pytest.raises(ConfigError, match="transition fast, not transition strict"):
        folder.open(2, 8, 120.0)


def test_a_broken_note_is_one_line(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "quotaplane.json").write_text("{")
    with pytest.raises(ConfigError, match="can't be used") as caught:
        CheckpointFolder(spark, str(tmp_path)).open(2, 1, None)
    assert "\n" not in str(caught.value)
