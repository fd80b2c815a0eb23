"""A checkpoint with another number of shards: the job goes on as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from quotaplane.errors import ConfigError
from quotaplane.quota.state import ShardState
from quotaplane.quota.state_codec import load
from quotaplane.registry.table import delete_groups
from quotaplane.settings import Settings
from quotaplane.streams.checkpoint import CheckpointFolder
from quotaplane.streams.job import StreamJob
from quotaplane.streams.lifecycle import run_until_stopped
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.quota.reshard import reshard_quota_job
from quotaplane.streams.resharded_folder import stored_states
from tests.job import put_quotas, settings_in, stopped_when
from tests.spark.loops import QuotaLoop

pytestmark = pytest.mark.nightly

OTHERS = [f"g{number}" for number in range(8)]


class Loop(QuotaLoop):
    """A job that runs one batch at each start, on two shards."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        settings = settings_in(
            folder,
            trigger={"interval_s": 3600},
            reports={"interval_s": 3600},
            limits={"lease_s": 72_000},
        )
        super().__init__(spark, settings, quota=100.0)
        put_quotas(settings, **dict.fromkeys(OTHERS, 10.0))

    def batches(self) -> set[int]:
        commits = Path(self.settings.checkpoint) / "commits"
        return {int(file.name) for file in commits.glob("[0-9]*")}

    def run(self) -> None:
        """Run a batch."""
        before = self.batches()

        def start(skip_batch: int | None = None) -> StreamJob:
            return StreamJob(self.spark, QuotaSpec(self.settings), self.transport, skip_batch)

        with stopped_when(lambda: self.batches() - before):
            run_until_stopped(start, None)

    def reshard(self, shards: int) -> Settings:
        """Go on in a new checkpoint; returns the settings of before."""
        before = self.settings
        to = f"{before.checkpoint}-{shards}"
        reshard_quota_job(self.spark, before, shards, to)
        self.settings = before.model_copy(update={"checkpoint": to, "shards": shards})
        return before

    def states(self) -> list[ShardState]:
        """The states after the last batch."""
        folder = self.settings.checkpoint
        return [*map(load, stored_states(self.spark, folder, "shard", max(self.batches())))]

    def limits(self) -> dict[tuple[str, str], float]:
        """The limits in force, by group and broker."""
        return {
            (state.groups.names[group].as_py(), state.brokers.names[broker]): limit
            for state in self.states()
            for group, broker, limit in zip(
                state.leases.group.tolist(),
                state.leases.broker.tolist(),
                state.leases.limit[0].tolist(),
                strict=True,
            )
        }

    def quotas(self) -> dict[str, float | None]:
        """The quotas that the job knows; None: it knows no such group."""
        known = {
            name: quota
            for state in self.states()
            for name, quota in zip(
                state.groups.names.to_pylist(), state.groups.quota[0].tolist(), strict=True
            )
        }
        return dict.fromkeys(["g", *OTHERS]) | known

    def shards_of_leases(self) -> list[int]:
        return sorted({row["shard"] for row in self.rows("leases")})


def test_a_job_goes_on_with_more_shards_then_with_one(spark: SparkSession, tmp_path: Path) -> None:
    loop = Loop(spark, tmp_path)
    loop.report("a", "b", "c")
    loop.run()
    loop.report("a", "b", used=20.0)
    loop.run()
    before = loop.limits()
    assert set(before) == {("g", broker) for broker in "abc"}
    old = {file: file.read_bytes() for file in tmp_path.glob("checkpoint/**/*") if file.is_file()}

    put_quotas(loop.settings, g1=7.0)
    delete_groups(loop.settings.history, ["g2"], "test")
    loop.report("a", "b", "c")
    earlier = loop.reshard(3)
    assert loop.limits() == before
    assert len(loop.states()) == 3
    for state in loop.states():
        assert state.brokers.names == ("a", "b", "c")
        assert not state.learning.on
    names = [name for state in loop.states() for name in state.groups.names.to_pylist()]
    assert sorted(names) == sorted(["g", *OTHERS])
    now = {file: file.read_bytes() for file in tmp_path.glob("checkpoint/**/*") if file.is_file()}
    assert now == old
    timers = (
        spark.read.format("statestore")
        .options(path=loop.settings.checkpoint, readRegisteredTimers=True)
        .load()
    )
    assert timers.count() == 3

    with pytest.raises(ConfigError, match="another checkpoint has been started since"):
        StreamJob(spark, QuotaSpec(earlier), loop.transport)
    loop.run()
    rounds = loop.rows("rounds")
    assert sorted(row["seq"] for row in rounds) == [0, 1, 2]
    assert len({row["epoch"] for row in rounds}) == 2
    assert len(loop.rows("usage")) == 3 + 2 + 3  # each report once
    assert loop.quotas() == {
        **dict.fromkeys(OTHERS, 10.0),
        "g": 100.0,
        "g1": 7.0,
        "g2": None,
    }

    before = loop.limits()
    loop.reshard(1)
    loop.report("a", "b", "c")
    loop.run()
    assert loop.limits() == pytest.approx(before)
    assert len(loop.rows("usage")) == 3 + 2 + 3 + 3
    assert loop.shards_of_leases() == [0]


def test_a_checkpoint_that_is_in_use_or_not_at_rest_is_refused(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loop(spark, tmp_path)
    with pytest.raises(ConfigError, match="no job has finished a batch in it"):
        loop.reshard(3)
    loop.report("a")
    loop.run()
    folder = CheckpointFolder(spark, loop.settings.checkpoint)
    (tmp_path / "checkpoint-3").mkdir()
    with pytest.raises(ConfigError, match="there is something already"):
        loop.reshard(3)
    (tmp_path / "checkpoint-3").rmdir()

    def batch_begins(self: QuotaSpec, checkpoint_id: str) -> int:
        folder.write("offsets/1", folder.entry(0) or "")
        return claim(self, checkpoint_id)

    claim = QuotaSpec.new_epoch
    with monkeypatch.context() as patch:
        patch.setattr(QuotaSpec, "new_epoch", batch_begins)
        with pytest.raises(ConfigError, match="a job ran in it meanwhile"):
            loop.reshard(3)
    assert not (tmp_path / "checkpoint-3").exists()
    # The job that began the batch has lost the lead, so it published nothing.
    loop.reshard(3)
    loop.report("b")
    loop.run()
    assert max(loop.batches()) == 1

    folder = CheckpointFolder(spark, loop.settings.checkpoint)
    folder.write("offsets/2", folder.entry(1) or "")
    with pytest.raises(ConfigError, match="batch 2 is not finished: start the job"):
        loop.reshard(2)
