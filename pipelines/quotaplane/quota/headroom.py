"""Headroom and raises: what limits have beyond estimated demands, and beyond quotas. Pure numpy.

Noise pushes the use of a satisfied broker over a limit at its mean demand; *headroom* is what its
limit has on top. While other brokers are held back, it is taken from these: at most ``price`` of
what each would have without it.

Most of a satisfied broker's limit is not used, so more may be handed out than there is: *raises*
let limits exceed a quota together for as long as their use does not. What is used beyond the quota
all the same is a debt (``overuse``): it lowers what may be handed out.
"""

from __future__ import annotations

from dataclasses import replace
from math import erf, exp, pi, sqrt
from typing import Final, NamedTuple

import numpy as np

from quotaplane.groups.hierarchy import least_on_path, subtree_totals
from quotaplane.laws import Allocation, Problem
from quotaplane.laws.blocks import blocks
from quotaplane.laws.max_min import max_min
from quotaplane.laws.reason import Reason
from quotaplane.laws.segments import Segments
from quotaplane.model import BoolArray, FloatArray, IntArray
from quotaplane.quota.estimate.noise import MOST_SIGMAS

DEFAULT_THROTTLED_BY_NOISE: Final = 0.01
DEFAULT_PRICE: Final = 0.05

_LEAST_BLIND: Final = 0.02
"""Least headroom of a broker that reports no refusals, as a part of its demand: a limit at its
demand would be touched in every window."""
_PROBE_BUDGET: Final = 0.01
"""Part of the quota that idle brokers which report refusals have together, to begin with."""
BLIND_PROBE: Final = 0.05
"""Part of its even share that an idle broker has to begin with if it reports none: with a limit of
0 it could never show demand."""

_REPAID_PART: Final = 0.5
"""Part of its debt that a group pays back in a round."""
_MOST_REPAID: Final = 0.02
"""Most that it pays back in a round, as a part of its quota."""

_ROUNDING: Final = 1e-9

_Z: Final = np.linspace(MOST_SIGMAS, 0.0, 121)
_LOSS: Final = np.array(
    [exp(-z * z / 2.0) / sqrt(2.0 * pi) - z * (1.0 - erf(z / sqrt(2.0))) / 2.0 for z in _Z.tolist()]
)
"""E[(Z - z)+] of a standard normal Z: what noise pushes over a limit of z standard deviations."""


def wanted_headroom(
    demand: FloatArray,
    sigma: FloatArray,
    reports_refused: BoolArray,
    throttled_by_noise: float = DEFAULT_THROTTLED_BY_NOISE,
) -> FloatArray:
    """(n,) headroom with which noise throttles at most this part of a broker's demand, per second.

    If the usage is normal with mean m and standard deviation s, a limit of m + z s throttles
    s E[(Z - z)+] on average. At most three standard deviations.

    >>> demand, sigma = np.array([100.0, 100.0, 100.0]), np.array([10.0, 30.0, 0.0])
    >>> wanted_headroom(demand, sigma, np.array([True, True, False])).round(1).tolist()
    [9.0, 43.3, 2.0]
    """
    mean = np.where(np.isfinite(demand), demand, 0.0)
    loss = np.divide(throttled_by_noise * mean, sigma, out=np.ones_like(mean), where=sigma > 0.0)
    headroom = sigma * np.interp(loss, _LOSS, _Z)
    least = np.where(reports_refused, 0.0, _LEAST_BLIND * mean)
    wanted: FloatArray = np.maximum(headroom, least)
    return wanted


def probes(
    weight: FloatArray, reports_refused: BoolArray, rows: Segments, quota: FloatArray
) -> FloatArray:
    """(n,) the least demand, per second, of an idle broker: a part of its even share, by weight.

    ``quota`` (g,): inf = unlimited, then it needs nothing. In a tree the sum of the even shares of
    the group's brokers: a quota above is there for all groups together.

    >>> rows, reports_refused = Segments(np.array([0, 2])), np.array([True, False])
    >>> probes(np.ones(2), reports_refused, rows, np.array([100.0])).tolist()
    [0.5, 2.5]
    """
    weights = rows.total(weight)
    limited = np.isfinite(quota) & (weights > 0)
    share = np.divide(quota, weights, out=np.zeros(rows.groups), where=limited)
    part = np.where(reports_refused, _PROBE_BUDGET, BLIND_PROBE)
    probe: FloatArray = part * weight * rows.spread(share)
    return probe


