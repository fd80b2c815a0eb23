"""Division of quotas in one dimension: demands, trees, the law, and which results are published."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from quotaplane.arrays import to_single
from quotaplane.groups.hierarchy import subtree_totals
from quotaplane.laws import Allocation, Problem, Reason
from quotaplane.laws.max_min import max_min
from quotaplane.laws.reason import ReasonArray
from quotaplane.laws.segments import Segments
from quotaplane.laws.tree import effective_quota
from quotaplane.model import BoolArray, FloatArray, IntArray, Transition
from quotaplane.quota.broker_terms import LeaseTerms
from quotaplane.quota.config import StepConfig
from quotaplane.quota.estimate.noise import MOST_SIGMAS
from quotaplane.quota.estimate.reading import error_of_mean
from quotaplane.quota.headroom import (
    Budget,
    as_explained,
    budget,
    fair_level,
    probes,
    raised,
    real_reasons,
    with_headroom,
)
from quotaplane.quota.leases import Leases
from quotaplane.quota.shard import Shard
from quotaplane.quota.transition import grant, step_capped

_ROUNDING: Final = 1e-9
_SIGNIFICANT: Final = 0.05
"""Fraction of a limit; smaller changes are not published (hysteresis)."""
_NOISE_SIGMAS: Final = 1.0
"""A gain below this many standard deviations of the usage is noise."""
_GROUP_PART: Final = 0.2
"""Small gains of many brokers are significant if they add up to this fraction of a significant
change of the whole quota."""
_SPARE_PART: Final = 2.0
"""Moving quota that no broker asks for is significant from this many significant changes on."""


@dataclass(frozen=True)
class Solved:
    """The problem of g groups with m leases that a law was given, and its answer."""

    problem: Problem
    answer: Allocation
    at: IntArray | slice
    """(m,) indexes of these leases in the shard."""


@dataclass(frozen=True)
class Division:
    """The result of a division in one dimension, of the n leases of G groups."""

    limit: FloatArray
    """(n,) per second, from now on."""
    max_in_force: FloatArray
    """(n,) the highest limit that the broker may be using once ``limit`` is issued."""
    reasons: ReasonArray
    """(n,) codes; 0 where nothing was divided."""
    significant: BoolArray
    """(G,) the group's new limits are worth a message."""
    solved: Solved | None = None
    """None: the law was not called."""


@dataclass(frozen=True)
class LeaseStatus:
    """The status of the n leases in this round, in all dimensions."""

    terms: LeaseTerms
    """Weights, priorities, floors and ceilings."""
    enforced: BoolArray
    """(n,) the broker must obey the limit; else it is only computed."""
    on_hold: BoolArray
    """(n,) the lease gets no new limit in this round."""
    reserved: FloatArray | None = None
    """(d, G) quota that brokers of deleted groups may still be using; None: nothing."""
    debt: FloatArray | None = None
    """(d, G) what groups owe, as rates of one round (``overuse``); None: limits never exceed
    quotas."""


