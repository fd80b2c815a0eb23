"""The cluster's list of brokers as micro-batches see it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from quotaplane.agents.conditions import Conditions
from quotaplane.pulsar_admin.cluster_list import ClusterList
from quotaplane.settings import Cluster, PulsarTransport, Settings
from quotaplane.settings.usage_reports import CLUSTER
from quotaplane.streams.noted_input import NotedInput, NoteFolder
from quotaplane.streams.sender_checks import LISTED_BROKERS
from quotaplane.wire.shard_inputs import DEPARTURES, pack_departures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

NewestList = Callable[[], ClusterList]
"""Returns the cluster's newest list."""


@contextmanager
def listed_by(
    settings: Settings,
    allowed: object,
    conditions: Conditions,
    *,
    as_listed: bool = False,
    for_departures: bool = False,
) -> Iterator[NewestList | None]:
    """Follow the cluster's list of brokers within this context, if ``allowed`` is ``cluster``.

    ``as_listed``: names are host:port, as in the list; otherwise as in stock usage reports.
    ``for_departures``: follow it also if the settings have a cluster; the context then begins
    without a list, too.

    Raises:
        ClusterError: the list can't be read at first, and ``allowed`` is ``cluster``.
    """
    needed = allowed == CLUSTER
    if not needed and not (for_departures and settings.cluster is not None):
        yield None
        return
    from quotaplane.pulsar_admin.active_brokers import ActiveBrokers, following_brokers

    assert isinstance(settings.transport, PulsarTransport)
    brokers = ActiveBrokers(as_listed=as_listed, keep_s=settings.limits.lease_s)
    cluster = settings.cluster or Cluster()
    with following_brokers(
        settings.transport, cluster, brokers, conditions=conditions, needed=needed
    ) as newest:
        yield newest


def before_batch(
    folder: NoteFolder, newest: NewestList | None
) -> Callable[[DataFrame, int], dict[str, bytes]]:
    """A function that lets each batch know the list, and returns inputs of it: who left the list.

    ``newest`` None: there is no list.
    """
    if newest is None:
        return lambda *_: {}
    listed = listed_brokers(folder, newest)

    def hand_over(batch: DataFrame, seq: int) -> dict[str, bytes]:
        context = batch.sparkSession.sparkContext
        names, left_at_ms = listed.of_batch(seq)
        # The tasks of jobs that this thread starts get its local properties.
        context.setLocalProperty(LISTED_BROKERS, json.dumps(sorted(names)))
        return {DEPARTURES: pack_departures(left_at_ms)} if left_at_ms else {}

    return hand_over


def listed_brokers(folder: NoteFolder, newest: NewestList) -> NotedInput[ClusterList]:
    """The list by micro-batch; ``newest`` returns the newest one."""
    return NotedInput(folder, "listed_brokers.json", newest, _to_json, _of_json)


def _to_json(brokers: ClusterList) -> list[Any]:
    return [sorted(brokers.names), brokers.left_at_ms]


def _of_json(note: Sequence[Any]) -> ClusterList:
    names, left_at_ms = note
    return ClusterList(frozenset(names), dict(left_at_ms))
