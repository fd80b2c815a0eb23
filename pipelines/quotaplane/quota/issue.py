"""Limits out: which groups are divided anew, and which of the answers go out to whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from quotaplane.groups.hierarchy import subtree_totals
from quotaplane.laws import Reason
from quotaplane.model import BoolArray, FloatArray, IntArray, Mode, Round, Transition
from quotaplane.quota.broker_terms import lease_terms
from quotaplane.quota.config import StepConfig
from quotaplane.quota.division import Division, LeaseStatus, divide, tree_quota
from quotaplane.quota.groups import Groups, whole_trees
from quotaplane.quota.leases import Leases
from quotaplane.quota.reason_texts import reason_texts
from quotaplane.quota.rollout import enforced
from quotaplane.quota.shard import Shard


@dataclass(frozen=True)
class RoundChanges:
    """Everything that happened in a round and may require that limits are published."""

    touched: BoolArray
    """(g,) a report names the group, a lease of it ended, or it was changed."""
    quota_changed: BoolArray
    """(g,) its definition, policy or parent is new."""
    throttle_changed: BoolArray
    """(g,) its throttle terms are others than brokers were told."""
    reserved: FloatArray | None
    """(d, g) what brokers of deleted groups may still be using; None: nothing."""
    restarted: BoolArray
    """(b,) the broker began anew and knows none of its limits."""
    adopted: BoolArray
    """(n,) a limit of an earlier epoch was taken over from its broker's report."""
    returned: BoolArray
    """(n,) named again after nobody did for so long that the lease counted as stale."""
    learning: bool
    """For now limits are only handed back."""


@dataclass(frozen=True)
class IssuedLimits:
    """The leases with their limits, and which of these are published; m of n are."""

    leases: Leases
    changed: BoolArray
    """(n,) the limit is new, or was taken over."""
    to_publish: IntArray
    """(m,) the leases that go out, or changed."""
    safe_told: BoolArray
    """(m,) safe limit and throttle terms go out with it."""
    published: BoolArray
    """(m,) the broker is sent it."""
    reasons: npt.NDArray[np.uint8]
    """(d, n) codes of ``laws.reason.Reason``; only where ``changed``."""
    words: list[list[str]] | None
    """By dimension the reasons of the changed leases in words; None: too many."""
    ceiling: FloatArray | None
    """(d, n) None: nobody has any."""


