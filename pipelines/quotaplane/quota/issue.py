"""Issue of limits: which groups are divided anew, and which limits go to which brokers.

Shapes of arrays: d dimensions, g groups, b brokers, n leases (one for each broker and group).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from quotaplane.groups.hierarchy import and_below, subtree_totals
from quotaplane.laws import Reason
from quotaplane.model import BoolArray, FloatArray, IntArray, Mode, Round, Transition
from quotaplane.quota.broker_terms import lease_terms
from quotaplane.quota.config import StepConfig
from quotaplane.quota.division import Division, LeaseStatus, divide
from quotaplane.quota.explanations import Explanation, explanation
from quotaplane.quota.groups import Groups, whole_trees
from quotaplane.quota.leases import Leases
from quotaplane.quota.shard import Shard


@dataclass(frozen=True)
class RoundChanges:
    """Everything that happened in a round and may require that limits are published."""

    touched: BoolArray
    """(g,) a report names the group, one of its leases ended, or the group was changed."""
    quota_changed: BoolArray
    """(g,) the group's quota, policy or parent was changed."""
    throttle_changed: BoolArray
    """(g,) the group's throttle terms differ from those that brokers have."""
    reserved: FloatArray | None
    """(d, g) quota that brokers of deleted groups may still be using; None: no quota."""
    debt: FloatArray | None
    """(d, g) see ``LeaseStatus``."""
    restarted: BoolArray
    """(b,) the broker was restarted and lost its limits."""
    adopted: BoolArray
    """(n,) a limit of an earlier epoch was adopted from the broker's report."""
    returned: BoolArray
    """(n,) the lease was stale, and a report names it again."""
    learning: bool
    """The shard is in learning mode: limits are only handed back."""


@dataclass(frozen=True)
class IssuedLimits:
    """The n leases with their new limits, and a selection of m leases for the round's outcome."""

    leases: Leases
    divided: BoolArray
    """(g,) the group's quota was divided in this round."""
    changed: BoolArray
    """(n,) the limit is new, or was adopted."""
    to_publish: IntArray
    """(m,) the selection: indexes of leases whose limit changed or is published again."""
    with_safe_limit: BoolArray
    """(m,) the safe limit and the throttle terms are published with the limit."""
    published: BoolArray
    """(m,) the limit is published to the broker; else it is only recorded."""
    reasons: npt.NDArray[np.uint8]
    """(d, n) codes of ``laws.reason.Reason``; only where ``changed``."""
    explanations: list[Explanation]
    """Explanations of the changed limits, by dimension."""
    ceiling: FloatArray | None
    """(d, n) the highest limit that broker terms allow; None: no broker has a ceiling."""


