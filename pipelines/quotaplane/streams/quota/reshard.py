"""``quotaplane reshard``: the quota job's checkpoint with another number of shards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quotaplane.history.commits import optimistically
from quotaplane.history.tables import LEASES
from quotaplane.quota.config import OWN_SINCE
from quotaplane.quota.resharded_states import resharded
from quotaplane.quota.state import ShardState
from quotaplane.settings import Settings
from quotaplane.streams.checkpoint import Checkpoint
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.resharded_folder import reshard

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def reshard_quota_job(spark: SparkSession, settings: Settings, shards: int, to: str) -> Checkpoint:
    """Make the checkpoint ``to`` with so many shards; see ``streams.resharded_folder``.

    Raises:
        ConfigError: the checkpoint in the settings can't be used, or is in use; ``to`` is there.
        HistoryError: the history, or a state, can't be read.
    """
    new = QuotaSpec(settings.model_copy(update={"shards": shards, "checkpoint": to}))

    def redistribute(states: Sequence[ShardState], program: Any) -> Sequence[ShardState]:
        return resharded(states, shards, program.program.step)

    made = reshard(spark, QuotaSpec(settings), new, redistribute, _note)
    # The job replaces the rows of the shards that there are.
    more = f"shard >= {shards}"
    optimistically(settings.history, LEASES, lambda opened: opened.delete(more))
    return made


def _note(old: Checkpoint) -> Mapping[str, Any]:
    """Limits of the old epoch are its own; for the rest, it is the same checkpoint."""
    return {**old.note, OWN_SINCE: old.note.get(OWN_SINCE) or old.epoch}