def issue_limits(
    shard: Shard, changes: RoundChanges, round_: Round, config: StepConfig, rounds: int
) -> IssuedLimits:
    """Divide the quotas of the touched groups, and decide what is published.

    A group keeps its limits while moving them would bring nobody much, unless they add up to more
    than its quota or somebody changed it: fairness is worth a message, noise is not. When one
    moves, all limits of the group, and of its tree, are issued together, so that what is in force
    adds up. ``rounds``: that the shard took part in.
    """
    groups, strict = shard.groups, config.transition is Transition.STRICT
    leases = shard.leases
    # Of a broker, or of a group that its broker no longer names.
    stale = shard.brokers.stale[leases.broker]
    stale |= leases.seen_at_ms < round_.now_ms - config.stale_after_ms
    touched, adopted = whole_trees(groups, changes.touched), changes.adopted
    if strict:
        leases, adopted, overcommitted = _handed_back(groups, leases, changes, stale)
        leases = _without_ended_waits(leases, round_, config)
    if changes.learning:
        ordered = overcommitted if strict else _ordered(groups, leases, changes, adopted)
        touched &= ordered
    shard = replace(shard, leases=leases)
    waiting = _waiting(leases) if strict else np.zeros(len(leases), bool)
    quota_changed = changes.quota_changed[leases.group]
    status = LeaseStatus(
        terms=lease_terms(groups, shard.brokers, leases),
        enforced=enforced(groups, shard.brokers, leases),
        fixed=(waiting & ~quota_changed | stale) if strict else waiting,
        reserved=changes.reserved,
    )
    divisions = [
        divide(shard, status, dimension, touched, config)
        for dimension in range(len(leases.dimensions))
    ]
    limit = np.stack([division.limit for division in divisions])
    changed = _changed(shard, changes, status, divisions, touched)
    if strict:  # a broker that was told nothing yet uses nothing, also of what has no quota
        changed |= touched[leases.group] & ~leases.has_limit
        changed &= ~stale  # what is told now can be in force for another lease
    reasons = np.stack([division.reasons for division in divisions])
    reasons[:, adopted] = Reason.HANDED_BACK

    renewed = _renewed(shard, changes, config, rounds) | waiting & leases.has_limit
    if strict:
        # A returning broker missed all messages sent while it was silent, so its limits, safe
        # limits and throttle terms are sent again.
        renewed = (renewed | changes.returned & leases.has_limit) & ~stale
    out = changed | renewed | adopted
    # Shadows are told nothing, but a broker that had been limited is told that it no longer is.
    # Where nothing may be used before a word came, not to be limited must be said as well.
    published = out & ((groups.mode != Mode.SHADOW)[leases.group] | leases.notified | strict)
    # A broker may have a safe limit of a run under fast: with strict each message takes it away, so
    # that any acknowledgement shows that it is gone.
    first = changed & ~leases.has_limit
    safe_told = renewed | first | adopted | quota_changed | strict
    max_in_force = np.stack([division.max_in_force for division in divisions])
    to_publish = np.flatnonzero(out)
    # While a strict shard learns, issued_seq tells which groups were divided: nothing gets old.
    ages = not (strict and changes.learning)
    return IssuedLimits(
        leases=_issued(
            leases,
            np.where(changed, limit, leases.limit),
            np.where(changed, max_in_force, leases.max_in_force),
            changed,
            np.where(changed, status.enforced, leases.enforced),
            published,
            _old(leases, round_, config) & ~waiting & ages,
            round_,
            strict=strict,
        ),
        changed=changed | adopted,
        to_publish=to_publish,
        safe_told=safe_told[to_publish],
        published=published[to_publish],
        reasons=reasons,
        words=None if adopted.any() else reason_texts(divisions, changed),
        ceiling=status.terms.ceiling,
    )


def _ordered(
    groups: Groups, leases: Leases, changes: RoundChanges, adopted: BoolArray
) -> BoolArray:
    """(g,) trees that are divided although the shard learns, under fast.

    Somebody changed the group meanwhile: that is an order for all its tree, unless it is the first
    that is heard of it and all below.
    """
    known = np.bincount(leases.group, weights=leases.has_limit & ~adopted, minlength=len(groups))
    below = subtree_totals(groups.parent, known.astype(np.float64))
    return whole_trees(groups, changes.quota_changed & (below > 0))


def _without_ended_waits(leases: Leases, round_: Round, config: StepConfig) -> Leases:
    """Once the lease of what a limit replaced is over, nobody can be using that any more.

    "Not limited" has no end: only an answer can show that it was left behind.
    """
    over = leases.issued_at_ms < config.lease.ended_if_issued_before_ms(round_.now_ms)
    over = over & np.isfinite(leases.max_in_force)
    return replace(leases, max_in_force=np.where(over, leases.limit, leases.max_in_force))


def _waiting(leases: Leases) -> BoolArray:
    """(n,) its broker has not shown yet that it left a higher limit behind.

    Told anything else all the time, it could never be seen which one it has left behind.
    """
    differs = (leases.max_in_force != leases.limit).any(axis=0)
    waiting: BoolArray = differs & leases.has_limit & leases.enforced
    return waiting


