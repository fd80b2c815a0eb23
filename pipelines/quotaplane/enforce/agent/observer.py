"""Polls the cluster for the placement of topics and their usage."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Final

import numpy as np

from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import USE_OF_TOPICS
from quotaplane.agents.pace import Pace, ended
from quotaplane.enforce.part_usage import PartUsage
from quotaplane.errors import ClusterError
from quotaplane.model import BASIC, FloatArray
from quotaplane.pulsar_admin.configured_rates import per_s, rates_of_brokers
from quotaplane.pulsar_admin.placement import NamespaceRead, Placement
from quotaplane.pulsar_admin.resource_groups import read_runtime
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.pulsar_admin.topic_usage import (
    Counters,
    Sample,
    Snapshots,
    Source,
    stats_exposure,
)
from quotaplane.topics.topic_layout import Layout

LIVE_EVERY_S: Final = 2.0
"""Windows of the usage by which limits are divided. Windows of 1 s vary so much more that twice as
many rates are written, and each write lets a burst through."""
_BUSY_SHARE: Final = 0.05
"""A broker spends at most this fraction of its time on our requests: slow ones are polled less."""
_LOOKS_PER_SNAPSHOT: Final = 5
"""Polls per interval in which a broker updates its statistics."""
_STATS_AT_ONCE: Final = 4
_LIST_POLL_S: Final = 0.05
_PARTS: Final = {"brokers", "topics", "usage"}
_PATIENCE_S: Final = 60.0
"""How long the start waits for parts that can't be read."""


Sampled = Callable[[str, Sample], None]
"""Called with a broker's name and its sample, once that was taken in."""


