"""One dimension of a shard divided: trees, demands, the law, and whether it is worth telling."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, NamedTuple

import numpy as np

from quotaplane.arrays import to_single
from quotaplane.groups.hierarchy import even_shares, subtree_totals
from quotaplane.laws import Allocation, Problem, Reason
from quotaplane.laws.reason import ReasonArray
from quotaplane.laws.segments import Segments
from quotaplane.laws.tree import effective_quota
from quotaplane.model import BoolArray, FloatArray, IntArray, Mode, Transition
from quotaplane.quota.broker_terms import RowTerms
from quotaplane.quota.config import StepConfig
from quotaplane.quota.demand import with_headroom
from quotaplane.quota.groups import Groups
from quotaplane.quota.leases import Leases
from quotaplane.quota.transition import grant, step_capped

_ROUNDING: Final = 1e-9
_NOISE_SIGMAS: Final = 1.0
"""A gain within so many standard deviations of what a broker uses anyway is no gain."""
_GROUP_PART: Final = 0.2
"""Gains that are small for each broker count when they add up to this part of a significant change
of the whole quota."""
_SPARE_PART: Final = 2.0
"""Quota that nobody asks for is worth moving when it is so many significant changes."""


class SolvedProblem(NamedTuple):
    """A problem, the law's answer, and which rows it is about."""

    problem: Problem
    answer: Allocation
    at: IntArray | slice


@dataclass(frozen=True)
class Division:
    """What to tell each row, what it may then be holding, and why; all (n,).

    ``worth`` (g,): whether a group's new limits are worth their messages. ``asked``: what the law
    was, and said; None: it was not.
    """

    limit: FloatArray
    held: FloatArray
    reasons: ReasonArray
    worth: BoolArray
    asked: SolvedProblem | None = None


@dataclass(frozen=True)
class RowStatus:
    """What holds of the n rows in this round, whatever the dimension.

    ``terms``: on which each shares. ``enforced``: whether it is limited at all, or only reckoned.
    ``fixed``: it is told nothing new for now. ``reserved`` (d, g): what deleted groups may still be
    using; None: nothing.
    """

    terms: RowTerms
    enforced: BoolArray
    fixed: BoolArray
    reserved: FloatArray | None = None


def divide(
    groups: Groups,
    rows: Leases,
    standing: RowStatus,
    dimension: int,
    touched: BoolArray,
    config: StepConfig,
) -> Division:
    """Divide the quotas of the ``touched`` (g,) groups, whole trees; the others keep their limits.

    A group without a quota, below no group that has one, is not limited but by ceilings.
    """
    limit, held = rows.limit[dimension].copy(), rows.max_in_force[dimension].copy()
    reasons, worth = np.zeros(len(rows), np.uint8), np.zeros(len(groups), np.bool_)
    nested = groups.parent >= 0
    trees: BoolArray = np.zeros(len(groups), np.bool_)
    trees[nested] = trees[groups.parent[nested]] = True
    quota = tree_quota(groups, dimension)
    size = np.bincount(rows.group, minlength=len(groups))
    even = even_shares(groups.parent, quota, size)
    free = (touched & np.isinf(even))[rows.group]
    told, in_use = _accounted(rows, standing, dimension, config)
    if free.any():
        ceiling = standing.terms.ceiling
        most = np.full(len(rows), np.inf) if ceiling is None else to_single(ceiling[dimension])
        worth[rows.group[free & (limit != most)]] = True
        limit[free] = most[free]
        held[free] = np.maximum(in_use, most)[free]
        reasons[free] = np.where(np.isinf(most), Reason.UNLIMITED, Reason.CEILING)[free]

    subject = touched & np.isfinite(even) & ((size > 0) | trees)
    if not subject.any():
        return Division(limit, held, reasons, worth)
    at = slice(None) if subject.all() else np.flatnonzero(subject[rows.group])
    part = _Subproblem(groups, rows, standing, dimension, subject, at, size, quota, even, config)
    limit[at], held[at], reasons[at] = part.limits(told[at], in_use[at], standing.fixed[at])
    worth[subject] = part.worth()
    return Division(limit, held, reasons, worth, SolvedProblem(part.problem, part.answer, at))


def _accounted(
    rows: Leases, standing: RowStatus, dimension: int, config: StepConfig
) -> tuple[FloatArray, FloatArray]:
    """What each of the n rows was told last, and may be using; fast keeps no account of that."""
    limit, held = rows.limit[dimension], rows.max_in_force[dimension]
    if config.transition is Transition.FAST:
        return limit, np.zeros(len(rows))
    # Told that it is not limited, or nothing yet; but who is not limited is only reckoned.
    untold = np.where(rows.notified & standing.enforced, np.inf, 0.0)
    known = rows.has_limit & (rows.enforced | ~standing.enforced)
    return np.where(known, limit, untold), np.where(known, held, untold)


