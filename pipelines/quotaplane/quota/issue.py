"""Limits out: which groups are divided anew, and which of the answers go out to whom."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from quotaplane.groups.hierarchy import subtree_totals
from quotaplane.laws import Reason
from quotaplane.model import BoolArray, FloatArray, IntArray, Mode, Round, Transition
from quotaplane.quota.broker_terms import row_terms
from quotaplane.quota.config import StepConfig
from quotaplane.quota.division import RowStatus, divide, tree_quota
from quotaplane.quota.groups import Groups, whole_trees
from quotaplane.quota.leases import Leases
from quotaplane.quota.reason_texts import words
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
    groups, brokers, rows, news = shard.groups, shard.brokers, shard.leases, changes
    strict = config.transition is Transition.STRICT
    # Of a broker, or of a group that its broker no longer names.
    stale = brokers.stale[rows.broker] | (rows.seen_at_ms < round_.now_ms - config.stale_after_ms)
    touched, adopted = whole_trees(groups, news.touched), news.adopted
    if strict:
        rows, adopted, overcommitted = _handed_back(groups, rows, news, stale)
    if news.learning:
        # Somebody changed the group while we learn: that is an order for all its tree, unless it is
        # the first that we hear of it and all below. What brokers out of sight have is not known
        # yet, so strict waits.
        known = np.bincount(rows.group, weights=rows.has_limit & ~adopted, minlength=len(groups))
        below = subtree_totals(groups.parent, known.astype(np.float64))
        ordered = whole_trees(groups, news.quota_changed & (below > 0))
        touched &= overcommitted if strict else ordered
    waiting: BoolArray = np.zeros(len(rows), bool)
    if strict:
        # Once the lease of what a limit replaced is over, nobody can be using that any more.
        over = rows.issued_at_ms < round_.now_ms - config.lease_ms - config.stale_after_ms
        # But "not limited" has no end: that only an answer can show to be left behind.
        over = over & np.isfinite(rows.max_in_force)
        rows = replace(rows, max_in_force=np.where(over, rows.limit, rows.max_in_force))
        # Told anything else all the time, it could never be seen which it has left behind.
        waiting = (rows.max_in_force != rows.limit).any(axis=0) & rows.has_limit & rows.enforced
    standing = RowStatus(
        terms=row_terms(groups, brokers, rows),
        enforced=enforced(groups, brokers, rows),
        fixed=(waiting & ~news.quota_changed[rows.group] | stale) if strict else waiting,
        reserved=news.reserved,
    )
    parts = [
        divide(groups, rows, standing, dimension, touched, config)
        for dimension in range(len(rows.dimensions))
    ]
    new, held = (np.stack([getattr(part, name) for part in parts]) for name in ("limit", "held"))
    reasons = np.stack([part.reasons for part in parts])
    worth = news.quota_changed | np.any([part.worth for part in parts], axis=0)
    changed = (whole_trees(groups, worth) & touched)[rows.group] & (new != rows.limit).any(axis=0)
    changed |= touched[rows.group] & rows.has_limit & (standing.enforced != rows.enforced)
    let_go = rows.has_limit & rows.enforced & ~standing.enforced
    changed |= news.quota_changed[rows.group] & let_go
    if strict:  # a broker that was told nothing yet uses nothing, also of what has no quota
        changed |= touched[rows.group] & ~rows.has_limit
        changed &= ~stale  # what is told now can be in force for another lease
    reasons[:, adopted] = Reason.HANDED_BACK
    first = changed & ~rows.has_limit
    turn = groups.ids % config.refresh_rounds == rounds % config.refresh_rounds
    due = turn | news.throttle_changed  # other terms are told even if no limit moves
    renewed = (due[rows.group] | news.restarted[rows.broker] | waiting) & rows.has_limit
    if strict:  # who returns was told nothing meanwhile, of new terms and safe limits neither
        renewed = (renewed | news.returned & rows.has_limit) & ~stale
    out = changed | renewed | adopted
    # Shadows are told nothing; but who had been limited before is told that it no longer is.
    # Where nothing may be used before a word came, not to be limited must be said as well.
    published = out & ((groups.mode != Mode.SHADOW)[rows.group] | rows.notified | strict)
    # A broker may have a safe limit of a run under fast: with strict each message takes it away, so
    # that any acknowledgement shows that it is gone.
    safe_told = renewed | first | adopted | news.quota_changed[rows.group] | strict
    # Once no report can be about the time before it any more, a limit counts as old.
    old = (rows.issued_at_ms < round_.now_ms - 2 * config.expire_after_ms) & ~waiting
    if strict:
        old &= not news.learning  # while it learns, issued_seq tells which groups were divided
    now_enforced = np.where(changed, standing.enforced, rows.enforced)
    limit, held = np.where(changed, new, rows.limit), np.where(changed, held, rows.max_in_force)
    rows = replace(
        rows,
        limit=limit,
        previous_limit=np.where(changed | old, rows.limit, rows.previous_limit),
        # A broker that is not limited is not waited for.
        max_in_force=np.where(now_enforced, held, limit) if strict else held,
        has_limit=rows.has_limit | changed,
        enforced=now_enforced,
        notified=rows.notified | published,
        issued_at_ms=np.where(changed, round_.now_ms, np.where(old, -1, rows.issued_at_ms)),
        issued_seq=np.where(changed, round_.seq, np.where(old, -1, rows.issued_seq)),
    )
    to_publish = np.flatnonzero(out)
    return IssuedLimits(
        leases=rows,
        changed=changed | adopted,
        to_publish=to_publish,
        safe_told=safe_told[to_publish],
        published=published[to_publish],
        reasons=reasons,
        words=None if adopted.any() else words(parts, changed),
        ceiling=standing.terms.ceiling,
    )


def _handed_back(
    groups: Groups, rows: Leases, news: RoundChanges, stale: BoolArray
) -> tuple[Leases, BoolArray, BoolArray]:
    """Which limits strict hands back, and which trees it divides although it learns.

    Limits that are handed back are in force for a lease, also when learning is over. So all that
    this control plane told must fit the quotas. Where the limits that brokers report do not fit,
    they are not handed back: the brokers have more than the quota already, waiting would keep
    nothing, and the tree is divided like any other from now on. Nothing is handed back to brokers
    out of sight, or once learning is over.

    Returns:
        The rows, those that are not handed back no longer issued; (rows,) which are; (groups,) the
        trees to divide.
    """
    overcommitted: BoolArray = np.zeros(len(groups), np.bool_)
    if not news.learning and not news.adopted.any():
        return rows, news.adopted, overcommitted
    counts = rows.has_limit & rows.enforced
    for dimension, held in enumerate(rows.max_in_force):
        total = np.zeros(len(groups)) if news.reserved is None else news.reserved[dimension]
        total = total + np.bincount(rows.group, np.where(counts, held, 0.0), len(groups))
        overcommitted |= subtree_totals(groups.parent, total) > tree_quota(groups, dimension)
    overcommitted[rows.group[rows.issued_seq >= 0]] = True  # it was divided in an earlier round
    overcommitted = whole_trees(groups, overcommitted)
    refused = news.adopted & (stale | overcommitted[rows.group] | (not news.learning))
    rows = replace(rows, has_limit=rows.has_limit & ~refused, notified=rows.notified & ~refused)
    return rows, news.adopted & ~refused, overcommitted
