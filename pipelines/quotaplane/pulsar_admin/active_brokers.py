"""Follows a cluster's own list of active brokers: reports of others do not count.

Each broker has a name in its reports, and an address of its own REST API.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from quotaplane.agents.background_task import BackgroundTask, background_task
from quotaplane.agents.conditions import Conditions
from quotaplane.agents.known_conditions import ADDRESS_OF_BROKERS, LIST_OF_BROKERS
from quotaplane.agents.pace import at_once
from quotaplane.errors import ClusterError
from quotaplane.parsing.bounded_json import MALFORMED
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.cluster_list import NO_BROKERS, ClusterList
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.settings import Cluster, PulsarTransport

_AT_ONCE: Final = 8


class ActiveBrokers:
    """The names of a cluster's brokers.

    Args:
        as_listed: names as in the list (host:port), as load reports have them; otherwise the URL of
            the binary protocol, as in stock usage reports.
        keep_s: a broker that leaves the list keeps its name for this long: it may still serve its
            topics after the end of its session with the metadata store.
    """

    def __init__(self, *, as_listed: bool, keep_s: float) -> None:
        self._as_listed, self._keep_s = as_listed, keep_s
        self._name_of: dict[str, str] = {}
        """Name of each broker in the list, by its address there."""
        self._listed_at_s: dict[str, float] = {}
        """By name: the time at which it was in the list last."""
        self._listed_as: dict[str, str] = {}
        """By name: its address when it was in the list last."""
        self.newest = NO_BROKERS
        """As of the last list that could be read."""

    @property
    def names(self) -> frozenset[str]:
        """The names of brokers that are in the list, or were until lately."""
        return self.newest.names

    async def read(self, rest: Rest, now_s: float, now_ms: int) -> dict[str, ClusterError]:
        """Read the list; ``now_s`` is of a monotonic clock, ``now_ms`` of that of the rounds.

        Returns the brokers whose names could not be found out, and why.

        Raises:
            ClusterError: it can't be read, or is empty; the names are as before.
        """
        listed = await read_names(rest, rest.path("brokers"))
        if not listed:
            raise rest.failure("lists no brokers at all")
        failed: dict[str, ClusterError] = {}
        known = {each: self._name_of[each] for each in listed if each in self._name_of}

        async def look_up(broker: str) -> None:
            try:
                address = await look_up_broker(rest, broker)
            except ClusterError as error:
                failed[broker] = error
            else:
                known[broker] = address.name

        if self._as_listed:
            known = {broker: broker for broker in listed}
        else:
            await at_once(_AT_ONCE, look_up, [each for each in listed if each not in known])
        self._name_of = known
        self._note(frozenset(listed), now_s, now_ms)
        return failed

    def _note(self, listed: frozenset[str], now_s: float, now_ms: int) -> None:
        listed_as = self._listed_as | {name: broker for broker, name in self._name_of.items()}
        # A broker that is back has not left, even while its name is still unknown.
        present = [
            name
            for name, broker in listed_as.items()
            if broker in listed and self._name_of.get(broker, name) == name
        ]
        times = self._listed_at_s | dict.fromkeys(present, now_s)
        self._listed_at_s = {n: at_s for n, at_s in times.items() if now_s - at_s <= self._keep_s}
        self._listed_as = {name: listed_as[name] for name in self._listed_at_s}
        names = frozenset(self._listed_at_s)
        left = names.difference(present)
        earlier = self.newest.left_at_ms
        self.newest = ClusterList(names, {name: earlier.get(name, now_ms) for name in left})


@contextlib.contextmanager
def following_brokers(
    transport: PulsarTransport,
    cluster: Cluster,
    brokers: ActiveBrokers,
    *,
    conditions: Conditions,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
    wall_clock: Callable[[], float] = time.time,
    needed: bool = True,
) -> Iterator[Callable[[], ClusterList]]:
    """Read the list within this context, before it begins and every ``cluster.poll_interval_s``.

    Yields a function that returns the newest one. While the list can't be read it stays as it is.
    ``needed``: the context does not begin without a list.

    Raises:
        ClusterError: the list can't be read, or no broker's name can be found out; if ``needed``.
    """

    async def read(rest: Rest) -> None:
        try:
            # Its time is of before the request: a report that is published meanwhile is newer.
            failed = await brokers.read(rest, clock(), int(wall_clock() * 1000))
        except Exception as error:  # a bug must be logged, and end nothing
            conditions.note(LIST_OF_BROKERS, "", error)
        else:
            conditions.note(LIST_OF_BROKERS, "", None)
            _note(conditions, failed)

    async def main(task: BackgroundTask) -> None:
        async with Rest(transport, conditions=conditions) as rest:
            if needed:
                failed = await brokers.read(rest, clock(), int(wall_clock() * 1000))
                if not brokers.names:
                    raise next(iter(failed.values()))
                _note(conditions, failed)
            else:
                await read(rest)
            task.started()
            while task.running:
                await sleep(cluster.poll_interval_s)
                await read(rest)

    with background_task("brokers", main):
        yield lambda: brokers.newest


def _note(conditions: Conditions, failed: dict[str, ClusterError]) -> None:
    for broker, error in failed.items():
        conditions.note(ADDRESS_OF_BROKERS, broker, error)
    conditions.retain(ADDRESS_OF_BROKERS, failed.__contains__)


class BrokerAddress(NamedTuple):
    """Where a broker can be reached."""

    name: str
    """As in its usage reports: the URL of its binary protocol."""
    url: str
    """The URL of its own REST API."""


async def look_up_broker(rest: Rest, broker: str) -> BrokerAddress:
    """The addresses of a broker ``host:port`` of the cluster's list.

    Raises:
        ClusterError: it does not answer, or the answer has no addresses.
    """
    # A broker owns its own heartbeat topic, so looking that up returns its addresses.
    path = f"/lookup/v2/topic/persistent/pulsar/{quote(broker)}/healthcheck"
    return address_in(rest, path, await rest.get(path))


def address_in(rest: Rest, path: str, answer: Any) -> BrokerAddress:
    """The broker in the answer to a lookup.

    Raises:
        ClusterError: there is none.
    """
    tls = rest.url.startswith("https:")
    try:
        name = answer.get("brokerUrl") or answer["brokerUrlTls"]
        return BrokerAddress(str(name), str(answer["httpUrlTls" if tls else "httpUrl"]))
    except MALFORMED:
        raise rest.failure(f"GET {path}: the answer has no URL of the broker") from None