def divide(
    shard: Shard, status: LeaseStatus, dimension: int, touched: BoolArray, config: StepConfig
) -> Division:
    """Divide the quotas of the ``touched`` (G,) groups, whole trees; the others keep their limits.

    A group is limited only by ceilings if neither it nor a group above has a quota. ``dimension``:
    its index among those of the shard.
    """
    groups, leases = shard.groups, shard.leases
    limit, max_in_force = leases.limit[dimension].copy(), leases.max_in_force[dimension].copy()
    reasons = np.zeros(len(leases), np.uint8)
    significant: BoolArray = np.zeros(len(groups), np.bool_)
    quota = groups.tree_quota(dimension)
    brokers = np.bincount(leases.group, minlength=len(groups))
    even = shard.equal_shares(dimension)
    issued, in_use = _in_account(leases, status, dimension, config)

    free = (touched & np.isinf(even))[leases.group]
    if free.any():
        ceiling = status.terms.ceiling
        highest = np.full(len(leases), np.inf) if ceiling is None else to_single(ceiling[dimension])
        significant[leases.group[free & (limit != highest)]] = True
        limit[free] = highest[free]
        max_in_force[free] = np.maximum(in_use, highest)[free]
        reasons[free] = np.where(np.isinf(highest), Reason.UNLIMITED, Reason.CEILING)[free]

    nested = groups.parent >= 0
    in_trees: BoolArray = np.zeros(len(groups), np.bool_)
    in_trees[nested] = in_trees[groups.parent[nested]] = True
    subject = touched & np.isfinite(even) & ((brokers > 0) | in_trees)
    if not subject.any():
        return Division(limit, max_in_force, reasons, significant)
    at = slice(None) if subject.all() else np.flatnonzero(subject[leases.group])
    part = _part(shard, status, dimension, subject, at, quota, config)
    even_totals = even[subject] * brokers[subject]
    problem, answer = _solve(shard, status, dimension, part, even_totals, config)
    if status.debt is not None:
        answer = _raised(part, problem, answer)
    significant[subject] = _significant(part, problem, answer.limits)
    problem, answer = as_explained(problem, answer, part.demand)
    limit[at], max_in_force[at], reasons[at] = _transition(
        part, answer, issued[at], in_use[at], status.on_hold[at], config
    )
    return Division(limit, max_in_force, reasons, significant, Solved(problem, answer, at))


def _in_account(
    leases: Leases, status: LeaseStatus, dimension: int, config: StepConfig
) -> tuple[FloatArray, FloatArray]:
    """(n,) the limit issued last; (n,) the highest in force, of which fast keeps no account (0)."""
    limit, max_in_force = leases.limit[dimension], leases.max_in_force[dimension]
    if config.transition is Transition.FAST:
        return limit, np.zeros(len(leases))
    # inf: the broker was notified that it is unlimited. 0: it has no limit yet, or its limit is not
    # enforced and so does not count.
    unbounded = np.where(leases.notified & status.enforced, np.inf, 0.0)
    counts = leases.has_limit & (leases.enforced | ~status.enforced)
    return np.where(counts, limit, unbounded), np.where(counts, max_in_force, unbounded)


@dataclass(frozen=True)
class _Part:
    """The g groups of the shard that are divided, with their m leases."""

    subject: BoolArray
    """(G,) the group is one of the g."""
    at: IntArray | slice
    """(m,) indexes of these leases in the shard."""
    starts: IntArray
    """(g + 1,) where the leases of each group begin, and the end."""
    segments: Segments
    """The same, for sums over groups."""
    quota: FloatArray
    """(g,) the group's own; inf = none. Less what the group pays back."""
    most: FloatArray
    """(g,) what limits may add up to: the quota, unless they may exceed it."""
    parent: IntArray | None
    """(g,) index of the group above, -1 = none; None: no group has one."""
    reserved: FloatArray | None
    """(g,) quota that brokers of deleted groups may still be using; None: nothing."""
    limit: FloatArray
    """(m,) issued last; inf = unlimited."""
    usage: FloatArray
    """(m,) in the newest report."""
    demand: FloatArray
    """(m,) estimate; inf = saturated."""
    weight: FloatArray
    """(m,) of the broker within its group."""
    sigma: FloatArray
    """(m,) standard deviation of the usage of one window."""
    reports_refused: BoolArray
    """(m,) the broker reports what it refuses."""