def with_headroom(
    problem: Problem,
    without: FloatArray,
    sigma: FloatArray,
    reports_refused: BoolArray,
    probe: FloatArray,
    parent: IntArray | None = None,
    *,
    price: float = DEFAULT_PRICE,
) -> tuple[FloatArray, FloatArray | None]:
    """The demand to ask a law for: the estimate, plus headroom as far as its price allows.

    A broker is *held back* if it would have less than its demand without headroom. Together the
    brokers that are held back give up at most ``price`` of what they have. From that, and from what
    is left over, the others get headroom: what they want (``wanted_headroom``) or, if that is too
    much, the same part of it each. A broker whose demand is near that of the largest gets some only
    if all get what they want. If no broker is held back and there is more left over, headroom rises
    to three standard deviations.

    Guarantee: the limit of each broker is at least ``1 - price`` of the smaller one of its demand
    and its share without headroom. In a group by itself, with weights alone, it follows from the
    demands asked for: brokers get so little headroom that even the level of a held-back broker less
    its price, given to all, fits the quota. With floors, ceilings, priorities and in trees the law
    needs the guarantee as a floor.

    Args:
        problem: g groups with n brokers; ``demand`` is the estimate, ``quota`` each group's own.
        without: (n,) max-min limits without headroom, in a tree within all quotas.
        sigma: (n,) standard deviation of the usage of one window, per second.
        reports_refused: (n,) the broker reports what it refused.
        probe: (n,) see ``probes``.
        parent: (g,) index of the group above, -1 = none; None: no group has one.
        price: part of its share that a broker may lose.

    Returns:
        (n,) the demands with headroom, per second; (n,) the guarantee, None: it follows from them.

    >>> from quotaplane.laws import one_group
    >>> problem = one_group(100, demand=[np.inf, 30.0, 10.0])
    >>> without, sigma = np.array([60.0, 30.0, 10.0]), np.array([0.0, 5.0, 3.0])
    >>> with_headroom(problem, without, sigma, np.ones(3, bool), np.zeros(3))[0].round(1)
    array([ inf, 31.7, 11.3])
    """
    if parent is not None:
        return _with_headroom(problem, without, sigma, reports_refused, probe, parent, price)
    asked, least = np.empty((2, len(without)))
    for at, part in blocks(problem):  # groups by themselves
        asked[at], least[at] = _with_headroom(
            part, without[at], sigma[at], reports_refused[at], probe[at], None, price
        )
    plain = problem.ceiling is None and problem.priority is None and not problem.floor.any()
    return asked, None if plain else least


def _with_headroom(
    problem: Problem,
    without: FloatArray,
    sigma: FloatArray,
    reports_refused: BoolArray,
    probe: FloatArray,
    parent: IntArray | None,
    price: float,
) -> tuple[FloatArray, FloatArray]:
    """See ``with_headroom``; the guarantee in any case."""
    rows = Segments(problem.starts)
    demand, weight = problem.demand, problem.weight
    headroom = wanted_headroom(demand, sigma, reports_refused)
    headroom = np.maximum(headroom, np.where(np.isfinite(demand), probe - demand, 0.0))
    held_back = without < demand * (1.0 - _ROUNDING)
    served = np.minimum(without, demand)
    least = (1.0 - price) * served
    tree = Tree(rows, problem.quota, parent)
    level = fair_level(rows, served / weight, held_back)
    # Only brokers of other groups of the tree are held back: no share in this group is too large.
    any_held = rows.total(held_back) > 0.0
    level[~any_held & tree.any_in_tree(any_held)] = np.inf
    below = (1.0 - price) * weight * rows.spread(level)
    gets = ~held_back & (demand < below)
    kept = np.where(gets, demand, np.where(held_back, least, np.minimum(demand, below)))
    extra = np.where(gets, np.minimum(headroom, below - demand), 0.0)
    part = tree.part(kept, extra)
    all_get = ~held_back & rows.spread(part >= 1.0)
    asked = demand + np.where(all_get, headroom, extra * rows.spread(part))
    asked += _rest(asked, sigma, headroom, all_get, tree)
    return asked, least


def without_history(problem: Problem, reports_refused: BoolArray) -> Problem:
    """The problem with headroom where only one window is known of each broker, and so no noise.

    ``problem.demand``: as ``demand.observe`` shows it. Groups by themselves, without trees.

    >>> from quotaplane.laws import one_group
    >>> without_history(one_group(100, demand=[60.0, 0.0]), np.zeros(2, bool)).demand
    array([61.2,  2.5])
    """
    rows = Segments(problem.starts)
    sigma = np.zeros(len(problem.demand))
    probe = probes(problem.weight, reports_refused, rows, problem.quota)
    demand, _ = with_headroom(problem, max_min(problem).limits, sigma, reports_refused, probe)
    return replace(problem, demand=demand)


class Tree:
    """The quotas of groups and of the groups above them."""

    def __init__(self, rows: Segments, quota: FloatArray, parent: IntArray | None) -> None:
        self.rows = rows
        self._quota, self._parent = quota, parent

    def total(self, values: FloatArray) -> FloatArray:
        """(n,) -> (g,) the sum of each group's brokers and of those below it."""
        total = self.rows.total(values)
        return total if self._parent is None else subtree_totals(self._parent, total)

    def part(self, kept: FloatArray, extra: FloatArray) -> FloatArray:
        """(g,) the part of ``extra`` (n,) that fits all quotas beside ``kept`` (n,); at most 1."""
        needed, part = self.total(extra), np.ones(self.rows.groups)
        room = np.maximum(self._quota - self.total(kept), 0.0)
        scarce = room < needed
        np.divide(room, needed, out=part, where=scarce)
        return part if self._parent is None else least_on_path(self._parent, part)

    def any_in_tree(self, groups: BoolArray) -> BoolArray:
        """(g,) whether one of the groups is in the same tree."""
        if self._parent is None:
            return groups
        found = subtree_totals(self._parent, groups.astype(np.float64))
        return least_on_path(self._parent, np.where(found > 0.0, -1.0, 0.0)) < 0.0


