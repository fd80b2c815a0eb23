"""One dimension of a shard divided: trees, demands, the law, and whether it is worth publishing."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from quotaplane.arrays import to_single
from quotaplane.groups.hierarchy import even_shares, subtree_totals
from quotaplane.laws import Allocation, Problem, Reason
from quotaplane.laws.reason import ReasonArray
from quotaplane.laws.segments import Segments
from quotaplane.laws.tree import effective_quota
from quotaplane.model import BoolArray, FloatArray, IntArray, Mode, Transition
from quotaplane.quota.broker_terms import LeaseTerms
from quotaplane.quota.config import StepConfig
from quotaplane.quota.groups import Groups
from quotaplane.quota.headroom import with_headroom
from quotaplane.quota.leases import Leases
from quotaplane.quota.shard import Shard
from quotaplane.quota.transition import grant, step_capped

_ROUNDING: Final = 1e-9
_NOISE_SIGMAS: Final = 1.0
"""A gain within so many standard deviations of what a broker uses anyway is no gain."""
_GROUP_PART: Final = 0.2
"""Gains that are small for each broker count when they add up to this part of a significant change
of the whole quota."""
_SPARE_PART: Final = 2.0
"""Quota that nobody asks for is worth moving when it is so many significant changes."""


@dataclass(frozen=True)
class Solved:
    """A problem with the law's answer, of g groups with m leases."""

    problem: Problem
    answer: Allocation
    at: IntArray | slice
    """(m,) which leases of the shard these are."""


@dataclass(frozen=True)
class Division:
    """One dimension of the n leases of G groups, divided."""

    limit: FloatArray
    """(n,) what each broker may use from now on."""
    max_in_force: FloatArray
    """(n,) the highest limit that each broker may then still hold to."""
    reasons: ReasonArray
    """(n,) why; 0 where nothing was divided."""
    significant: BoolArray
    """(G,) the group's new limits are worth their messages."""
    solved: Solved | None = None
    """What the law was asked and answered; None: it was not asked."""


@dataclass(frozen=True)
class LeaseStatus:
    """What holds of the n leases in this round, whatever the dimension."""

    terms: LeaseTerms
    """On which terms each shares its group's quota."""
    enforced: BoolArray
    """(n,) its broker is held to the limit; else the limit is only computed."""
    fixed: BoolArray
    """(n,) it gets no new limit for now."""
    reserved: FloatArray | None = None
    """(d, G) what brokers of deleted groups may still be using; None: nothing."""


def divide(
    shard: Shard, status: LeaseStatus, dimension: int, touched: BoolArray, config: StepConfig
) -> Division:
    """Divide the quotas of the ``touched`` (G,) groups, whole trees; the others keep their limits.

    A group without a quota, below no group that has one, is not limited but by ceilings.
    ``dimension``: its place among those of the shard.
    """
    groups, leases = shard.groups, shard.leases
    limit, held = leases.limit[dimension].copy(), leases.max_in_force[dimension].copy()
    reasons = np.zeros(len(leases), np.uint8)
    significant: BoolArray = np.zeros(len(groups), np.bool_)
    quota = tree_quota(groups, dimension)
    brokers = np.bincount(leases.group, minlength=len(groups))
    even = even_shares(groups.parent, quota, brokers)
    issued, in_use = _accounted(leases, status, dimension, config)

    free = (touched & np.isinf(even))[leases.group]
    if free.any():
        ceiling = status.terms.ceiling
        most = np.full(len(leases), np.inf) if ceiling is None else to_single(ceiling[dimension])
        significant[leases.group[free & (limit != most)]] = True
        limit[free] = most[free]
        held[free] = np.maximum(in_use, most)[free]
        reasons[free] = np.where(np.isinf(most), Reason.UNLIMITED, Reason.CEILING)[free]

    nested = groups.parent >= 0
    in_trees: BoolArray = np.zeros(len(groups), np.bool_)
    in_trees[nested] = in_trees[groups.parent[nested]] = True
    subject = touched & np.isfinite(even) & ((brokers > 0) | in_trees)
    if not subject.any():
        return Division(limit, held, reasons, significant)
    at = slice(None) if subject.all() else np.flatnonzero(subject[leases.group])
    part = _part(shard, status, dimension, subject, at, quota, config)
    even_totals = even[subject] * brokers[subject]
    asked = part.asked(leases.reports_refused[at], even_totals, config)
    problem = _problem(shard, status, dimension, part, asked)
    answer = config.law(problem)
    limit[at], held[at], reasons[at] = _transition(
        part, answer, issued[at], in_use[at], status.fixed[at], config
    )
    significant[subject] = _significant(part, problem, answer.limits, config.significant_change)
    return Division(limit, held, reasons, significant, Solved(problem, answer, at))