def _part(
    shard: Shard,
    status: LeaseStatus,
    dimension: int,
    subject: BoolArray,
    at: IntArray | slice,
    quota: FloatArray,
    config: StepConfig,
) -> _Part:
    """The groups of ``subject``, with the leases ``at``."""
    leases, weight = shard.leases, status.terms.weight
    group = leases.group[at]
    sizes = np.bincount(group, minlength=len(shard.groups))[subject]
    starts = np.concatenate([[0], np.cumsum(sizes)])
    usage, demand = leases.usage[dimension, at], leases.estimates.demand[dimension, at]
    rate = np.where(np.isfinite(demand), demand, usage)
    allowed = Budget(quota[subject], quota[subject])
    if status.debt is not None:
        allowed = budget(quota[subject], status.debt[dimension, subject], config.over)
    error = error_of_mean(leases.estimates.windows[dimension, at])
    return _Part(
        subject=subject,
        at=at,
        starts=starts,
        segments=Segments(starts),
        quota=allowed.divided,
        most=allowed.most,
        parent=_renumbered(shard.groups.parent, subject),
        reserved=None if status.reserved is None else status.reserved[dimension, subject],
        limit=leases.limit[dimension, at],
        usage=usage,
        demand=demand,
        weight=np.ones(len(group)) if weight is None else weight[at],
        sigma=leases.estimates.noise[dimension, at] * np.sqrt(rate * error),
        reports_refused=leases.reports_refused[at],
    )


def _solve(
    shard: Shard,
    status: LeaseStatus,
    dimension: int,
    part: _Part,
    even_totals: FloatArray,
    config: StepConfig,
) -> tuple[Problem, Allocation]:
    """The problem with headroom, and the law's answer.

    ``even_totals`` (g,): the sum of the even shares of each group's brokers.
    """
    own = _problem(shard, status, dimension, part)
    flat = _within_quotas_above(shard, dimension, part, own, own.floor)
    without = max_min(flat)
    demand, guarantee = with_headroom(
        own,
        without.limits,
        part.sigma,
        part.reports_refused,
        probes(part.weight, part.reports_refused, part.segments, even_totals),
        part.parent,
        price=config.price,
    )
    own = replace(own, demand=demand)
    if guarantee is None:
        return own, config.law(own)
    floor = np.maximum(own.floor, guarantee)
    flat = _within_quotas_above(shard, dimension, part, own, floor)
    answer = config.law(replace(flat, floor=floor))
    return flat, real_reasons(answer, without, own.floor)


def _raised(part: _Part, problem: Problem, answer: Allocation) -> Allocation:
    """The answer, with higher limits for brokers that are not held back.

    They get headroom for ``MOST_SIGMAS`` deviations of their noise, then up to their group's level.
    """
    held_back = answer.limits < part.demand * (1.0 - _ROUNDING)
    level = fair_level(part.segments, answer.limits / part.weight, held_back)
    highest = np.where(held_back, 0.0, part.weight * part.segments.spread(level))
    if problem.ceiling is not None:
        highest = np.minimum(highest, problem.ceiling)
    wanted = np.minimum(part.demand + MOST_SIGMAS * part.sigma, highest)
    limits = raised(part.segments, answer.limits, wanted, highest, part.most, part.parent)
    return answer._replace(limits=limits)


def _problem(shard: Shard, status: LeaseStatus, dimension: int, part: _Part) -> Problem:
    """The problem without headroom; each group with its own quota."""
    terms, at = status.terms, part.at
    no_floor = np.zeros_like(part.weight)
    return Problem(
        starts=part.starts,
        quota=part.quota,
        usage=part.usage,
        limit=part.limit,
        demand=part.demand,
        weight=part.weight,
        floor=no_floor if terms.floor is None else terms.floor[dimension, at],
        ceiling=None if terms.ceiling is None else terms.ceiling[dimension, at],
        priority=None if terms.priority is None else terms.priority[at],
    )


def _within_quotas_above(
    shard: Shard, dimension: int, part: _Part, problem: Problem, floor: FloatArray
) -> Problem:
    """In a tree each group's quota is its share of the quotas above, with these floors (m,)."""
    if part.parent is None:
        return problem
    groups, subject = shard.groups, part.subject
    share = effective_quota(
        part.parent,
        replace(problem, floor=floor),
        groups.weight[subject],
        groups.floor[dimension, subject],
        groups.priority[subject],
    )
    return replace(problem, quota=share)


