"""Follows a cluster's own list of active brokers, for the reports that a job may use."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from quotaplane.agents.beside import Begun, beside
from quotaplane.agents.failures import FailureLog, Say
from quotaplane.agents.pace import at_once
from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.broker_addresses import look_up_broker
from quotaplane.pulsar_admin.bulk import read_names
from quotaplane.pulsar_admin.rest import Rest
from quotaplane.settings import Cluster, PulsarTransport

_LIST: Final = "list of brokers"
_BROKER: Final = "address of brokers"
_AT_ONCE: Final = 8


class ActiveBrokers:
    """The names of a cluster's brokers.

    Args:
        as_listed: names as in the list (host:port), as load reports have them; otherwise the URL of
            the binary protocol, as in stock usage reports.
        keep_s: a broker that leaves the list keeps its name for so long: one whose session with the
            metadata store ended still serves its topics.
    """

    def __init__(self, *, as_listed: bool, keep_s: float) -> None:
        self._as_listed, self._keep_s = as_listed, keep_s
        self._name_of: dict[str, str] = {}
        """Of the brokers in the list."""
        self._listed_at_s: dict[str, float] = {}
        """By name: when it was in the list last."""

    @property
    def names(self) -> frozenset[str]:
        """The names of brokers that are in the list, or were until lately."""
        return frozenset(self._listed_at_s)

    async def read(self, rest: Rest, now_s: float) -> dict[str, ClusterError]:
        """Read the list; ``now_s`` is of a monotonic clock.

        Returns the brokers whose names could not be found out, and why.

        Raises:
            ClusterError: it can't be read, or is empty; the names are as before.
        """
        listed = await read_names(rest, rest.path("brokers"))
        if not listed:
            raise ClusterError(f"Pulsar's REST API at {rest.url}: lists no brokers at all")
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
        times = self._listed_at_s | dict.fromkeys(known.values(), now_s)
        self._listed_at_s = {n: at_s for n, at_s in times.items() if now_s - at_s <= self._keep_s}
        return failed


@contextlib.contextmanager
def following_brokers(
    transport: PulsarTransport,
    cluster: Cluster,
    brokers: ActiveBrokers,
    *,
    say: Say,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Callable[[], frozenset[str]]]:
    """Read the list within this context, before it begins and every ``cluster.poll_interval_s``.

    Yields a function that returns the names. While the list can't be read they stay as they are.

    Raises:
        ClusterError: the list can't be read, or no broker's name can be found out.
    """

    async def main(begun: Begun) -> None:
        async with Rest(transport, timeout_s=cluster.request_timeout_s, say=say) as rest:
            failed = await brokers.read(rest, clock())
            if not brokers.names:
                raise next(iter(failed.values()))
            log = FailureLog(say)
            _note(log, failed)
            begun.now()
            while begun.goes_on:
                await sleep(cluster.poll_interval_s)
                try:
                    failed = await brokers.read(rest, clock())
                except Exception as error:  # a bug must be logged, and end nothing
                    log.note(_LIST, "", error)
                else:
                    log.note(_LIST, "", None)
                    _note(log, failed)

    with beside("brokers", main):
        yield lambda: brokers.names


def _note(log: FailureLog, failed: dict[str, ClusterError]) -> None:
    for broker, error in failed.items():
        log.note(_BROKER, broker, error)
    log.retain(_BROKER, failed.__contains__)
