"""``quotaplane reshard``: the quota job's checkpoint with another number of shards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from quotaplane.agents.conditions import Conditions
from quotaplane.errors import ConfigError
from quotaplane.history.commits import optimistically
from quotaplane.history.tables import LEASES
from quotaplane.quota.config import OWN_SINCE
from quotaplane.quota.resharded_states import resharded
from quotaplane.quota.state import ShardState
from quotaplane.settings import Settings
from quotaplane.streams.checkpoint import Checkpoint
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.resharded_folder import reshard
from quotaplane.streams.spark_log import SparkLog, open_log
from quotaplane.streams.stores import check_connectors, connect

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def run_reshard(
    settings: Settings,
    shards: int,
    to: str | None,
    session: Callable[[SparkLog], SparkSession],
    warn: Callable[[str], None],
) -> tuple[str, Checkpoint]:
    """Start Spark, and make the checkpoint ``to``; returns it. None: beside that of the settings.

    Raises:
        ConfigError: as ``reshard_quota_job``, or there can't be so many shards.
        HistoryError: the history, or a state, can't be read.
    """
    if shards < 1:
        raise ConfigError(f"--shards must be at least 1, not {shards}")
    to = to or f"{settings.checkpoint.rstrip('/')}-{shards}-shards"
    places = settings.history.path, settings.checkpoint, to
    check_connectors(places)
    spark = session(open_log("reshard", settings.checkpoint, Conditions(warn)))
    connect(spark, settings.history, places)
    return to, reshard_quota_job(spark, settings, shards, to)


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