def issue_limits(
    shard: Shard,
    changes: RoundChanges,
    round_: Round,
    config: StepConfig,
    due_turns: BoolArray,
) -> IssuedLimits:
    """Divide the quotas of the touched groups, and decide what is published.

    A group keeps its limits while new ones would gain little (hysteresis), so that noise causes no
    messages. Exceptions are limits that add up to more than the quota, and a changed group. If one
    limit changes, all limits of the group and its tree are issued together, so that the limits in
    force fit the quota. ``due_turns`` (t,): see ``renewals``.
    """
    strict = config.transition is Transition.STRICT
    # A lease is stale if its broker is silent, or if its reports no longer name the group.
    stale = shard.brokers.stale[shard.leases.broker]
    stale |= shard.silent_ms(round_.now_ms)[1] > config.stale_after_ms
    if strict:
        # By publish times, as the time for which reports do not name a group follows from them: a
        # limit that is issued on a late report could outlast its lease.
        stale |= shard.confirmed_at_ms() < round_.now_ms - config.stale_after_ms
    shard, adopted, touched = _before_division(shard, changes, stale, round_, config)
    groups, leases = shard.groups, shard.leases
    waiting = _waiting(leases) if strict else np.zeros(len(leases), bool)
    quota_changed = changes.quota_changed[leases.group]
    # A quota bounds the groups below it, too.
    waiting_on = waiting & ~and_below(groups.parent, changes.quota_changed)[leases.group]
    status = LeaseStatus(
        terms=lease_terms(shard),
        enforced=shard.enforced(),
        on_hold=(waiting_on | stale) if strict else waiting,
        reserved=changes.reserved,
        debt=changes.debt,
    )
    divisions = [
        divide(shard, status, dimension, touched, config)
        for dimension in range(len(leases.dimensions))
    ]
    changed = _changed(shard, changes, status, divisions, touched)
    if strict:
        # Without a limit a broker uses nothing, so even "unlimited" must be issued.
        changed |= touched[leases.group] & ~leases.has_limit
        # A limit that is issued to a stale broker now could be in force for another lease.
        changed &= ~stale
    reasons = np.stack([division.reasons for division in divisions])
    reasons[:, adopted] = Reason.HANDED_BACK

    renewed = _renewed(shard, changes, due_turns) | waiting & leases.has_limit
    if strict:
        # A returning broker missed all messages of the time when it was silent, so its limits, safe
        # limits and throttle terms are published again.
        renewed = (renewed | changes.returned & leases.has_limit) & ~stale
    selected = changed | renewed | adopted
    # Limits of shadow groups are not published, except to a broker that received limits before: it
    # receives "unlimited". Under strict all receive that: without a limit brokers use nothing.
    published = selected & ((groups.mode != Mode.SHADOW)[leases.group] | leases.notified | strict)
    # A broker may have a safe limit of an earlier run under fast. With strict each message replaces
    # it, so any acknowledgement shows that it is gone.
    first = changed & ~leases.has_limit
    with_safe_limit = renewed | first | adopted | quota_changed | strict
    to_publish = np.flatnonzero(selected)
    old = _old(leases, round_, config) & ~waiting
    if strict and changes.learning:
        # ``_hand_back`` finds by issued_seq the groups that were divided in learning mode.
        old[:] = False
    return IssuedLimits(
        leases=_issued(leases, divisions, status, changed, published, old, round_, strict=strict),
        divided=touched,
        changed=changed | adopted,
        to_publish=to_publish,
        with_safe_limit=with_safe_limit[to_publish],
        published=published[to_publish],
        reasons=reasons,
        explanations=[explanation(each, changed | adopted, adopted) for each in divisions],
        ceiling=status.terms.ceiling,
    )


def _before_division(
    shard: Shard, changes: RoundChanges, stale: BoolArray, round_: Round, config: StepConfig
) -> tuple[Shard, BoolArray, BoolArray]:
    """Prepare the division: the shard, (n,) limits to hand back, (g,) groups to divide."""
    groups, leases, adopted = shard.groups, shard.leases, changes.adopted
    touched = whole_trees(groups, changes.touched)
    strict = config.transition is Transition.STRICT
    if strict:
        leases, adopted, overcommitted = _hand_back(groups, leases, changes, stale)
        leases = _without_ended_waits(leases, round_, config)
    if changes.learning:
        redefined = overcommitted if strict else _redefined(groups, leases, changes, adopted)
        touched = touched & redefined
    return replace(shard, leases=leases), adopted, touched


def _redefined(
    groups: Groups, leases: Leases, changes: RoundChanges, adopted: BoolArray
) -> BoolArray:
    """(g,) trees that are divided in learning mode under fast: a group in use was changed.

    A change counts only if the group, or one below it, has a limit that was not adopted now: the
    first definition of a group is no change.
    """
    limited = np.bincount(leases.group, weights=leases.has_limit & ~adopted, minlength=len(groups))
    in_subtree = subtree_totals(groups.parent, limited.astype(np.float64))
    return whole_trees(groups, changes.quota_changed & (in_subtree > 0))


def _without_ended_waits(leases: Leases, round_: Round, config: StepConfig) -> Leases:
    """The leases, where a replaced limit whose lease is over no longer counts as in force.

    "Unlimited" has no lease end: only an acknowledgement shows that it is no longer in force.
    """
    over = leases.issued_at_ms < config.lease.ended_if_issued_before_ms(round_.now_ms)
    over = over & np.isfinite(leases.max_in_force)
    return replace(leases, max_in_force=np.where(over, leases.limit, leases.max_in_force))