def _transition(
    part: _Part,
    answer: Allocation,
    issued: FloatArray,
    in_use: FloatArray,
    on_hold: BoolArray,
    config: StepConfig,
) -> tuple[FloatArray, FloatArray, ReasonArray]:
    """(m,) limits, highest limits in force, and reasons: the answer as far as it may be issued now.

    ``issued`` and ``in_use`` (m,): see ``_in_account``. ``on_hold`` (m,): see ``LeaseStatus``.
    """
    wanted, reasons = answer.limits, answer.reasons
    target = wanted
    if config.max_step is not None:
        target = step_capped(
            part.segments, part.limit, target, part.most, config.max_step, part.parent
        )
        reasons = np.where(target < wanted * (1.0 - _ROUNDING), Reason.STEP, reasons)
    if config.transition is Transition.FAST:
        limit = to_single(target)
        return limit, limit, reasons.astype(np.uint8)
    target = np.where(on_hold, issued, target)
    granted = grant(part.segments, issued, in_use, target, part.quota, part.parent, part.reserved)
    limit = to_single(granted)
    reasons = np.where(limit < 0.999 * np.minimum(target, wanted), Reason.WAITING, reasons)
    return limit, np.maximum(in_use, limit), reasons.astype(np.uint8)


def _significant(part: _Part, problem: Problem, new: FloatArray) -> BoolArray:
    """(g,) the new limits (m,) are worth a message (hysteresis).

    They are if brokers gain quota that they ask for, beyond noise: one of them more than
    ``_SIGNIFICANT`` of its limit, or all together a fifth of ``_SIGNIFICANT`` of the
    quota. They also are if more than twice ``_SIGNIFICANT`` of the quota moves, asked for or
    not: a broker that wakes up should find an even share of the spare quota. A lower demand alone
    is no reason. Limits that exceed the quota always are one, and so is the limit of a broker that
    reports no refusals if its demand has become known to be above that: it is held back all the
    time, and shows no more than the limit.
    """
    segments, asked, share = part.segments, problem.demand, problem.quota
    unlimited = np.isinf(part.limit)
    old = np.where(unlimited, 0.0, part.limit)
    gain = np.maximum(np.minimum(new, asked) - old, 0.0)
    # A broker that has much less than it asks for uses all of that: its usage has hardly any noise.
    # So does one that is held back now; but if it reports refusals, these have noise.
    held_back = ~part.reports_refused & (old < part.demand)
    throttled = (new < asked - part.sigma) | held_back
    noise = np.where(throttled, 0.0, _NOISE_SIGMAS * part.sigma)
    least = _SIGNIFICANT * old + noise + _ROUNDING * segments.spread(share)
    least_in_group = _GROUP_PART * _SIGNIFICANT * share
    least_in_group += np.sqrt(segments.total(noise * noise))
    rise = np.maximum(new - old, 0.0)
    total = segments.total(old)
    if part.parent is not None:
        total = subtree_totals(part.parent, total)
    too_low = held_back & (part.demand <= new)
    significant: BoolArray = (
        (segments.total(unlimited | too_low | (gain > least)) > 0)
        | (segments.total(gain) > least_in_group)
        | (segments.total(rise) > _SPARE_PART * _SIGNIFICANT * share)
        | (total > part.most * (1.0 + _ROUNDING))
    )
    return significant


def _renumbered(parent: IntArray, chosen: BoolArray) -> IntArray | None:
    """The parents of the chosen (G,) groups, as indexes among these; None: none has one."""
    if (parent < 0).all():
        return None
    new_index = np.where(chosen, np.cumsum(chosen) - 1, -1)
    new = np.where(parent >= 0, new_index[np.maximum(parent, 0)], -1)[chosen]
    return None if (new < 0).all() else new
