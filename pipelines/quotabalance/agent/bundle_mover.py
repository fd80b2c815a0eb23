"""Moves one bundle: unload, claim by the new owner, check, and again after a conflict.

Pulsar 4.0 keeps the wish ``destinationBroker`` for the first lookup of the bundle's range only, so
with many clients the bundle may come to another broker. Therefore the new owner is asked to claim
the bundle, from the moment that the unload begins, until it has it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NamedTuple

from quotabalance.planning.decisions import Move
from quotabalance.pulsar_admin.bundle_actions import claim, owned_bundles, unload
from quotabalance.record.outcomes import ALREADY, DONE, FAILED, MISSED, MOVED_ON
from quotaplane.errors import ClusterError
from quotaplane.pulsar_admin.active_brokers import BrokerAddress
from quotaplane.pulsar_admin.rest import RefusedError, Rest

ATTEMPTS: Final = 3
"""Attempts of a move before it counts as missed."""
RETRY_AFTER_S: Final = 1.0
"""The pause before the second attempt; it doubles with each one."""
_CLAIM_EVERY_S: Final = 0.05
_CLAIMS_AFTER_UNLOAD_S: Final = 5.0
"""How long a bundle without an owner is claimed after its unload has ended."""


class MoveResult(NamedTuple):
    """How a move ended."""

    outcome: str
    """``DONE``, ``ALREADY``, ``MISSED`` (another broker has it), ``FAILED``, or ``MOVED_ON`` (it
    was not at the source when its turn came, so nothing was done)."""
    owner: str
    """The broker that has the bundle afterwards; "" = none, or not known."""
    attempts: int
    took_s: float
    """From the begin of the last unload until the owner answered."""
    message: str = ""


class BundleMover:
    """Makes moves in one cluster."""

    def __init__(
        self,
        rest: Rest,
        cluster: str,
        addresses: dict[str, BrokerAddress],
        unload_timeout_s: float,
    ) -> None:
        self._rest, self._cluster, self._addresses = rest, cluster, addresses
        self._unload_timeout_s = unload_timeout_s

    async def move(self, move: Move, may_retry: Callable[[], bool] = lambda: True) -> MoveResult:
        """Make a move, in up to ``ATTEMPTS`` attempts; never raises a ``ClusterError``."""
        pause_s, took_s, source, message = RETRY_AFTER_S, 0.0, move.source, ""
        for attempt in range(1, ATTEMPTS + 1):
            loop = asyncio.get_running_loop()
            try:
                owner = await self.owner(move.bundle, (move.source, move.target))
                if owner == move.target:
                    outcome = ALREADY if attempt == 1 else DONE
                    return MoveResult(outcome, owner, attempt - (attempt == 1), took_s)
                if attempt == 1 and owner != source:
                    where = f"is at {owner}" if owner else "has no owner"
                    return MoveResult(MOVED_ON, owner, 0, 0.0, f"it {where}, not at {source}")
                begun_s = loop.time()
                owner = await self._attempt(move, owner)
                took_s = loop.time() - begun_s
                if owner == move.target:
                    return MoveResult(DONE, owner, attempt, took_s)
                outcome, message = MISSED, f"{owner or 'no broker'} has it"
            except ClusterError as error:
                outcome, message = FAILED, str(error)
                if isinstance(error, RefusedError) and error.status in (401, 403, 404, 412):
                    break
            if attempt == ATTEMPTS or not may_retry():
                break
            await asyncio.sleep(pause_s)
            pause_s *= 2
        owner = (await self.owners([move.bundle])).get(move.bundle, "")
        if owner == move.target:  # it came after the last look
            return MoveResult(DONE, owner, attempt, took_s)
        return MoveResult(outcome, owner, attempt, took_s, message)

    async def owners(self, bundles: Sequence[str]) -> dict[str, str]:
        """The brokers that have these bundles now, by bundle; "" = none. A bundle whose owner may
        be a broker that can't be asked is left out.
        """
        if not bundles:
            return {}
        found, failures = await self._owned_at([*self._addresses])
        known = bundles if not failures else found.keys() & set(bundles)
        return {bundle: found.get(bundle, "") for bundle in known}

    async def owner(self, bundle: str, first: Sequence[str] = ()) -> str:
        """The broker that has the bundle now; "" = none. The question changes no owner.

        Args:
            bundle: its name.
            first: brokers that probably have it; the others are asked only if these do not.

        Raises:
            ClusterError: a broker can't be asked, and no other has it.
        """
        failures: list[BaseException] = []
        for brokers in (first, [broker for broker in self._addresses if broker not in first]):
            found, failed = await self._owned_at(brokers)
            if bundle in found:
                return found[bundle]
            failures += failed
        if failures:
            raise failures[-1]
        return ""

    async def _owned_at(self, brokers: Sequence[str]) -> tuple[dict[str, str], list[BaseException]]:
        """The owner of each bundle that these brokers have, and why some did not answer."""
        answers = await asyncio.gather(
            *(owned_bundles(self._rest, self._cluster, broker) for broker in brokers),
            return_exceptions=True,
        )
        found, failures = dict[str, str](), list[BaseException]()
        for broker, answer in zip(brokers, answers, strict=True):
            if isinstance(answer, BaseException):
                failures.append(answer)
            else:
                found |= dict.fromkeys(answer, broker)
        return found, failures

    async def _attempt(self, move: Move, holder: str) -> str:
        """Unload the bundle from its holder and claim it for the target; returns the owner, "" =
        none.
        """
        unloading = asyncio.create_task(
            unload(self._rest, move.bundle, move.target, self._unload_timeout_s)
        )
        claiming = asyncio.create_task(self._claim(move, holder, unloading))
        try:
            await unloading
            owner = await claiming
        finally:
            for task in (unloading, claiming):
                task.cancel()
                with suppress(asyncio.CancelledError, ClusterError):
                    await task
        # The claim's answer may come from a cache; the owner's own list does not.
        owned = await owned_bundles(self._rest, self._cluster, move.target)
        return move.target if move.bundle in owned else owner if owner != move.target else ""

    async def _claim(self, move: Move, holder: str, unloading: asyncio.Task[None]) -> str:
        """Claim the bundle for the target until another broker than its holder has it."""
        loop = asyncio.get_running_loop()
        held = self._addresses.get(holder)
        names = {address.name: broker for broker, address in self._addresses.items()}
        url = self._addresses[move.target].url
        until_s = None
        while until_s is None or loop.time() < until_s:
            # Before the question: an answer of before the unload's end may be the holder.
            ended = unloading.done()
            owner = await claim(self._rest, move.bundle, url)
            if owner is not None and (ended or held is None or owner.name != held.name):
                return names.get(owner.name, owner.name)
            if ended and until_s is None:
                until_s = loop.time() + _CLAIMS_AFTER_UNLOAD_S
            await asyncio.sleep(_CLAIM_EVERY_S)
        return ""
