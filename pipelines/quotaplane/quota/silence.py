"""Brokers that do not report any more, and leases whose group a broker no longer names."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from quotaplane.model import BoolArray, Round
from quotaplane.quota.config import StepConfig
from quotaplane.quota.shard import Shard


@dataclass(frozen=True)
class Silence:
    """Who and what is silent in a round."""

    stale: BoolArray
    """(b,) brokers that are late with their reports, and keep their limits."""
    gone: BoolArray
    """(b,) brokers that are given up: others get their share."""
    leases: BoolArray
    """(n,) leases that end: their broker is gone, or no longer names the group."""

    def groups(self, shard: Shard) -> BoolArray:
        """(g,) the groups that lose a lease."""
        lose: BoolArray = np.zeros(len(shard.groups), bool)
        lose[shard.leases.group[self.leases]] = True
        return lose


def find_silence(shard: Shard, round_: Round, config: StepConfig) -> Silence:
    """Compare when brokers were heard of with the round's time."""
    silent_ms = round_.now_ms - shard.brokers.seen_at_ms
    forgotten_after_ms = config.lease.forgotten_after_ms
    gone = silent_ms > forgotten_after_ms
    stale = (silent_ms > config.stale_after_ms) & ~gone
    leases = shard.leases
    ends = gone[leases.broker] | (round_.now_ms - leases.seen_at_ms > forgotten_after_ms)
    return Silence(stale, gone, ends)


def without_silent(shard: Shard, silence: Silence) -> Shard:
    """The shard with its brokers marked, and without the leases that end."""
    brokers = replace(shard.brokers, stale=silence.gone | silence.stale)
    leases = shard.leases
    if silence.leases.any():
        leases = leases.take(~silence.leases)
    return Shard(shard.groups, brokers, leases)
