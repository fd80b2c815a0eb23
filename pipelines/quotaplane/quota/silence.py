"""Silence: brokers that stopped reporting, or departed, and groups that they no longer report."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from quotaplane.model import BoolArray, Round
from quotaplane.quota.config import StepConfig
from quotaplane.quota.departures import find_departed
from quotaplane.quota.shard import Shard
from quotaplane.quota.state import ShardState


@dataclass(frozen=True)
class Silence:
    """The brokers and leases that no recent report names."""

    stale: BoolArray
    """(b,) brokers whose reports are late; they keep their limits."""
    gone: BoolArray
    """(b,) brokers that departed, or were silent for so long, that others get their share."""
    departed: BoolArray
    """(b,) those of them that are gone only because they left the cluster's list."""
    leases: BoolArray
    """(n,) leases that end: the broker is gone, or it no longer reports the group."""

    def groups(self, shard: Shard) -> BoolArray:
        """(g,) the groups that lose a lease."""
        losing: BoolArray = np.zeros(len(shard.groups), bool)
        losing[shard.leases.group[self.leases]] = True
        return losing

    def ending(self, shard: Shard) -> dict[str, Shard]:
        """The shard with only the leases that end, by the reason why; some may have none."""
        # Few end, so their indexes are much cheaper to take than masks are.
        ending = np.flatnonzero(self.leases)
        departed = self.departed[shard.leases.broker[ending]]
        reasons = {"silent": ending[~departed], "departed": ending[departed]}
        return {
            why: replace(shard, leases=shard.leases.take(chosen)) for why, chosen in reasons.items()
        }


def without_absence(state: ShardState, round_: Round, config: StepConfig) -> ShardState:
    """The state after a time without rounds, most of which is no silence of brokers.

    The job was away then, and a topic need not have kept all that was sent meanwhile, or deliver it
    at once. ``next_due_ms`` makes rounds of a job that is there more frequent.
    """
    brokers = state.brokers
    last_ms = state.last_round_ms
    away_ms = round_.now_ms - last_ms
    if not last_ms or away_ms <= config.lease.quarter_ms:
        return state
    # A part of it counts: rounds that always take as long must not keep dead brokers for ever.
    read_at_ms = brokers.read_at_ms + int(max(away_ms - config.expire_after_ms / 3, 0.0))
    read_at_ms = np.where(brokers.read_at_ms < 0, brokers.read_at_ms, read_at_ms)
    return replace(state, brokers=replace(brokers, read_at_ms=read_at_ms))


def find_silence(
    shard: Shard, departures: pa.Table | None, read_up_to_ms: int, now_ms: int, config: StepConfig
) -> Silence:
    """Find silent brokers and leases by the time since the round that read their last report.

    ``departures``: see ``Events``. ``read_up_to_ms``: see ``report_age``; shares are given away
    only by that time, because reports that wait in the topics are no silence.
    """
    forgotten_after_ms = config.lease.forgotten_after_ms
    silent_ms, lease_silent_ms = shard.silent_ms(read_up_to_ms)
    expired = silent_ms > forgotten_after_ms
    departed = find_departed(shard.brokers, departures, config) & ~expired
    gone = expired | departed
    # By the time of the round: what is published to a broker now is in force for a lease from now.
    stale = (shard.silent_ms(now_ms)[0] > config.stale_after_ms) & ~gone
    ends = gone[shard.leases.broker] | (lease_silent_ms > forgotten_after_ms)
    return Silence(stale, gone, departed, ends)


def without_silent(shard: Shard, silence: Silence) -> Shard:
    """The shard with stale brokers marked, without the leases that end."""
    brokers = replace(shard.brokers, stale=silence.gone | silence.stale)
    leases = shard.leases
    if silence.leases.any():
        leases = leases.take(~silence.leases)
    return Shard(shard.groups, brokers, leases)