def fair_level(rows: Segments, per_weight: FloatArray, held_back: BoolArray) -> FloatArray:
    """(g,) the largest share per weight of the brokers that are held back; if none is, of any.

    >>> shares, held_back = np.array([70.0, 80.0, 5.0]), np.array([True, False, False])
    >>> fair_level(Segments(np.array([0, 2, 3])), shares, held_back)
    array([70.,  5.])
    """
    counts = held_back | ~rows.spread(rows.total(held_back) > 0.0)
    level = np.zeros(rows.groups)
    np.maximum.at(level, rows.of_row, np.where(counts, per_weight, 0.0))
    return level


def _rest(
    asked: FloatArray, sigma: FloatArray, headroom: FloatArray, all_get: BoolArray, tree: Tree
) -> FloatArray:
    """(n,) extra headroom where all of a tree have what they want, up to ``MOST_SIGMAS`` each."""
    free = all_get & ~tree.rows.spread(tree.any_in_tree(tree.rows.total(~all_get) > 0.0))
    if not free.any():
        return np.zeros_like(asked)
    more = np.where(free, np.maximum(MOST_SIGMAS * sigma - headroom, 0.0), 0.0)
    rest: FloatArray = more * tree.rows.spread(tree.part(np.where(free, asked, 0.0), more))
    return rest


def as_explained(
    problem: Problem, answer: Allocation, demand: FloatArray
) -> tuple[Problem, Allocation]:
    """The problem and its answer as explanations show them.

    A broker that has its ``demand`` (n,), but less headroom than was asked for, is satisfied: its
    limit is what it wants.
    """
    satisfied = (answer.reasons == Reason.FAIR_SHARE) & (answer.limits >= demand)
    if not satisfied.any():
        return problem, answer
    reasons = np.where(satisfied, Reason.DEMAND, answer.reasons).astype(np.uint8)
    wanted = np.where(satisfied, answer.limits, problem.demand)
    return replace(problem, demand=wanted), answer._replace(reasons=reasons)


def real_reasons(answer: Allocation, without: Allocation, floor: FloatArray) -> Allocation:
    """The answer, where a broker that has just its guarantee has the reason of its share instead.

    ``without``: see ``with_headroom``; ``floor`` (n,): the broker's own.
    """
    guaranteed = (answer.reasons == Reason.FLOOR) & (floor < answer.limits * (1.0 - _ROUNDING))
    reasons = np.where(guaranteed, without.reasons, answer.reasons)
    return answer._replace(reasons=reasons.astype(np.uint8))


class Budget(NamedTuple):
    """Bounds of the sum of limits of g groups, each with all groups below it, per second."""

    divided: FloatArray
    """(g,) what the law divides: the quota, less the part of the debt that is paid back now."""
    most: FloatArray
    """(g,) with all raises."""


def budget(quota: FloatArray, debt: FloatArray, over: float) -> Budget:
    """The budget of groups with these quotas (g,) and debts (g,), in quota x rounds.

    >>> budget(np.array([100.0, 100.0, 100.0]), np.array([0.0, 1.0, 30.0]), over=0.1)
    Budget(divided=array([100. ,  99.5,  98. ]), most=array([110. , 108.5,  98. ]))
    """
    finite = np.where(np.isfinite(quota), quota, 0.0)
    divided = quota - np.minimum(_REPAID_PART * debt, _MOST_REPAID * finite)
    return Budget(divided, divided + np.maximum(over * finite - debt, 0.0))


def raised(
    rows: Segments,
    limits: FloatArray,
    wanted: FloatArray,
    highest: FloatArray,
    most: FloatArray,
    parent: IntArray | None = None,
) -> FloatArray:
    """The limits (n,), raised as far as they fit: first to what is wanted, then to the highest.

    If not all fit, each gets the same part of what it is short of; so the lowest rise most.

    Args:
        rows: g groups with n brokers.
        limits: (n,) what the law says.
        wanted: (n,) per second; a limit that is higher stays.
        highest: (n,) per second, likewise.
        most: (g,) see ``Budget``; inf = no bound.
        parent: (g,) index of the group above, -1 = none; None: no group has one.

    >>> rows, limits = Segments(np.array([0, 3])), np.array([50.0, 40.0, 10.0])
    >>> raised(rows, limits, np.array([0, 43, 12]), np.array([0, 50, 50]), np.array([110.0]))
    array([50.        , 43.77777778, 16.22222222])
    """
    tree = Tree(rows, most, parent)
    for aim in (wanted, highest):
        short = np.maximum(aim - limits, 0.0)
        limits = limits + short * rows.spread(tree.part(limits, short))
    return limits