def _changed(
    shard: Shard,
    changes: RoundChanges,
    status: LeaseStatus,
    divisions: Sequence[Division],
    touched: BoolArray,
) -> BoolArray:
    """(n,) leases that get a new limit."""
    groups, leases = shard.groups, shard.leases
    significant = np.any([division.significant for division in divisions], axis=0)
    moves = whole_trees(groups, changes.quota_changed | significant) & touched
    differs = np.any(
        [division.limit != now for division, now in zip(divisions, leases.limit, strict=True)],
        axis=0,
    )
    changed: BoolArray = moves[leases.group] & differs
    changed |= touched[leases.group] & leases.has_limit & (status.enforced != leases.enforced)
    let_go = leases.has_limit & leases.enforced & ~status.enforced
    changed |= changes.quota_changed[leases.group] & let_go
    return changed


def _renewed(shard: Shard, changes: RoundChanges, config: StepConfig, rounds: int) -> BoolArray:
    """(n,) leases whose limit goes out again: in turn, or as its broker lacks it."""
    groups, leases = shard.groups, shard.leases
    turn = groups.ids % config.refresh_rounds == rounds % config.refresh_rounds
    due = turn | changes.throttle_changed  # other terms are told even if no limit moves
    lacks = changes.restarted[leases.broker]
    renewed: BoolArray = (due[leases.group] | lacks) & leases.has_limit
    return renewed


def _old(leases: Leases, round_: Round, config: StepConfig) -> BoolArray:
    """(n,) no report can be about the time before the limit any more."""
    old: BoolArray = leases.issued_at_ms < round_.now_ms - 2 * config.expire_after_ms
    return old


def _issued(
    leases: Leases,
    limit: FloatArray,
    max_in_force: FloatArray,
    changed: BoolArray,
    enforced: BoolArray,
    published: BoolArray,
    old: BoolArray,
    round_: Round,
    *,
    strict: bool,
) -> Leases:
    """The leases after this round."""
    # A broker that is not limited is not waited for.
    held = np.where(enforced, max_in_force, limit) if strict else max_in_force
    return replace(
        leases,
        limit=limit,
        previous_limit=np.where(changed | old, leases.limit, leases.previous_limit),
        max_in_force=held,
        has_limit=leases.has_limit | changed,
        enforced=enforced,
        notified=leases.notified | published,
        issued_at_ms=np.where(changed, round_.now_ms, np.where(old, -1, leases.issued_at_ms)),
        issued_seq=np.where(changed, round_.seq, np.where(old, -1, leases.issued_seq)),
    )


def _handed_back(
    groups: Groups, leases: Leases, changes: RoundChanges, stale: BoolArray
) -> tuple[Leases, BoolArray, BoolArray]:
    """Which limits strict hands back, and which trees it divides although it learns.

    Limits that are handed back are in force for a lease, also when learning is over. So all that
    this control plane told must fit the quotas. Where the limits that brokers report do not fit,
    they are not handed back: the brokers have more than the quota already, waiting would keep
    nothing, and the tree is divided like any other from now on. Nothing is handed back to brokers
    out of sight, or once learning is over.

    Returns:
        The leases, those that are not handed back without a limit; (n,) which are; (g,) the trees
        to divide.
    """
    overcommitted: BoolArray = np.zeros(len(groups), np.bool_)
    if not changes.learning and not changes.adopted.any():
        return leases, changes.adopted, overcommitted
    counts = leases.has_limit & leases.enforced
    for dimension, held in enumerate(leases.max_in_force):
        total = np.zeros(len(groups)) if changes.reserved is None else changes.reserved[dimension]
        total = total + np.bincount(leases.group, np.where(counts, held, 0.0), len(groups))
        overcommitted |= subtree_totals(groups.parent, total) > tree_quota(groups, dimension)
    overcommitted[leases.group[leases.issued_seq >= 0]] = True  # it was divided in an earlier round
    overcommitted = whole_trees(groups, overcommitted)
    refused = changes.adopted & (stale | overcommitted[leases.group] | (not changes.learning))
    leases = replace(
        leases,
        has_limit=leases.has_limit & ~refused,
        notified=leases.notified & ~refused,
    )
    return leases, changes.adopted & ~refused, overcommitted
