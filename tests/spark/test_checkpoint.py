"""The checkpoint folder's note: what a checkpoint may not be started again with."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from py4j.clientserver import ClientServerConnection
from pyspark.sql import SparkSession

from quotaplane.errors import ConfigError, DeposedError, HistoryError, QuotaplaneError
from quotaplane.streams.checkpoint import Checkpoint, CheckpointFolder
from quotaplane.streams.quota.job import QuotaSpec
from tests.histories import make_history
from tests.job import settings_in


def spec(tmp_path: Path, strict_lease_s: float | None) -> QuotaSpec:
    limits = {} if strict_lease_s is None else {"transition": "strict", "lease_s": strict_lease_s}
    second = {"interval_s": 1}
    return QuotaSpec(
        settings_in(
            tmp_path, checkpoint=str(tmp_path), reports=second, trigger=second, limits=limits
        )
    )


def opened(
    spark: SparkSession,
    tmp_path: Path,
    *,
    shards: int = 2,
    epoch: int = 8,
    strict_lease_s: float | None = None,
) -> Checkpoint:
    """Checkpoint from which a job with these settings goes on."""
    job = spec(tmp_path, strict_lease_s)
    folder = CheckpointFolder(spark, job.checkpoint)
    make_history(job.settings.history)
    found = folder.open(shards, lambda checkpoint_id: epoch, job.checkpoint_note)
    job.accept(found)
    return found


@pytest.mark.parametrize("strict_lease_s", [None, 60.0])
def test_a_folder_opened_again_is_the_same_checkpoint(
    spark: SparkSession, tmp_path: Path, strict_lease_s: float | None
) -> None:
    first = opened(spark, tmp_path, epoch=7, strict_lease_s=strict_lease_s)
    again = opened(spark, tmp_path, strict_lease_s=strict_lease_s)
    assert (first, again.epoch) == (again, 7)


def test_a_process_that_was_frozen_while_it_started_leaves_the_note_of_the_one_that_went_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    job = spec(tmp_path, None)
    make_history(job.settings.history)

    def frozen_meanwhile(checkpoint_id: str) -> int:
        opened(spark, tmp_path, epoch=9)
        return 8

    with pytest.raises(DeposedError, match="another process started in it"):
        CheckpointFolder(spark, job.checkpoint).open(2, frozen_meanwhile, job.checkpoint_note)
    assert opened(spark, tmp_path).epoch == 9


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
    opened(spark, tmp_path, epoch=7, strict_lease_s=60.0)
    with pytest.raises(ConfigError, match=message):
        opened(spark, tmp_path, shards=shards, strict_lease_s=strict_lease_s)
    assert opened(spark, tmp_path, strict_lease_s=60.0).epoch == 7


def test_a_note_from_before_there_was_strict_goes_on_fast(
    spark: SparkSession, tmp_path: Path
) -> None:
    (tmp_path / "quotaplane.json").write_text('{"id": "x", "epoch": 3, "shards": 2}')
    assert opened(spark, tmp_path).id == "x"
    with pytest.raises(ConfigError, match="transition fast, not transition strict"):
        opened(spark, tmp_path, strict_lease_s=120.0)


@pytest.mark.parametrize("note", ["{", "[]", '{"epoch": 3, "shards": 2}'])
def test_a_broken_note_is_one_line(spark: SparkSession, tmp_path: Path, note: str) -> None:
    (tmp_path / "quotaplane.json").write_text(note)
    with pytest.raises(ConfigError, match="can't be used") as caught:
        opened(spark, tmp_path)
    assert "\n" not in str(caught.value)


def test_a_folder_that_the_disk_does_not_let_one_make_is_an_error_of_the_disk(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkdir(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(Path, "mkdir", mkdir)
    with pytest.raises(HistoryError, match="No space left on device; the disk is full"):
        CheckpointFolder(spark, str(tmp_path / "checkpoint")).open(2, lambda _: 7, {})


def test_the_record_of_a_batch_is_put_on_the_disk_before_anything_is_published(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    offsets = tmp_path / "checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    synced: list[Path] = []
    monkeypatch.setattr("quotaplane.streams.checkpoint.fsync", synced.append)
    for path in (str(tmp_path / "checkpoint"), f"file://{tmp_path}/checkpoint/"):
        folder = CheckpointFolder(spark, path)
        folder.write("offsets/7", "v1")
        synced.clear()
        folder.sync(7)
        assert synced == [offsets / "7", offsets / ".7.crc", offsets]

    def broken(path: Path) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr("quotaplane.streams.checkpoint.fsync", broken)
    with pytest.raises(QuotaplaneError, match=r"batch 7 is not safe on the disk.*Input/output"):
        folder.sync(7)


def test_offsets_on_a_local_disk_are_read_without_the_jvm(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every round reads some, and a file takes ten calls of the JVM."""
    offsets = tmp_path / "offsets"
    offsets.mkdir()
    for seq in (0, 1):
        (offsets / str(seq)).write_text(
            f'v1\n{{"batchTimestampMs":{seq}}}\n{{"r":{{"0":{seq}}}}}\n-'
        )
    folder = CheckpointFolder(spark, str(tmp_path))
    monkeypatch.setattr(ClientServerConnection, "send_command", None)
    assert folder.positions(1) == {"from": [{"r": {"0": 0}}, None], "to": [{"r": {"0": 1}}, None]}
    assert folder.now_ms(1) == 1


@pytest.mark.parametrize("is_local", [True, False])
def test_a_sign_of_life_replaces_the_one_before(
    spark: SparkSession, tmp_path: Path, is_local: bool
) -> None:
    folder = CheckpointFolder(spark, str(tmp_path / "new"))
    if not is_local:
        folder._local = None
    for text in ("first", "second"):
        folder.put("heartbeat.json", text)
        assert folder.read("heartbeat.json") == text
    assert folder.newest_batch() is None
    folder.delete("heartbeat.json")
    assert folder.read("heartbeat.json") is None
