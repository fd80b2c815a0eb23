"""Silence: brokers that stopped reporting, or departed, and groups that they no longer report.

A departed broker left its cluster's own list, which is better evidence than silence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from quotaplane.model import BoolArray
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import Events, StepConfig
from quotaplane.quota.shard import Shard


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


def find_silence(shard: Shard, events: Events, now_ms: int, config: StepConfig) -> Silence:
    """Find silent brokers and leases by the time since the round that read their last report.

    Shares are given away only by the time up to which reports have been read, because reports that
    wait in the topics are no silence. ``events``: those of the round.
    """
    forgotten_after_ms = config.lease.forgotten_after_ms
    silent_ms, lease_silent_ms = shard.silent_ms(_read_up_to_ms(events.headers, now_ms))
    expired = silent_ms > forgotten_after_ms
    departed = _departed(shard.brokers, events.departures, config) & ~expired
    gone = expired | departed
    # By the time of the round: what is published to a broker now is in force for a lease from now.
    stale = (shard.silent_ms(now_ms)[0] > config.stale_after_ms) & ~gone
    ends = gone[shard.leases.broker] | (lease_silent_ms > forgotten_after_ms)
    return Silence(stale, gone, departed, ends)


def _read_up_to_ms(headers: pa.Table | None, now_ms: int) -> int:
    """Up to when reports have been read after a round: the publish time of its newest one.

    In a round without reports none waits, so it is the time of the round; later it never is.

    >>> headers = pa.table({"published_at_ms": [500, 900]})
    >>> _read_up_to_ms(headers, 1000), _read_up_to_ms(headers, 800), _read_up_to_ms(None, 1000)
    (900, 800, 1000)
    """
    if headers is None or not len(headers):
        return now_ms
    return min(int(headers["published_at_ms"].to_numpy().max()), now_ms)


def without_silent(shard: Shard, silence: Silence) -> Shard:
    """The shard with stale brokers marked, without the leases that end."""
    brokers = replace(shard.brokers, stale=silence.gone | silence.stale)
    leases = shard.leases
    if silence.leases.any():
        leases = leases.take(~silence.leases)
    return Shard(shard.groups, brokers, leases)


def _departed(brokers: Brokers, departures: pa.Table | None, config: StepConfig) -> BoolArray:
    """(b,) brokers that left the list and have not reported since; ``departures``: see ``Events``.

    None, if more than half of the known brokers are said to have left: then the list is more
    likely wrong than they are dead, and silence decides. None under strict: what a broker has
    may be in force until its lease end, whether it is alive or not.

    A report is older than the list if its publish time says so, unless it was read so long after
    that time that the clock that stamps it may be behind: then by the round that read it.
    """
    left_at_ms = np.full(len(brokers), -1, np.int64)
    if departures is not None and len(departures) and not config.lease.strict:
        names = pa.array(brokers.names, pa.string())
        index = pc.index_in(departures["broker"].combine_chunks(), value_set=names)
        known = index.is_valid().to_numpy(zero_copy_only=False)
        left_at_ms[index.drop_null().to_numpy()] = departures["left_at_ms"].to_numpy()[known]
    left = left_at_ms >= 0
    if 2 * np.count_nonzero(left) > len(brokers):
        return np.zeros(len(brokers), bool)
    late = brokers.read_at_ms - brokers.seen_at_ms > config.stale_after_ms
    reported_at_ms = np.where(late, brokers.read_at_ms, brokers.seen_at_ms)
    departed: BoolArray = left & (reported_at_ms <= left_at_ms)
    return departed
