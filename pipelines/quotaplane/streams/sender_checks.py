"""Checks of reports' senders in the decoding tasks, from the settings. Goes to the executors."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyspark import TaskContext

from quotaplane.model import MAX_BROKER_CHARS
from quotaplane.settings import Senders
from quotaplane.settings.transports import brokers_of
from quotaplane.settings.usage_reports import CLUSTER
from quotaplane.wire.sender_rules import AllowedBrokers

_MOST_KEY_BYTES: Final = 4 * MAX_BROKER_CHARS + 1
"""A longer key names no broker, however it goes on."""

LISTED_BROKERS: Final = "quotaplane.listedBrokers"
"""Local property of the job of a micro-batch: the names in the cluster's list, as JSON."""


@dataclass(frozen=True)
class SenderChecks:
    """The settings of a section, for rows of its topic."""

    source: str = "payload"
    patterns: tuple[str, ...] | None = None
    """``allowed_brokers``; None: every name, or those in the cluster's list."""
    listed: bool = False
    """Those in the cluster's list are allowed."""
    topics: tuple[str, ...] = ()
    """Names of topics with ``{broker}``, for ``topic``."""

    @classmethod
    def of(cls, settings: Senders, topics: Sequence[str] = ()) -> SenderChecks:
        """The checks by the settings of ``reports`` or ``balance``."""
        allowed = settings.allowed_brokers
        patterns = allowed if isinstance(allowed, tuple) else None
        return cls(settings.broker_from, patterns, allowed == CLUSTER, tuple(topics))

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the topic's rows that are needed, in SQL."""
        of_source = {
            "key": (f"substring(key, 1, {_MOST_KEY_BYTES}) AS key",),
            "topic": ("topic",),
        }
        return of_source.get(self.source, ())

    def named(self, rows: pa.RecordBatch) -> pa.BinaryArray | None:
        """(n,) the broker that each row's key or topic names; None: they don't matter."""
        if self.source == "key":
            return rows["key"].cast(pa.binary())
        if self.source == "topic":
            coded = rows["topic"].dictionary_encode()
            brokers = brokers_of(self.topics, coded.dictionary.to_pylist())
            return pa.array(brokers, pa.binary()).take(coded.indices)
        return None

    def allowed(self, listed: frozenset[str] | None = None) -> AllowedBrokers | None:
        """The names that are allowed; None: every name.

        ``listed``: those in the cluster's list; None: as the running micro-batch knows it.
        """
        if self.listed:
            names = _listed() if listed is None else listed
            return AllowedBrokers("the cluster's list of active brokers", names=names)
        if self.patterns is None:
            return None
        shown = ", ".join(self.patterns[:3]) + (", ..." if len(self.patterns) > 3 else "")
        return AllowedBrokers(shown, patterns=self.patterns)


NO_CHECKS: Final = SenderChecks()


def _listed() -> frozenset[str]:
    context = TaskContext.get()
    text = None if context is None else context.getLocalProperty(LISTED_BROKERS)
    if text is None:  # fail rather than let everybody in
        raise RuntimeError("the micro-batch has no list of the cluster's brokers")
    return frozenset(json.loads(text))
