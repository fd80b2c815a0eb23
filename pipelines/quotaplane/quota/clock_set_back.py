"""What a shard does with its state when the job's clock was set back: no time in it is to come."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quotaplane.model import Round
from quotaplane.quota.config import StepConfig
from quotaplane.quota.state import ShardState
from quotaplane.quota.undefined_groups import QUIET_MS


def without_future(state: ShardState, round_: Round, config: StepConfig) -> ShardState:
    """The state with all times at most those that this round would give.

    Otherwise brokers that fell silent would count as live, quotas would stay reserved, and learning
    would last, until the clock is where it was before.
    """
    now_ms = round_.now_ms
    if state.last_round_ms <= now_ms:
        return state
    brokers, leases, learning = state.brokers, state.leases, state.learning
    deleted, undefined = state.deleted, state.undefined
    learning_until_ms = config.learning_until_ms(now_ms)
    reserved_until_ms = config.lease.reserved_until_ms(now_ms)
    return replace(
        state,
        brokers=replace(
            brokers,
            seen_at_ms=np.minimum(brokers.seen_at_ms, now_ms),
            read_at_ms=np.minimum(brokers.read_at_ms, now_ms),
            reported_at_ms=np.minimum(brokers.reported_at_ms, now_ms),
            disputed_at_ms=np.minimum(brokers.disputed_at_ms, now_ms),
        ),
        leases=replace(
            leases,
            issued_at_ms=np.minimum(leases.issued_at_ms, now_ms),
            seen_at_ms=np.minimum(leases.seen_at_ms, now_ms),
        ),
        learning=replace(learning, until_ms=min(learning.until_ms, learning_until_ms)),
        deleted=replace(deleted, until_ms=np.minimum(deleted.until_ms, reserved_until_ms)),
        undefined=replace(
            undefined, quiet_until_ms=np.minimum(undefined.quiet_until_ms, now_ms + QUIET_MS)
        ),
        observed=state.observed.without_future(now_ms),
        renewed_at_ms=np.minimum(state.renewed_at_ms, now_ms),
        snapshot_at_ms=min(state.snapshot_at_ms, now_ms),
        recorded_at_ms=min(state.recorded_at_ms, now_ms),
    )
