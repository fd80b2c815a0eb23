"""Reads the load of all brokers of a Pulsar cluster, and publishes it as load reports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final

from quotabalance.balancer_conditions import LOAD_OF_BROKERS, LOADS_TOPIC
from quotabalance.pulsar_admin.broker_settings import read_broker_settings
from quotabalance.pulsar_admin.broker_stats import BrokerStats, read_broker_stats
from quotabalance.settings import Collect
from quotabalance.wire.broker_loads import BrokerLoad
from quotabalance.wire.load_reports import encode_load_report
from quotaplane.agents.known_conditions import LIST_OF_BROKERS
from quotaplane.agents.pace import at_once
from quotaplane.agents.periodic import waited
from quotaplane.errors import ClusterError, QuotaplaneError
from quotaplane.pulsar_admin.active_brokers import BrokerAddress, look_up_broker
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.resource_groups import read_configuration
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.pulsar_admin.topic_usage import stats_exposure
from quotaplane.transport.base import BrokerLink
from quotaplane.wire.reasons import UnusableReportError

AT_ONCE: Final = 8
"""Brokers that are read at once."""
_BROKERS: Final = Rest.path("brokers")
_AGAIN_AFTER_S: Final = 0.2


class Collector:
    """Publishes a load report of each broker every ``collect.interval_s``.

    A broker that does not answer has no report: the balancer sees its age grow. Nothing is repeated
    or estimated.
    """

    def __init__(
        self,
        settings: Collect,
        rest: Rest,
        link: BrokerLink,
        *,
        now_ms: Callable[[], int] = lambda: int(time.time() * 1000),
    ) -> None:
        self._settings, self._rest, self._link, self._now_ms = settings, rest, link, now_ms
        self._conditions = rest.conditions
        self._started_at_ms = now_ms()
        self._sequence = 0
        self._addresses: dict[str, BrokerAddress] = {}
        self._extensible: dict[str, bool] = {}
        """By broker: whether it has the extensible load manager."""
        self._bundles_of: dict[str, set[str]] = {}
        self._published = 0
        self._bundles = 0
        self._rounds = 0

    async def start(self) -> None:
        """Read how the cluster measures.

        Raises:
            ClusterError: it can't be reached, or refuses us.
        """
        exposure = stats_exposure(await read_configuration(self._rest))
        self._times = MeasuredTimes(exposure.stats_interval_s)
        self._first_stats_after_ms = exposure.first_stats_after_s * 1000.0

    async def run(self, stop: asyncio.Event) -> None:
        """Read and publish until ``stop``."""
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while not stop.is_set():
            await self.collect()
            # A round that takes too long skips its successors, so that they don't pile up.
            due_s = max(due_s + self._settings.interval_s, loop.time())
            await waited(stop, due_s - loop.time())

    async def collect(self) -> list[BrokerLoad]:
        """One round: read all brokers and publish their reports; returns what was published."""
        self._rounds += 1
        self._sequence += 1
        try:
            brokers = await read_names(self._rest, _BROKERS)
        except ClusterError as error:
            self._conditions.note(LIST_OF_BROKERS, "", error)
            brokers = sorted(self._addresses)  # they may still answer
        else:
            self._conditions.note(LIST_OF_BROKERS, "", None)
            self._forget_all_but(set(brokers))
        loads: list[BrokerLoad] = []

        async def read(broker: str) -> None:
            try:
                loads.append(await self._read(broker))
            except QuotaplaneError as error:
                self._extensible.pop(broker, None)  # it may have another one after a restart
                self._conditions.note(LOAD_OF_BROKERS, broker, error)
            else:
                self._conditions.note(LOAD_OF_BROKERS, broker, None)

        await at_once(AT_ONCE, read, brokers)
        loads.sort(key=lambda load: load.broker)
        await self._publish(loads)
        return loads

    async def _read(self, broker: str) -> BrokerLoad:
        if broker not in self._addresses:
            self._addresses[broker] = await look_up_broker(self._rest, broker)
        if broker not in self._extensible:
            settings = await read_broker_settings(self._rest, self._addresses[broker].url)
            self._extensible[broker] = settings.extensible
        stats = await self._stats_of(broker)
        load = BrokerLoad(
            broker=broker,
            started_at_ms=self._started_at_ms,
            sequence=self._sequence,
            measured_at_ms=self._times.note(broker, stats.mark, self._now_ms()),
            usage=stats.usage,
            limit=stats.limit,
            bundles=stats.bundles,
            rates=stats.rates,
            topics=stats.topics,
            sessions=stats.sessions,
            draining=broker in self._settings.draining,
        )
        try:
            load.check()
        except UnusableReportError as error:
            raise ClusterError(f"its load can't be used: {error}") from None
        return load

    async def _stats_of(self, broker: str) -> BrokerStats:
        url, extensible = self._addresses[broker].url, self._extensible[broker]
        stats = await read_broker_stats(self._rest, url, extensible=extensible)
        if self._bundles_of.get(broker, set()) - set(stats.bundles):
            # A broker empties its statistics before it fills them again, so bundles may be missing
            # because we came in between. The second answer counts.
            await asyncio.sleep(_AGAIN_AFTER_S)
            stats = await read_broker_stats(self._rest, url, extensible=extensible)
        running_ms = self._now_ms() - stats.started_at_ms
        if not stats.bundles and running_ms < self._first_stats_after_ms:
            raise ClusterError(
                f"it started {max(running_ms, 0) / 1000.0:.0f} s ago and has not measured its"
                " bundles yet (statsUpdateInitialDelayInSecs)"
            )
        self._bundles_of[broker] = set(stats.bundles)
        return stats

    async def _publish(self, loads: list[BrokerLoad]) -> None:
        now = self._now_ms()
        reports = [(load.broker, encode_load_report(load), now) for load in loads]
        if not reports:
            return
        try:
            await asyncio.to_thread(self._link.send_reports, reports)
        except QuotaplaneError as error:
            self._conditions.note(LOADS_TOPIC, "", error)
            return
        self._conditions.note(LOADS_TOPIC, "", None)
        self._published += len(reports)
        self._bundles = sum(len(load.bundles) for load in loads)

    def _forget_all_but(self, brokers: set[str]) -> None:
        for gone in self._addresses.keys() - brokers:
            del self._addresses[gone]
            self._extensible.pop(gone, None)
            self._bundles_of.pop(gone, None)
            self._times.forget(gone)
        self._conditions.retain(LOAD_OF_BROKERS, brokers.__contains__)

    def status(self) -> dict[str, Any]:
        """Counts for the status line."""
        return {
            "brokers": len(self._addresses),
            "silent_brokers": sorted(self._conditions.items(LOAD_OF_BROKERS)),
            "bundles": self._bundles,
            "reports_published": self._published,
            "rounds": self._rounds,
            "failures": self._conditions.failures.total(),
            "conditions": self._conditions.active(),
        }


class MeasuredTimes:
    """The earliest time at which each broker may have measured what it answers.

    A stock broker measures its bundles every ``stats_interval_s`` and does not say when. New
    numbers were measured after the previous read; unchanged ones when they were new, or later, but
    never longer ago than the interval. At a broker's first read only the latter is known.

    >>> times = MeasuredTimes(stats_interval_s=60)
    >>> [times.note("b1", mark, at_ms) for mark, at_ms in
    ...     [(b"x", 100_000), (b"y", 110_000), (b"y", 120_000), (b"y", 200_000)]]
    [40000, 100000, 100000, 140000]
    """

    def __init__(self, stats_interval_s: float) -> None:
        self._interval_ms = stats_interval_s * 1000.0
        self._known: dict[str, tuple[bytes, int, int]] = {}
        """By broker: mark of its numbers, when they were measured, time of the last read."""

    def note(self, broker: str, mark: bytes, read_at_ms: int) -> int:
        """A broker answered numbers with this mark; returns when they were measured."""
        oldest = int(read_at_ms - self._interval_ms)
        if broker not in self._known:
            measured = oldest
        else:
            before, measured, last_read = self._known[broker]
            measured = max(last_read if mark != before else measured, oldest)
        self._known[broker] = (mark, measured, read_at_ms)
        return measured

    def forget(self, broker: str) -> None:
        """The broker is gone."""
        self._known.pop(broker, None)
