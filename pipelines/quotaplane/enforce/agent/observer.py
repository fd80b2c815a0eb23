"""What is looked at in the cluster again and again: who has which topics, and what these use."""

from __future__ import annotations

import asyncio
from typing import Final

import numpy as np

from quotaplane.agents.failures import FailureLog
from quotaplane.agents.pace import Pace, at_once
from quotaplane.enforce.part_usage import PartUsage
from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.placement import NamespaceRead, Placement
from quotaplane.pulsar_admin.resource_groups import read_runtime
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.pulsar_admin.topic_usage import Counters, Snapshots, Source, read_stats_exposure
from quotaplane.topic_layout import Layout

_LIVE_EVERY_S: Final = 2.0
"""Long enough for counts to make a rate, with what a request takes one time and the other."""
_BUSY_SHARE: Final = 0.05
"""A broker that takes long to answer is asked less often: this part of its time at most."""
_LOOKS_PER_SNAPSHOT: Final = 5
_STATS_AT_ONCE: Final = 4
_SOON_S: Final = 0.05
_PARTS: Final = {"brokers", "topics", "usage"}
_PATIENCE_S: Final = 60.0
"""At the start, with what can't be read; then it is done without."""


class Observer:
    """A cluster's topics and their use."""

    def __init__(
        self, rest: Rest, pace: Pace, failure_log: FailureLog, namespace_read: NamespaceRead
    ) -> None:
        self._rest, self._pace, self._failure_log = rest, pace, failure_log
        self._namespace_read = namespace_read
        self._sources: dict[str, Source] = {}
        self._not_before_s: dict[str, float] = {}
        self._had: dict[str, set[str]] = {}
        """By broker: the parts that it had when it told of them last."""
        self._looks = 0
        self._tried: set[str] = set()
        self._seen: set[str] = set()
        """Of ``_PARTS`` those that were tried, and those that could be read as a whole."""
        self._failures = 0
        self._begun_s = 0.0
        self._new: Layout | None = None

    async def start(self) -> None:
        """See how the cluster is set up.

        Raises:
            ClusterError: it can't be reached, or does not let us in.
        """
        self._begun_s = asyncio.get_running_loop().time()
        runtime = await read_runtime(self._rest)
        self.cluster = runtime.cluster
        self.exposure = await read_stats_exposure(self._rest)
        every_s = max(self.exposure.stats_interval_s / _LOOKS_PER_SNAPSHOT, 1.0)
        self.look_every_s = _LIVE_EVERY_S if self.exposure.live else every_s
        self.placement = Placement(
            self._rest, runtime.cluster, self._pace, self._failure_log.note, self._namespace_read
        )
        self.usage = PartUsage(self.look_every_s)

    @property
    def ready(self) -> bool:
        """Whether everything was read once: a part of the topics would get it all.

        What can't be read is told, and not waited for for ever: it must not keep limits from
        the rest.
        """
        if self._seen == _PARTS:
            return True
        patient = asyncio.get_running_loop().time() < self._begun_s + _PATIENCE_S
        return self._tried == _PARTS and not patient

    @property
    def listed(self) -> bool:
        """Whether brokers and topics were asked for: whatever is not known now is not there."""
        return {"brokers", "topics"} <= self._tried

    async def look_at_brokers(self) -> None:
        """Which brokers there are, and which bundles they have."""
        self._looked("brokers", whole=await self.placement.read_brokers())

    async def look_at_topics(self) -> None:
        """Which topics there are, of which groups."""
        self._looked("topics", whole=await self.placement.read_namespaces())

    def _looked(self, part: str, *, whole: bool) -> None:
        self._tried.add(part)
        if whole:
            self._seen.add(part)

    async def look_at_usage(self) -> None:
        """What topics use, where a broker has counted anew."""
        while not self.listed:
            await asyncio.sleep(_SOON_S)
        self._follow()
        brokers = self.placement.brokers
        for gone in self._sources.keys() - brokers.keys():
            del self._sources[gone]
            self._had.pop(gone, None)
            self._not_before_s.pop(gone, None)
            self._failure_log.forget("use of topics", gone)
        self._failures = 0
        await at_once(_STATS_AT_ONCE, self._look_at_broker, list(brokers))
        self._looks += 1
        # Counters tell nothing before the second look.
        if self._looks > self.exposure.live:
            self._looked("usage", whole=not self._failures)

    async def _look_at_broker(self, broker: str) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._not_before_s.get(broker, 0.0):
            return
        await self._pace.take()
        if broker not in self.placement.brokers:  # it went while we waited
            return
        url = self.placement.brokers[broker].url
        if broker not in self._sources:
            self._sources[broker] = (
                Counters() if self.exposure.live else Snapshots(self.look_every_s)
            )
        begun_s = loop.time()
        try:
            sample = await self._sources[broker].read(self._rest, url, begun_s)
        except ClusterError as error:
            self._failure_log.note("use of topics", broker, error)
            self._failures += 1
            return
        self._not_before_s[broker] = loop.time() + (loop.time() - begun_s) / _BUSY_SHARE
        self._failure_log.note("use of topics", broker, None)
        if sample is None or broker not in self.placement.brokers:
            return
        layout = self.usage.layout
        name = self.placement.brokers[broker].name
        if name not in layout.brokers:
            return
        # What a broker has and does not mention is not in use; what it has just got may not have
        # been loaded yet, and is as it was.
        own = np.flatnonzero(layout.broker == layout.brokers.index(name))
        place = dict(zip(sample.topics, sample.usage, strict=True))
        has = {layout.parts[part] for part in own.tolist()}
        had = self._had.get(broker, has)
        self._had[broker] = has
        told = [layout.parts[part] in place or layout.parts[part] in had for part in own.tolist()]
        own = own[np.array(told, np.bool_)]
        nothing = np.zeros(sample.usage.shape[1])
        usage = [place.get(layout.parts[part], nothing) for part in own.tolist()]
        if usage:
            self.usage.measured(own, np.array(usage))

    def changed(self) -> Layout | None:
        """Where everything is, if that is another thing than last time."""
        self._follow()
        layout, self._new = self._new, None
        return layout

    def _follow(self) -> None:
        layout = self.placement.changed()
        if layout is not None:
            self.usage.carry(layout)
            self._new = layout