def _accounted(
    leases: Leases, status: LeaseStatus, dimension: int, config: StepConfig
) -> tuple[FloatArray, FloatArray]:
    """(n,) the limit issued last, and what may be in use; fast keeps no account of the latter."""
    limit, held = leases.limit[dimension], leases.max_in_force[dimension]
    if config.transition is Transition.FAST:
        return limit, np.zeros(len(leases))
    # inf: the broker was told "unlimited", or nothing yet. Leases that are not enforced count as 0.
    unbounded = np.where(leases.notified & status.enforced, np.inf, 0.0)
    known = leases.has_limit & (leases.enforced | ~status.enforced)
    return np.where(known, limit, unbounded), np.where(known, held, unbounded)


@dataclass(frozen=True)
class _Part:
    """The g groups that are divided, alone, with their m leases."""

    subject: BoolArray
    """(G,) which groups of the shard these are; g of them."""
    at: IntArray | slice
    """(m,) which leases of the shard these are."""
    starts: IntArray
    """(g + 1,) where each group's leases begin, and the end."""
    segments: Segments
    """The same."""
    quota: FloatArray
    """(g,) of the group itself; inf = none."""
    parent: IntArray | None
    """(g,) index of the group above, -1 for none; None: no group has one."""
    reserved: FloatArray | None
    """(g,) what brokers of deleted groups may still be using."""
    limit: FloatArray
    """(m,) now."""
    usage: FloatArray
    """(m,)"""
    demand: FloatArray
    """(m,) inf = saturated."""
    weight: FloatArray
    """(m,)"""
    sigma: FloatArray
    """(m,) standard deviation of what is used."""

    def asked(
        self, reports_refused: BoolArray, even_totals: FloatArray, config: StepConfig
    ) -> FloatArray:
        """(m,) what each broker is given at most: its demand with headroom."""
        return with_headroom(
            self.demand,
            self.sigma,
            reports_refused,
            self.segments,
            even_totals,
            self.weight,
            headroom=config.headroom,
            probe_share=config.probe_share,
        )


def _part(
    shard: Shard,
    status: LeaseStatus,
    dimension: int,
    subject: BoolArray,
    at: IntArray | slice,
    quota: FloatArray,
    config: StepConfig,
) -> _Part:
    leases, weight = shard.leases, status.terms.weight
    group = leases.group[at]
    sizes = np.bincount(group, minlength=len(shard.groups))[subject]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    usage, demand = leases.usage[dimension, at], leases.demand[dimension, at]
    known = np.where(np.isfinite(demand), demand, usage)
    return _Part(
        subject=subject,
        at=at,
        starts=starts,
        segments=Segments(starts),
        quota=quota[subject],
        parent=_renumbered(shard.groups.parent, subject),
        reserved=None if status.reserved is None else status.reserved[dimension, subject],
        limit=leases.limit[dimension, at],
        usage=usage,
        demand=demand,
        weight=np.ones(len(group)) if weight is None else weight[at],
        sigma=leases.noise[dimension, at] * np.sqrt(known),
    )


