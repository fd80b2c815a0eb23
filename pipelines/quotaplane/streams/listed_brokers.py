"""The cluster's list of brokers as micro-batches see it: the same when a batch runs again."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, Protocol

from quotaplane.errors import ConfigError
from quotaplane.settings import Cluster, PulsarTransport, Settings
from quotaplane.settings.senders import CLUSTER
from quotaplane.streams.sender_checks import LISTED_BROKERS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_NOTE: Final = "listed_brokers.json"


ListedNames = Callable[[], Collection[str]]
"""Returns the names in the cluster's newest list."""


@contextmanager
def listed_by(
    settings: Settings, allowed: object, say: Callable[[str], None], *, as_listed: bool = False
) -> Iterator[ListedNames | None]:
    """Follow the cluster's list of brokers within this context, if ``allowed`` is ``cluster``.

    ``as_listed``: names are host:port, as in the list; otherwise as in stock usage reports.

    Raises:
        ClusterError: the list can't be read at first.
    """
    if allowed != CLUSTER:
        yield None
        return
    from quotaplane.pulsar_admin.active_brokers import ActiveBrokers, following_brokers

    assert isinstance(settings.transport, PulsarTransport)
    brokers = ActiveBrokers(as_listed=as_listed, keep_s=settings.limits.lease_s)
    cluster = settings.cluster or Cluster()
    with following_brokers(settings.transport, cluster, brokers, say=say) as names:
        yield names


def before_batch(folder: Folder, names: ListedNames | None) -> Callable[[DataFrame, int], None]:
    """A function that hands the list to each batch; None: there is none."""
    return (lambda *_: None) if names is None else ListedBrokers(folder, names).hand_over


class Folder(Protocol):
    """Where the list is noted: a ``CheckpointFolder``."""

    path: str

    def read(self, name: str) -> str | None:
        """A file's text; None: there is none."""

    def write(self, name: str, text: str) -> None:
        """Write or replace a file."""


class ListedBrokers:
    """The list by micro-batch; ``names`` returns the newest one.

    A new list is noted in the checkpoint first, and holds from the next batch on. So no batch ever
    sees another list than when it ran before.

    >>> class InMemory:
    ...     path, text = "checkpoint", None
    ...     def read(self, name): return self.text
    ...     def write(self, name, text): self.text = text
    >>> names, folder = {"b1"}, InMemory()
    >>> listed = ListedBrokers(folder, lambda: names)
    >>> listed.of_batch(7)
    ['b1']
    >>> names = {"b1", "b2"}
    >>> listed.of_batch(8), ListedBrokers(folder, lambda: names).of_batch(8), listed.of_batch(9)
    (['b1'], ['b1'], ['b1', 'b2'])
    """

    def __init__(self, folder: Folder, names: Callable[[], Collection[str]]) -> None:
        self._folder, self._names = folder, names
        text = folder.read(_NOTE)
        try:
            note: dict[str, Any] | None = None if text is None else json.loads(text)
            if note is not None:
                note = {key: note[key] for key in ("since", "brokers", "before")}
        except (ValueError, TypeError, KeyError):
            raise ConfigError(
                f"checkpoint {folder.path}: {_NOTE} can't be read; delete it"
            ) from None
        self._note = note

    def of_batch(self, seq: int) -> list[str]:
        """The names for a batch, which runs now."""
        newest = sorted(self._names())
        note = self._note
        if note is None:
            note = self._noted(seq, newest, newest)
        if seq < note["since"]:
            before: list[str] = note["before"]
            return before
        brokers: list[str] = note["brokers"]
        if newest != brokers:
            self._noted(seq + 1, newest, brokers)
        return brokers

    def _noted(self, since: int, brokers: list[str], before: list[str]) -> dict[str, Any]:
        note = {"since": since, "brokers": brokers, "before": before}
        self._folder.write(_NOTE, json.dumps(note))
        self._note = note
        return note

    def hand_over(self, batch: DataFrame, seq: int) -> None:
        """Let the tasks of a batch know the list; call this before the batch is collected."""
        # The tasks of jobs that this thread starts get its local properties.
        context = batch.sparkSession.sparkContext
        context.setLocalProperty(LISTED_BROKERS, json.dumps(self.of_batch(seq)))
