"""The cluster's list of brokers as micro-batches see it: the same when a batch runs again."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from quotaplane.agents.conditions import Conditions
from quotaplane.errors import ConfigError
from quotaplane.pulsar_admin.cluster_list import ClusterList
from quotaplane.settings import Cluster, PulsarTransport, Settings
from quotaplane.settings.usage_reports import CLUSTER
from quotaplane.streams.batch_inputs import hand_inputs
from quotaplane.streams.sender_checks import LISTED_BROKERS
from quotaplane.wire.shard_inputs import DEPARTURES, pack_departures

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from quotaplane.streams.checkpoint import CheckpointFolder

_NOTE: Final = "listed_brokers.json"


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
    folder: CheckpointFolder, newest: NewestList | None, *, departures: bool = False
) -> Callable[[DataFrame, int], None]:
    """A function that hands the list to each batch, also who left it if ``departures``.

    ``newest`` None: there is no list.
    """
    if newest is None:
        return lambda *_: None
    listed = ListedBrokers(folder, newest)

    def hand_over(batch: DataFrame, seq: int) -> None:
        context = batch.sparkSession.sparkContext
        names, left_at_ms = listed.of_batch(seq)
        # The tasks of jobs that this thread starts get its local properties.
        context.setLocalProperty(LISTED_BROKERS, json.dumps(sorted(names)))
        if departures:
            inputs = {DEPARTURES: pack_departures(left_at_ms)} if left_at_ms else {}
            hand_inputs(context, inputs)

    return hand_over


class ListedBrokers:
    """The list by micro-batch; ``newest`` returns the newest one.

    A new list is noted in the checkpoint first, and holds from the next batch on. So no batch ever
    sees another list than when it ran before.

    >>> class InMemory:
    ...     path, text = "checkpoint", None
    ...     def read(self, name): return self.text
    ...     def write(self, name, text): self.text = text
    >>> newest, folder = ClusterList(frozenset({"b1"}), {}), InMemory()
    >>> listed = ListedBrokers(folder, lambda: newest)
    >>> listed.of_batch(7) == newest
    True
    >>> earlier, newest = newest, ClusterList(frozenset({"b1"}), {"b1": 1000})
    >>> listed.of_batch(8) == earlier, listed.of_batch(9) == newest
    (True, True)
    >>> ListedBrokers(folder, lambda: earlier).of_batch(8) == earlier
    True
    """

    def __init__(self, folder: CheckpointFolder, newest: NewestList) -> None:
        self._folder, self._newest = folder, newest
        text = folder.read(_NOTE)
        try:
            self._note = None if text is None else _Note.of(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError):
            raise ConfigError(
                f"checkpoint {folder.path}: {_NOTE} can't be read; delete it"
            ) from None

    def of_batch(self, seq: int) -> ClusterList:
        """The list for a batch, which runs now."""
        newest = self._newest()
        note = self._note
        if note is None:
            note = self._noted(_Note(seq, newest, newest))
        if seq < note.since:
            return note.before
        if newest != note.brokers:
            self._noted(_Note(seq + 1, newest, note.brokers))
        return note.brokers

    def _noted(self, note: _Note) -> _Note:
        self._folder.write(_NOTE, note.text())
        self._note = note
        return note


class _Note:
    """Contents of the checkpoint: the list from batch ``since`` on, and the one before."""

    def __init__(self, since: int, brokers: ClusterList, before: ClusterList) -> None:
        self.since, self.brokers, self.before = since, brokers, before

    @classmethod
    def of(cls, note: Mapping[str, Any]) -> _Note:
        brokers, before = (
            ClusterList(frozenset(note[key]), note[f"{key}_left_at_ms"])
            for key in ("brokers", "before")
        )
        return cls(note["since"], brokers, before)

    def text(self) -> str:
        lists = {"brokers": self.brokers, "before": self.before}
        names = {key: sorted(each.names) for key, each in lists.items()}
        left = {f"{key}_left_at_ms": each.left_at_ms for key, each in lists.items()}
        return json.dumps({"since": self.since, **names, **left})