class Observer:
    """The placement (``changed``) and usage (``usage``) of a cluster's topics."""

    def __init__(
        self,
        rest: Rest,
        pace: Pace,
        conditions: Conditions,
        namespace_read: NamespaceRead,
        sampled: Sampled | None = None,
        live_every_s: float = LIVE_EVERY_S,
    ) -> None:
        self._rest, self._pace, self._conditions = rest, pace, conditions
        self._sampled, self._live_every_s = sampled, live_every_s
        self._namespace_read = namespace_read
        self._sources: dict[str, Source] = {}
        self._not_before_s: dict[str, float] = {}
        self._sampled_parts: dict[str, set[str]] = {}
        """By broker: the parts that it had at its last sample."""
        self._reading: dict[str, asyncio.Task[None]] = {}
        """By broker: the request that is under way, and what follows from it."""
        self._places = asyncio.Semaphore(_STATS_AT_ONCE)
        self._asked: set[str] = set()
        """Brokers that answered or failed once."""
        self._failed: set[str] = set()
        """Brokers whose last answer failed."""
        self._looks = self._first_looks = 0
        self._tried: set[str] = set()
        """Those of ``_PARTS`` that were read once, even if in vain."""
        self._complete: set[str] = set()
        """Those of ``_PARTS`` that were read completely once."""
        self._begun_s = 0.0
        self._new_layout: Layout | None = None

    async def start(self) -> None:
        """Read how the cluster is set up.

        Raises:
            ClusterError: it can't be reached, or refuses us.
        """
        self._begun_s = asyncio.get_running_loop().time()
        runtime = await read_runtime(self._rest)
        self.cluster = runtime.cluster
        self.broker_rates = per_s(rates_of_brokers(runtime.configuration))
        self.exposure = stats_exposure(runtime.configuration)
        every_s = max(self.exposure.stats_interval_s / _LOOKS_PER_SNAPSHOT, 1.0)
        self.look_every_s = self._live_every_s if self.exposure.live else every_s
        self.placement = Placement(
            self._rest, runtime.cluster, self._pace, self._conditions.note, self._namespace_read
        )
        self._first_looks = math.ceil(LIVE_EVERY_S / self.look_every_s) * self.exposure.live
        window_s = LIVE_EVERY_S if self.exposure.live else every_s
        self.usage = PartUsage(max(self.look_every_s, window_s))

    @property
    def ready(self) -> bool:
        """Whether everything was read once. Before that, the topics seen so far would get the
        limits of all.

        After ``_PATIENCE_S`` unreadable parts are no longer waited for, so that they don't keep the
        rest unlimited.
        """
        if self._complete == _PARTS:
            return True
        patient = asyncio.get_running_loop().time() < self._begun_s + _PATIENCE_S
        return self._tried == _PARTS and not patient

    @property
    def placed(self) -> bool:
        """Whether brokers and topics were read once, without failures."""
        return {"brokers", "topics"} <= self._complete

    @property
    def listed(self) -> bool:
        """Whether brokers and topics were listed once, if possible."""
        return {"brokers", "topics"} <= self._tried

    async def look_at_brokers(self) -> None:
        """Read the brokers and their bundles."""
        self._looked("brokers", whole=await self.placement.read_brokers())

    async def look_at_topics(self) -> None:
        """Read the topics and their groups."""
        self._looked("topics", whole=await self.placement.read_namespaces())

    def _looked(self, part: str, *, whole: bool) -> None:
        self._tried.add(part)
        if whole:
            self._complete.add(part)

    async def look_at_usage(self) -> None:
        """Read the usage of topics from brokers with new statistics.

        Each broker is read on its own: one that takes long, or does not answer, delays no other.
        """
        while not self.listed:
            await asyncio.sleep(_LIST_POLL_S)
        self._follow()
        brokers = self.placement.brokers
        for gone in self._sources.keys() - brokers.keys():
            del self._sources[gone]
            self._sampled_parts.pop(gone, None)
            self._not_before_s.pop(gone, None)
            self._conditions.note(USE_OF_TOPICS, gone, None)
            if gone in self._reading:  # if it comes back, it may have lost the connection
                self._reading.pop(gone).cancel()
        for broker in brokers:
            if broker not in self._reading:
                self._reading[broker] = asyncio.create_task(self._look_at_broker(broker))
        if self._reading:
            await asyncio.wait(self._reading.values(), timeout=self.look_every_s / 2)
        done = [broker for broker, task in self._reading.items() if task.done()]
        for task in [self._reading.pop(broker) for broker in done]:
            task.result()
        self._looks += 1
        # Live counters give a rate once the first window is over.
        if self._looks > self._first_looks and brokers.keys() <= self._asked:
            self._looked("usage", whole=not self._failed & brokers.keys())

    async def stop(self) -> None:
        """Give up the requests that are under way."""
        reading, self._reading = [*self._reading.values()], {}
        await ended(reading)

    async def _look_at_broker(self, broker: str) -> None:
        if asyncio.get_running_loop().time() < self._not_before_s.get(broker, 0.0):
            return
        async with self._places:
            await self._pace.take()
            if broker in self.placement.brokers:  # it may have gone away while we waited
                await self._read_usage(broker)

    async def _read_usage(self, broker: str) -> None:
        if broker not in self._sources:
            self._sources[broker] = (
                Counters(LIVE_EVERY_S) if self.exposure.live else Snapshots(self.look_every_s)
            )
        loop, source = asyncio.get_running_loop(), self._sources[broker]
        url = self.placement.brokers[broker].url
        try:
            sample = await source.read(self._rest, url, loop.time())
        except ClusterError as error:
            self._conditions.note(USE_OF_TOPICS, broker, error)
            self._failed.add(broker)
            return
        finally:
            self._asked.add(broker)
        self._failed.discard(broker)
        self._not_before_s[broker] = loop.time() + source.cost.seconds / _BUSY_SHARE
        self._conditions.note(USE_OF_TOPICS, broker, None)
        if sample is not None and broker in self.placement.brokers:
            if sample.usage is not None:
                self._add_sample(broker, dict(zip(sample.topics, sample.usage, strict=True)))
            if self._sampled is not None:
                self._sampled(self.placement.brokers[broker].name, sample)

    def _add_sample(self, broker: str, usage: dict[str, FloatArray]) -> None:
        """Take in a broker's sample: usage (4,) by part."""
        layout = self.usage.layout
        name = self.placement.brokers[broker].name
        if name not in layout.brokers:
            return
        # A part missing from the sample is unused. But a part that the broker has just got may not
        # be loaded yet: its usage stays as it was.
        own = np.flatnonzero(layout.broker == layout.brokers.index(name)).tolist()
        parts = {layout.parts[part] for part in own}
        previous = self._sampled_parts.get(broker, parts)
        self._sampled_parts[broker] = parts
        measured = [at for at in own if layout.parts[at] in usage or layout.parts[at] in previous]
        unused = np.zeros(BASIC)
        if measured:
            rows = [usage.get(layout.parts[part], unused) for part in measured]
            self.usage.add_sample(np.array(measured, np.int64), np.array(rows))

    def changed(self) -> Layout | None:
        """The layout, if it changed since the last call."""
        self._follow()
        layout, self._new_layout = self._new_layout, None
        return layout

    def _follow(self) -> None:
        layout = self.placement.changed()
        if layout is not None:
            self.usage.carry(layout)
            self._new_layout = layout