def _problem(
    shard: Shard, status: LeaseStatus, dimension: int, part: _Part, asked: FloatArray
) -> Problem:
    """What the law is asked; below other groups with the quota that is left for each group."""
    groups, terms, at, subject = shard.groups, status.terms, part.at, part.subject
    no_floor = np.zeros_like(part.weight)
    problem = Problem(
        starts=part.starts,
        quota=part.quota,
        usage=part.usage,
        limit=part.limit,
        demand=asked,
        weight=part.weight,
        floor=no_floor if terms.floor is None else terms.floor[dimension, at],
        ceiling=None if terms.ceiling is None else terms.ceiling[dimension, at],
        priority=None if terms.priority is None else terms.priority[at],
    )
    if part.parent is None:
        return problem
    share = effective_quota(
        part.parent,
        problem,
        groups.weight[subject],
        groups.floor[dimension, subject],
        groups.priority[subject],
    )
    return replace(problem, quota=share)


def _transition(
    part: _Part,
    answer: Allocation,
    issued: FloatArray,
    held: FloatArray,
    fixed: BoolArray,
    config: StepConfig,
) -> tuple[FloatArray, FloatArray, ReasonArray]:
    """(m,) limits, what may then be in force, and reasons: the answer as far as it may come true.

    ``issued`` and ``held`` (m,): see ``_accounted``. ``fixed`` (m,): see ``LeaseStatus``.
    """
    wanted, reasons = answer.limits, answer.reasons
    target = wanted
    if config.max_step is not None:
        target = step_capped(
            part.segments, part.limit, target, part.quota, config.max_step, part.parent
        )
        reasons = np.where(target < wanted * (1.0 - _ROUNDING), Reason.STEP, reasons)
    if config.transition is Transition.FAST:
        limit = to_single(target)
        return limit, limit, reasons.astype(np.uint8)
    target = np.where(fixed, issued, target)
    granted = grant(part.segments, issued, held, target, part.quota, part.parent, part.reserved)
    limit = to_single(granted)
    reasons = np.where(limit < 0.999 * np.minimum(target, wanted), Reason.WAITING, reasons)
    return limit, np.maximum(held, limit), reasons.astype(np.uint8)


def _significant(
    part: _Part, problem: Problem, new: FloatArray, significant_change: float
) -> BoolArray:
    """(g,) new limits (m,) are worth their messages.

    They are when somebody gains what it asks for: one broker more than ``significant_change`` of
    its limit, or all together a fifth of that of the quota, beyond what noise brings; or when more
    than twice ``significant_change`` of the quota moves, asked for or not: a broker that wakes up
    should find an even share of the spare. That somebody needs less is no reason by itself.
    """
    segments, asked, share = part.segments, problem.demand, problem.quota
    unlimited = np.isinf(part.limit)
    now = np.where(unlimited, 0.0, part.limit)
    gain = np.maximum(np.minimum(new, asked) - now, 0.0)
    # A broker that has much less than it asks for uses what it has: without noise to speak of.
    held_back = new < asked - part.sigma
    noise = np.where(held_back, 0.0, _NOISE_SIGMAS * part.sigma)
    least = significant_change * now + noise + _ROUNDING * segments.spread(share)
    least_of_all = _GROUP_PART * significant_change * share
    least_of_all += np.sqrt(segments.total(noise * noise))
    rise = np.maximum(new - now, 0.0)
    total = segments.total(now)
    if part.parent is not None:
        total = subtree_totals(part.parent, total)
    significant: BoolArray = (
        (segments.total(unlimited | (gain > least)) > 0)
        | (segments.total(gain) > least_of_all)
        | (segments.total(rise) > _SPARE_PART * significant_change * share)
        | (total > part.quota * (1.0 + _ROUNDING))
    )
    return significant


def tree_quota(groups: Groups, dimension: int) -> FloatArray:
    """(G,): the quotas that hold in trees: one that is only watched binds nobody below it."""
    above = np.zeros(len(groups), np.bool_)
    above[groups.parent[groups.parent >= 0]] = True
    watched = above & (groups.mode != Mode.HARD)
    return np.where(watched, np.inf, groups.quota[dimension])


def _renumbered(parent: IntArray, chosen: BoolArray) -> IntArray | None:
    """The parents among the chosen groups; None if nobody has any."""
    if (parent < 0).all():
        return None
    place = np.where(chosen, np.cumsum(chosen) - 1, -1)
    new = np.where(parent >= 0, place[np.maximum(parent, 0)], -1)[chosen]
    return None if (new < 0).all() else new
