"""Ends the muting of producers by the cluster's own limiter, once their group was taken over.

The limiter may have stopped to read from a producer's connection for minutes, and a changed quota
does not shorten that. So after a take-over every connection that may be muted is checked: one that
does not answer is closed by its broker, and the client connects again. An idle one looks the same,
but answers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Protocol

import numpy as np

from quotaplane.agents.conditions import Conditions, Say
from quotaplane.agents.known_conditions import MUTED_PRODUCERS
from quotaplane.agents.pace import Bucket, Pace, at_once, ended, start
from quotaplane.enforce.agent.observer import Observer
from quotaplane.errors import ClusterError, TransportError
from quotaplane.pulsar_admin.rest import NotFoundError, Rest
from quotaplane.pulsar_admin.topic_publishers import (
    Published,
    TopicPublishers,
    read_published,
    read_publishers,
)
from quotaplane.settings import PulsarConnection
from quotaplane.texts import some_of
from quotaplane.topics.topic_layout import Layout

_SETTLES_S: Final = 0.5
"""Brokers apply a quota that was taken over within this time; after it they mute no more."""
_SILENT_S: Final = 1.0
"""Between the two looks at a topic."""
_RETRY_AFTER_S: Final = 10.0
_MOST_TRIES: Final = 6
"""Most checks of a group: within a minute, all clients notice that their brokers don't answer."""
_READS_AT_ONCE: Final = 4
_CHECKS_AT_ONCE: Final = 16
"""Connections that are checked at once, and so the most that are closed at once."""
CHECKS_SHARE: Final = 0.5
"""The part of the write budget for checks, as most of them find idle connections."""
_TURN_POLL_S: Final = 0.05


class Probe(Protocol):
    """See ``pulsar.connection_probe.ConnectionProbe``."""

    def closed(self, part: str, producer: str) -> bool:
        """Whether the broker closed the connection of a topic's producer."""

    def close(self) -> None:
        """End all probes under way."""


def probes_of(place: PulsarConnection) -> Callable[[], Probe]:
    """A function that opens a probe of a cluster."""

    def open_probe() -> Probe:
        from quotaplane.pulsar.connection_probe import ConnectionProbe  # needs pulsar-client

        return ConnectionProbe(place)

    return open_probe


class MutedConnections:
    """Checks the connections of each group once after its take-over; failures are tried again.

    Args:
        rest: client of the cluster's REST API.
        observer: knows the brokers.
        reads: budget of requests that read.
        writes: budget of requests that write; a check counts as one.
        checks: budget of checks.
        conditions: of topics whose producers can't be read or checked.
        say: prints a line when connections were closed.
        may_write: whether this enforcer leads.
        open_probe: makes a probe; None: nothing is checked.
    """

    def __init__(
        self,
        rest: Rest,
        observer: Observer,
        reads: Pace,
        writes: Bucket,
        checks: Pace,
        conditions: Conditions,
        say: Say,
        may_write: Callable[[], bool],
        open_probe: Callable[[], Probe] | None,
    ) -> None:
        self._rest, self._observer = rest, observer
        self._reads, self._writes, self._checks = reads, writes, checks
        self._conditions, self._say = conditions, say
        self._may_write, self._open_probe = may_write, open_probe
        self._begun: set[str] = set()
        """Groups that were checked, or are being checked."""
        self._tries: Counter[str] = Counter()
        """Failed ones, by group."""
        self._tasks: set[asyncio.Task[None]] = set()
        self.closed = 0
        """Connections closed since the start."""

    def begin(self, taken_over: Collection[str], layout: Layout) -> None:
        """Begin to check the groups among ``taken_over`` that were not in the last call."""
        self._begun.intersection_update(taken_over)
        new = set(taken_over) - self._begun
        if new and self._open_probe is not None:
            self._begun |= new
            start(self._tasks, self._check(new, layout))

    def forget(self) -> None:
        """Check all groups again: another enforcer may have ended before it had checked them."""
        self._begun.clear()

    async def stop(self) -> None:
        """End all checks under way."""
        await ended(self._tasks)

    async def _check(self, groups: set[str], layout: Layout) -> None:
        failed: Exception | None = None
        failing = groups
        try:
            failing = await self._check_once(_parts_of(groups, layout), layout)
        except Exception as error:
            # Any exception: otherwise the groups would count as checked.
            failed = error
        self._conditions.note(MUTED_PRODUCERS, "", failed)
        again = self._to_try_again(groups, failing)
        if again:
            await asyncio.sleep(_RETRY_AFTER_S)
            self._begun -= again

    def _to_try_again(self, groups: set[str], failing: set[str]) -> set[str]:
        """Count the tries of the failing groups among ``groups``; returns those that get more."""
        self._tries.update(failing)
        again = {group for group in failing if self._tries[group] < _MOST_TRIES}
        for group in groups - again:
            del self._tries[group]
        return again

    async def _check_once(self, parts: dict[str, str], layout: Layout) -> set[str]:
        """Check these topics and partitions, with their groups; returns the groups that failed."""
        failures = _Failures(self._conditions)
        await asyncio.sleep(_SETTLES_S)
        before = await self._published(parts, layout, failures)
        await asyncio.sleep(_SILENT_S)
        now = await self._published(before.messages, layout, failures)
        silent = silent_parts(before.messages, now.messages, now.lately)
        found = await self._look(silent, failures)
        producers = {part: found[part].producers for part in silent if part in found}
        await self._close(connections_of(producers), parts, failures)
        failures.settle([*parts, *layout.brokers])
        if failures.items <= parts.keys():
            return {parts[part] for part in failures.items}
        return set(parts.values())  # A broker's topics are those of any group.

    async def _published(
        self, parts: Collection[str], layout: Layout, failures: _Failures
    ) -> Published:
        """How much was published to these topics and partitions, of those that have producers."""
        if not parts or not self._observer.exposure.live:
            found = await self._look(parts, failures)
            used = {part: one for part, one in found.items() if one.producers}
            messages = {part: one.messages for part, one in used.items()}
            return Published(messages, {part for part, one in used.items() if one.lately})
        owners = {layout.broker[layout.part_index[part]] for part in parts}
        names = {layout.brokers[broker] for broker in owners}
        published = Published({}, set())
        for broker in list(self._observer.placement.brokers.values()):
            if broker.name in names:
                await self._reads.take()
                try:
                    more = await read_published(self._rest, broker.url)
                except ClusterError as error:
                    failures.note(broker.name, error)
                    continue
                published.messages.update((p, n) for p, n in more.messages.items() if p in parts)
                published.lately.update(more.lately)
        return published

    async def _look(self, parts: Iterable[str], failures: _Failures) -> dict[str, TopicPublishers]:
        """Read the producers of these topics and partitions; those that are gone are left out."""
        found: dict[str, TopicPublishers] = {}

        async def look(part: str) -> None:
            await self._reads.take()
            try:
                found[part] = await read_publishers(self._rest, part)
            except NotFoundError:
                pass
            except ClusterError as error:
                failures.note(part, error)

        await at_once(_READS_AT_ONCE, look, parts)
        return found

    async def _close(
        self, connections: dict[str, Producer], group_of: dict[str, str], failures: _Failures
    ) -> None:
        """Let brokers close those of these connections that don't answer."""
        if not connections or self._open_probe is None:
            return
        probe = await asyncio.to_thread(self._open_probe)
        # Threads of its own: the leader's beats need those of ``to_thread``.
        threads = ThreadPoolExecutor(_CHECKS_AT_ONCE, "probe")
        closed: Counter[str] = Counter()

        async def check(producer: Producer) -> None:
            await self._turn()
            if not self._may_write():
                return
            run = asyncio.get_running_loop().run_in_executor
            try:
                was_closed = await run(threads, probe.closed, *producer)
            except TransportError as error:
                failures.note(producer.part, error)
                return
            # Not in one statement with the wait: other checks change the count meanwhile.
            closed[group_of[producer.part]] += was_closed

        try:
            await at_once(_CHECKS_AT_ONCE, check, connections.values())
        finally:
            self._report(closed)
            await asyncio.to_thread(probe.close)
            threads.shutdown(wait=False)

    async def _turn(self) -> None:
        """Wait until the budgets allow one more check, which counts as a write."""
        await self._checks.take()
        while not self._writes.room(asyncio.get_running_loop().time()):
            await asyncio.sleep(_TURN_POLL_S)
        self._writes.take(1)

    def _report(self, closed: Counter[str]) -> None:
        count = closed.total()
        if count:
            self.closed += count
            connections = "1 connection was" if count == 1 else f"{count} connections were"
            self._say(
                f"resource groups {some_of(+closed)}: {connections} still held back by the "
                "brokers' own limiter after the take-over; the brokers closed them, and the "
                "clients connect again"
            )