def _waiting(leases: Leases) -> BoolArray:
    """(n,) the broker has not acknowledged its limit, and may be using a higher one.

    Such a lease gets no new limit: if the limit changed every round, an acknowledgement would
    always be of an older one.
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
    moving = whole_trees(groups, changes.quota_changed | significant) & touched
    differs = np.any(
        [division.limit != limit for division, limit in zip(divisions, leases.limit, strict=True)],
        axis=0,
    )
    changed: BoolArray = moving[leases.group] & differs
    changed |= touched[leases.group] & leases.has_limit & (status.enforced != leases.enforced)
    released = leases.has_limit & leases.enforced & ~status.enforced
    changed |= changes.quota_changed[leases.group] & released
    return changed


def _renewed(shard: Shard, changes: RoundChanges, due_turns: BoolArray) -> BoolArray:
    """(n,) leases whose limit is published again: in turn, or as the broker does not have it."""
    groups, leases = shard.groups, shard.leases
    in_turn = due_turns[groups.ids % len(due_turns)]
    # Changed throttle terms are published even if no limit changes.
    due = in_turn | changes.throttle_changed
    restarted = changes.restarted[leases.broker]
    renewed: BoolArray = (due[leases.group] | restarted) & leases.has_limit
    return renewed


def _old(leases: Leases, round_: Round, config: StepConfig) -> BoolArray:
    """(n,) the limit is so old that no report to come can cover the time before it."""
    old: BoolArray = leases.issued_at_ms < round_.now_ms - 2 * config.expire_after_ms
    return old


def _issued(
    leases: Leases,
    divisions: Sequence[Division],
    status: LeaseStatus,
    changed: BoolArray,
    published: BoolArray,
    old: BoolArray,
    round_: Round,
    *,
    strict: bool,
) -> Leases:
    """The leases after this round."""
    limit = np.where(changed, np.stack([division.limit for division in divisions]), leases.limit)
    max_in_force = np.stack([division.max_in_force for division in divisions])
    max_in_force = np.where(changed, max_in_force, leases.max_in_force)
    enforced = np.where(changed, status.enforced, leases.enforced)
    if strict:
        # Where limits are not enforced, no acknowledgement is awaited.
        max_in_force = np.where(enforced, max_in_force, limit)
    return replace(
        leases,
        limit=limit,
        previous_limit=np.where(changed | old, leases.limit, leases.previous_limit),
        max_in_force=max_in_force,
        has_limit=leases.has_limit | changed,
        enforced=enforced,
        notified=leases.notified | published,
        issued_at_ms=np.where(changed, round_.now_ms, np.where(old, -1, leases.issued_at_ms)),
        issued_seq=np.where(changed, round_.seq, np.where(old, -1, leases.issued_seq)),
    )


def _hand_back(
    groups: Groups, leases: Leases, changes: RoundChanges, stale: BoolArray
) -> tuple[Leases, BoolArray, BoolArray]:
    """Decide under strict which adopted limits are handed back, and which trees are divided.

    A limit that is handed back is in force for a lease, also after learning mode, and all limits
    that this control plane issues must fit the quotas. If the limits that the brokers of a tree
    report do not fit, they are not handed back, and the tree is divided as usual from now on: its
    quota is exceeded already, so waiting would not help. Nothing is handed back to stale leases, or
    after learning mode.

    Returns:
        The leases, without limits that are not handed back; (n,) limits that are handed back;
        (g,) trees to divide although the shard is in learning mode.
    """
    overcommitted: BoolArray = np.zeros(len(groups), np.bool_)
    if not changes.learning and not changes.adopted.any():
        return leases, changes.adopted, overcommitted
    counts = leases.has_limit & leases.enforced
    for dimension, rates in enumerate(leases.max_in_force):
        total = np.zeros(len(groups)) if changes.reserved is None else changes.reserved[dimension]
        total = total + np.bincount(leases.group, np.where(counts, rates, 0.0), len(groups))
        overcommitted |= subtree_totals(groups.parent, total) > groups.tree_quota(dimension)
    # Groups that were divided in an earlier round continue to be divided.
    overcommitted[leases.group[leases.issued_seq >= 0]] = True
    overcommitted = whole_trees(groups, overcommitted)
    refused = changes.adopted & (stale | overcommitted[leases.group] | (not changes.learning))
    leases = replace(
        leases,
        has_limit=leases.has_limit & ~refused,
        notified=leases.notified & ~refused,
    )
    return leases, changes.adopted & ~refused, overcommitted
