"""Jumps of the time from one round to the next: the clock was set back, or the job was away."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from quotaplane.model import Round
from quotaplane.quota.config import StepConfig
from quotaplane.quota.state import ShardState
from quotaplane.quota.undefined_groups import QUIET_MS


def after_jump(state: ShardState, round_: Round, config: StepConfig) -> ShardState:
    """The state as this round may use it: without times to come, and without the job's absence."""
    return _without_absence(_without_future(state, round_, config), round_, config)


def _without_future(state: ShardState, round_: Round, config: StepConfig) -> ShardState:
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


def _without_absence(state: ShardState, round_: Round, config: StepConfig) -> ShardState:
    """The state after a time without rounds, most of which is no silence of brokers.

    The job was away then, and a topic need not have kept all that was sent meanwhile, or deliver it
    at once. ``step.next_due_ms`` makes rounds of a job that is there more frequent.
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