class _Failures:
    """The failures of one check."""

    def __init__(self, conditions: Conditions) -> None:
        self._conditions = conditions
        self.items: set[str] = set()

    def note(self, item: str, error: Exception) -> None:
        self._conditions.note(MUTED_PRODUCERS, item, error)
        self.items.add(item)

    def settle(self, items: Iterable[str]) -> None:
        """Report that all others of these items did not fail."""
        for item in items:
            if item not in self.items:
                self._conditions.note(MUTED_PRODUCERS, item, None)


def _parts_of(groups: Collection[str], layout: Layout) -> dict[str, str]:
    """The topics and partitions of these groups that a broker has, and their groups."""
    wanted = np.array([group in groups for group in layout.groups], np.bool_)
    at = np.flatnonzero(wanted[layout.group[layout.topic]] & (layout.broker >= 0))
    groups_at = layout.group[layout.topic[at]].tolist()
    return {
        layout.parts[part]: layout.groups[group]
        for part, group in zip(at.tolist(), groups_at, strict=True)
    }


class Producer(NamedTuple):
    """A producer, and where it publishes."""

    part: str
    """The topic or partition."""
    name: str


def silent_parts(
    before: Mapping[str, int], now: Mapping[str, int], lately: Container[str]
) -> list[str]:
    """Topics and partitions to which nothing was published between two looks.

    Those of ``lately`` come first: a muted producer published a message not long ago, and it should
    not wait until thousands of idle ones are checked. Where nothing was published ever, nobody is
    muted.

    Whether the broker counts them as throttled is no criterion: it forgets that whenever it updates
    its statistics, and the producer stays muted.

    >>> silent_parts({"t": 5, "u": 5, "v": 0, "w": 1}, {"t": 5, "u": 6, "v": 0, "w": 1}, {"w"})
    ['w', 't']
    """
    silent = [part for part, count in now.items() if 0 < count == before.get(part)]
    return sorted(silent, key=lambda part: part not in lately)


def connections_of(producers: Mapping[str, Mapping[str, str]]) -> dict[str, Producer]:
    """Connections, and a producer on each, from the producers of each topic or partition.

    >>> connections_of({"t": {"/10.0.0.1:4711": "p"}, "u": {"/10.0.0.1:4711": "q"}})
    {'/10.0.0.1:4711': Producer(part='t', name='p')}
    """
    found: dict[str, Producer] = {}
    for part, name_of in producers.items():
        for address, name in name_of.items():
            found.setdefault(address, Producer(part, name))
    return found