class _Subproblem:
    """The groups that are divided, alone: g of them with n rows."""

    def __init__(
        self,
        groups: Groups,
        rows: Leases,
        standing: RowStatus,
        dimension: int,
        subject: BoolArray,
        at: IntArray | slice,
        size: IntArray,
        quota: FloatArray,
        even: FloatArray,
        config: StepConfig,
    ) -> None:
        size = size[subject]
        self.config = config
        self.starts = np.concatenate([[0], np.cumsum(size)])
        self.segments = Segments(self.starts)
        self.quota = quota[subject]
        self.parent = _renumbered(groups.parent, subject)
        reserved = standing.reserved
        self.reserved = None if reserved is None else reserved[dimension, subject]
        self.limit = rows.limit[dimension, at]
        terms = standing.terms
        weight = np.ones(int(self.starts[-1])) if terms.weight is None else terms.weight[at]
        usage, demand = rows.usage[dimension, at], rows.demand[dimension, at]
        known = np.where(np.isfinite(demand), demand, usage)
        self.sigma = rows.noise[dimension, at] * np.sqrt(known)
        self.asked = with_headroom(
            demand,
            self.sigma,
            rows.reports_refused[at],
            self.segments,
            even[subject] * size,
            weight,
            headroom=config.headroom,
            probe_share=config.probe_share,
        )
        self.problem = Problem(
            starts=self.starts,
            quota=self.quota,
            usage=usage,
            limit=self.limit,
            demand=self.asked,
            weight=weight,
            floor=np.zeros_like(weight) if terms.floor is None else terms.floor[dimension, at],
            ceiling=None if terms.ceiling is None else terms.ceiling[dimension, at],
            priority=None if terms.priority is None else terms.priority[at],
        )
        self.share = self.quota
        if self.parent is not None:
            self.share = effective_quota(
                self.parent,
                self.problem,
                groups.weight[subject],
                groups.floor[dimension, subject],
                groups.priority[subject],
            )
            self.problem = replace(self.problem, quota=self.share)
        self.answer = config.law(self.problem)

    def limits(
        self, told: FloatArray, held: FloatArray, fixed: BoolArray
    ) -> tuple[FloatArray, FloatArray, ReasonArray]:
        """Limits, held, reasons: the law's answer as far as the transition lets it come true.

        All (n,): ``told`` and ``held`` of before, see ``_accounted``; ``fixed``: see ``RowStatus``.
        """
        config, reasons, wanted = self.config, self.answer.reasons, self.answer.limits
        target = wanted
        if config.max_step is not None:
            target = step_capped(
                self.segments, self.limit, target, self.quota, config.max_step, self.parent
            )
            reasons = np.where(target < wanted * (1.0 - _ROUNDING), Reason.STEP, reasons)
        if config.transition is Transition.FAST:
            limit = to_single(target)
            return limit, limit, reasons.astype(np.uint8)
        target = np.where(fixed, told, target)
        granted = grant(self.segments, told, held, target, self.quota, self.parent, self.reserved)
        limit = to_single(granted)
        reasons = np.where(limit < 0.999 * np.minimum(target, wanted), Reason.WAITING, reasons)
        return limit, np.maximum(held, limit), reasons.astype(np.uint8)

    def worth(self) -> BoolArray:
        """(g,): whether new limits are worth their messages.

        They are when somebody gains what it asks for: one broker more than ``significant_change``
        of its limit, or all together a fifth of that of the quota, beyond what noise brings; or
        when more than twice ``significant_change`` of the quota moves, asked for or not: who wakes
        up should find an even share of the spare. That somebody needs less is no reason by itself.
        """
        significant, segments = self.config.significant_change, self.segments
        new, unlimited = self.answer.limits, np.isinf(self.limit)
        now = np.where(unlimited, 0.0, self.limit)
        gain = np.maximum(np.minimum(new, self.asked) - now, 0.0)
        # Who has much less than it asks for has no noise to speak of in what it uses.
        held_back = new < self.asked - self.sigma
        noise = np.where(held_back, 0.0, _NOISE_SIGMAS * self.sigma)
        least = significant * now + noise + _ROUNDING * segments.spread(self.share)
        least_of_all = _GROUP_PART * significant * self.share
        least_of_all += np.sqrt(segments.total(noise * noise))
        rise = np.maximum(new - now, 0.0)
        total = segments.total(now)
        if self.parent is not None:
            total = subtree_totals(self.parent, total)
        worth: BoolArray = (
            (segments.total(unlimited | (gain > least)) > 0)
            | (segments.total(gain) > least_of_all)
            | (segments.total(rise) > _SPARE_PART * significant * self.share)
            | (total > self.quota * (1.0 + _ROUNDING))
        )
        return worth


def tree_quota(groups: Groups, dimension: int) -> FloatArray:
    """(g,): the quotas that hold in trees: one that is only watched binds nobody below it."""
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
