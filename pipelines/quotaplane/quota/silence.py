"""Silence: brokers that stopped reporting, and groups that a broker no longer reports."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quotaplane.model import BoolArray, Round
from quotaplane.quota.config import StepConfig
from quotaplane.quota.shard import Shard


@dataclass(frozen=True)
class Silence:
    """The brokers and leases that no recent report names."""

    stale: BoolArray
    """(b,) brokers whose reports are late; they keep their limits."""
    gone: BoolArray
    """(b,) brokers that were silent for so long that others get their share."""
    leases: BoolArray
    """(n,) leases that end: the broker is gone, or it no longer reports the group."""

    def groups(self, shard: Shard) -> BoolArray:
        """(g,) the groups that lose a lease."""
        losing: BoolArray = np.zeros(len(shard.groups), bool)
        losing[shard.leases.group[self.leases]] = True
        return losing


def find_silence(shard: Shard, round_: Round, config: StepConfig) -> Silence:
    """Find silent brokers and leases by the age of their last report at the round's time."""
    silent_ms = round_.now_ms - shard.brokers.seen_at_ms
    forgotten_after_ms = config.lease.forgotten_after_ms
    gone = silent_ms > forgotten_after_ms
    stale = (silent_ms > config.stale_after_ms) & ~gone
    leases = shard.leases
    ends = gone[leases.broker] | (round_.now_ms - leases.seen_at_ms > forgotten_after_ms)
    return Silence(stale, gone, ends)


def without_silent(shard: Shard, silence: Silence) -> Shard:
    """The shard with stale brokers marked, without the leases that end."""
    brokers = replace(shard.brokers, stale=silence.gone | silence.stale)
    leases = shard.leases
    if silence.leases.any():
        leases = leases.take(~silence.leases)
    return Shard(shard.groups, brokers, leases)
