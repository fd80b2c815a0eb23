"""Divides each broker's limit of a group over the group's topics on that broker; vectorised."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from quotaplane.enforce.least_bytes import LEAST_BYTES_PER_S, PUBLISH_BYTES
from quotaplane.groups.standing import AT_LIMIT
from quotaplane.laws.max_min import max_min
from quotaplane.laws.problem import Problem
from quotaplane.laws.segments import Segments
from quotaplane.laws.water import water_level
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.topics.topic_layout import KINDS, Layout, Pairs

Divide: TypeAlias = Literal["max_min", "even", "by_rate"]

_LEAST_WEIGHT: Final = 1e-9
"""Weight of a part that uses nothing, where weights follow usage: laws need weights above 0."""

_UNMEASURED_USAGE: Final = 0.9
"""A part that was not measured yet is assumed to use this fraction of its even share."""

MOST: Final = np.array([2.0**31 - 1, 2.0**53, 2.0**31 - 1, 2.0**53])
"""Pulsar's highest rates: 32-bit for messages, 64-bit for bytes (2^53: exact as a float)."""


class Subdivision(NamedTuple):
    """Rates of topics. They are whole and at least 1, as 0 means unlimited to Pulsar."""

    rates: FloatArray
    """(u, 4) wanted rate; inf = unlimited, NaN = no limit received: leave the topic alone."""
    shares: FloatArray
    """(p, 4) what each part may use of its broker's limit; inf and NaN as in ``rates``. They may
    add up to more than the limit, as idle parts get a floor (see ``subdivide``)."""
    least: FloatArray
    """(u, 4) the lowest rate that is enough now: for a topic that is not throttled, a little more
    than it uses. Any rate from ``least`` to ``rates`` is good enough."""
    unlimited: BoolArray
    """(u, 4) no limit applies; ``rates`` is finite there only for an administrator's rate."""

    @property
    def limited(self) -> BoolArray:
        """(u, 2) by kind: whether the topic is to have a rate."""
        limited = np.isfinite(self.rates).reshape(-1, len(KINDS), 2)
        return np.asarray(limited.any(axis=2), np.bool_)


def subdivide(
    layout: Layout,
    limits: FloatArray,
    usage: FloatArray,
    saturated: BoolArray,
    *,
    ceilings: FloatArray | None = None,
    law: Divide = "max_min",
    floor_share: float = 0.1,
) -> Subdivision:
    """Compute the rates of all topics from the limits of all (broker, group) pairs.

    A part is charged to its pair's limit with what it uses, not with what its rate allows: room
    reserved for idle parts would stay unused, so the broker would never use up its limit and never
    get more.

    ``max_min``: throttled parts share what the others leave unused, fairly (``laws.max_min``, with
    a floor of ``floor_share`` of the even share). A part that is not throttled gets the largest of
    its floor, its usage plus a twentieth plus one unit, and twice its usage up to its even share.
    If no part is throttled, the rest of the limit is spread over all.

    In published bytes the floor is at least ``LEAST_BYTES_PER_S``, or the even share if that is
    less.

    ``by_rate`` divides in proportion to usage and adds a floor for idle parts. ``even`` divides
    evenly. Limits are rounded up to whole numbers. Shares are rounded by largest remainder and are
    at least 1, even if there are more parts than units.

    A partitioned topic has one rate for all its partitions: the level at which the partitions, each
    using at most what it wants, use up their shares together. So a busy partition gets what idle
    ones leave, on other brokers too.

    No topic gets a rate above its ceiling; what it may not use goes to the others. A topic without
    a limit in both dimensions of a kind gets no rate, as its ceiling is in force without ours.

    Args:
        layout: the topics, and which broker has each part.
        limits: (k, 4) of ``layout.pairs``; inf = unlimited, NaN = no limit received.
        usage: (p, 4) per second; NaN = not measured yet, assumed to be nearly the even share.
        saturated: (p, 4) which parts used what their rate allows.
        ceilings: (u, 4) administrators' rates of topics, at least 1; inf = none; None: there are
            none.
        law: one of the three above.
        floor_share: of the even share; what an idle topic can start with.

    >>> layout = Layout(("b",), ("g",), ("s", "t"), np.array([0, 0]), ("s", "t"),
    ...     np.array([0, 1]), np.array([0, 0]))
    >>> usage, full = np.array([[30.0] * 4, [0.0] * 4]), np.array([[True] * 4, [False] * 4])
    >>> subdivide(layout, np.array([[100.0, 1.0, np.inf, np.nan]]), usage, full).rates
    array([[100.,  1., inf, nan],
           [  5.,  1., inf, nan]])
    """
    pairs = layout.pairs
    rows = Segments(pairs.starts)
    shares = np.full((len(layout.parts), BASIC), np.nan)
    charges = shares.copy()
    used = np.nan_to_num(usage)
    if ceilings is None:
        ceilings = np.full((len(layout.topics), BASIC), np.inf)
    most = ceilings[layout.topic[pairs.parts]]
    for d in range(BASIC):
        if np.isnan(limits[:, d]).all():
            continue
        shares[pairs.parts, d], charges[pairs.parts, d] = _shares(
            pairs,
            rows,
            limits[:, d],
            usage[pairs.parts, d],
            saturated[pairs.parts, d],
            most[:, d],
            law,
            floor_share,
            least=LEAST_BYTES_PER_S if d == PUBLISH_BYTES else 1.0,
        )
    rates = _rates(layout, shares, charges, used, saturated, even=law == "even")
    rates = np.minimum(rates, np.where(np.isinf(rates), np.inf, MOST))
    unlimited = np.isposinf(rates)
    has_rate = np.isfinite(rates).reshape(-1, len(KINDS), 2).any(axis=2)
    rates = np.where(np.repeat(has_rate, 2, axis=1), np.minimum(rates, ceilings), rates)
    needs = np.full(rates.shape, -np.inf)
    np.maximum.at(needs, layout.topic, np.where(saturated, np.inf, np.floor(_with_headroom(used))))
    return Subdivision(rates, shares, np.minimum(rates, needs), unlimited)


def _with_headroom(usage: FloatArray) -> FloatArray:
    """The lowest rate, rounded down, at which a part with this usage is not saturated."""
    return usage / AT_LIMIT + (usage > 0)


def _shares(
    pairs: Pairs,
    rows: Segments,
    limit: FloatArray,
    usage: FloatArray,
    saturated: BoolArray,
    ceiling: FloatArray,
    law: Divide,
    floor_share: float,
    least: float,
) -> tuple[FloatArray, FloatArray]:
    """One dimension of all pairs: shares (m,), and the charges to the limits (m,).

    ``ceiling`` (m,): the highest share. ``least``: the floor of a part, unless the even share is
    lower.
    """
    count = np.maximum(rows.counts, 1)
    limited = np.isfinite(limit)
    # Rounded up: a broker held to 1 of a limit of 1.67 would never use up its limit.
    units = np.where(limited, np.ceil(np.where(limited, limit, 0.0) - 1e-9), 0.0)
    even = units / count
    usage = np.where(np.isnan(usage), _UNMEASURED_USAGE * rows.spread(even), usage)
    ceiling = np.where(rows.spread(limited), ceiling, np.inf)
    if law == "even":
        exact = _below(pairs, units, rows.spread(even), np.ones(len(usage)), ceiling)
        throttled = np.isfinite(exact)
        unthrottled = more = ceiling
    else:
        floor = np.maximum(floor_share * even, np.minimum(least, even))
        floor = np.minimum(rows.spread(np.maximum(floor, 1.0)), ceiling)
        exact, throttled, more = _by_law(pairs, rows, units, usage, saturated, law, floor, ceiling)
        unthrottled = floor
        if law == "max_min":
            # Twice the usage, up to the even share: a rate that followed usage closely would have
            # to be written again and again.
            roomy = np.maximum(more, np.minimum(2.0 * usage, rows.spread(even)))
            most = np.minimum(np.maximum(_with_headroom(usage), roomy), rows.spread(units))
            unthrottled = np.maximum(floor, most)
    held = exact >= ceiling * (1.0 - 1e-9)
    throttled &= ~held
    left = units - rows.total(np.where(throttled, 0.0, exact))
    whole = _rounded(rows, exact, np.floor(np.round(left, 6)), throttled)
    unthrottled = np.where(held, ceiling, np.minimum(unthrottled, ceiling))
    whole = np.where(throttled, whole, np.floor(np.round(unthrottled, 6)))
    charge = np.where(throttled | held, whole, np.minimum(more, whole))
    not_limited = rows.spread(np.where(np.isnan(limit), np.nan, np.inf))
    is_limited = rows.spread(limited)
    return np.where(is_limited, whole, not_limited), np.where(is_limited, charge, not_limited)


def _by_law(
    pairs: Pairs,
    rows: Segments,
    units: FloatArray,
    usage: FloatArray,
    saturated: BoolArray,
    law: Divide,
    floor: FloatArray,
    ceiling: FloatArray,
) -> tuple[FloatArray, BoolArray, FloatArray]:
    """Each part's charge (m,), whether it is throttled to it (m,), what it may use if not (m,)."""
    if law == "by_rate":
        total = rows.total(usage)
        none = rows.spread(total == 0.0)
        part = np.divide(usage, rows.spread(total), out=np.zeros(len(usage)), where=~none)
        part = np.where(none, rows.spread(1.0 / np.maximum(rows.counts, 1)), part)
        exact = _below(pairs, units, rows.spread(units) * part, part, ceiling)
        return exact, exact >= floor, usage
    demand = np.minimum(np.where(saturated, np.inf, usage), ceiling)
    limits = max_min(_problem(pairs, units, usage, demand, np.minimum(floor, demand), ceiling))
    exact = np.minimum(limits.limits, demand)
    throttled = saturated | (exact < usage * (1.0 - 1e-9))
    return exact, throttled, limits.limits


def _below(
    pairs: Pairs, units: FloatArray, exact: FloatArray, weight: FloatArray, ceiling: FloatArray
) -> FloatArray:
    """The shares ``exact`` (m,); where some are above their ceilings the others get the rest.

    All shares are in proportion to ``weight`` (m,), up to the ceilings.
    """
    if not (exact > ceiling).any():
        return exact
    endless, none = np.full(len(exact), np.inf), np.zeros(len(exact))
    problem = _problem(pairs, units, none, endless, none, ceiling)
    return max_min(replace(problem, weight=np.maximum(weight, _LEAST_WEIGHT))).limits


def _problem(
    pairs: Pairs,
    units: FloatArray,
    usage: FloatArray,
    demand: FloatArray,
    floor: FloatArray,
    ceiling: FloatArray,
) -> Problem:
    ones = np.ones(len(usage))
    return Problem(
        starts=pairs.starts,
        quota=units,
        usage=usage,
        limit=ones * np.inf,
        demand=demand,
        weight=ones,
        floor=floor,
        ceiling=ceiling,
    )


def _rounded(rows: Segments, exact: FloatArray, units: FloatArray, which: BoolArray) -> FloatArray:
    """Round the shares of the parts ``which`` to whole numbers of at least 1, by largest remainder.

    They add up to ``units`` (k,), or to 1 per part where that is more.
    """
    # Slightly less, so that rounding errors can't lift the sum above the units; added back below.
    base = np.where(which, np.maximum(np.floor(exact * (1.0 - 1e-12)), 1.0), 0.0)
    counts = np.maximum(rows.total(which.astype(np.float64)), 1.0)
    per_part, remainder = np.divmod(np.maximum(units - rows.total(base), 0.0), counts)
    # Equal remainders may differ in their last bits: compare 6 digits, then by name.
    order = np.lexsort((np.round(base - exact, 6), ~which, rows.of_row))
    starts = np.cumsum(rows.counts) - rows.counts
    rank = np.empty(len(base))
    rank[order] = np.arange(len(base)) - starts[rows.of_row]
    rounded: FloatArray = base + rows.spread(per_part) + (rank < rows.spread(remainder))
    return rounded


def _rates(
    layout: Layout,
    shares: FloatArray,
    charges: FloatArray,
    usage: FloatArray,
    saturated: BoolArray,
    *,
    even: bool,
) -> FloatArray:
    """The rate of each topic (u, 4): its part's share, or the common level of its partitions."""
    count = np.bincount(layout.topic, minlength=len(layout.topics))
    single = count[layout.topic] == 1
    rates = np.full((len(layout.topics), BASIC), np.nan)
    rates[layout.topic[single]] = shares[single]
    pooled = np.flatnonzero(~single)
    if len(pooled):
        topics, of_part = np.unique(layout.topic[pooled], return_inverse=True)
        for d in range(BASIC):
            rates[topics, d] = _pooled(
                len(topics),
                of_part,
                charges[pooled, d],
                usage[pooled, d],
                saturated[pooled, d],
                even,
            )
    return rates


def _pooled(
    topics: int,
    of_part: IntArray,
    charges: FloatArray,
    usage: FloatArray,
    saturated: BoolArray,
    even: bool,
) -> FloatArray:
    """One dimension of partitioned topics, (topics,).

    Computed from limited brokers only. The rate also holds for partitions on unlimited brokers.
    """
    rates = np.full(topics, np.nan)
    rates[of_part[np.isposinf(charges)]] = np.inf
    limited = np.isfinite(charges)
    if not limited.any():
        return rates
    # Sorted by topic, as sums over segments require.
    at = np.flatnonzero(limited)
    at = at[np.argsort(of_part[at], kind="stable")]
    limited_topics, counts = np.unique(of_part[at], return_counts=True)
    rows = Segments(np.append(0, np.cumsum(counts)))
    budget = rows.total(charges[at])
    level = budget / counts
    if not even:
        first = np.cumsum(counts) - counts
        wants = np.where(saturated[at], np.inf, usage[at])
        high = np.minimum(wants, rows.spread(budget))
        spare = budget - rows.total(high)
        highest = np.maximum.reduceat(high, first)
        level = highest + np.maximum(spare, 0.0) / counts
        # A rate equal to the usage would look saturated, and the next division would differ.
        level = np.maximum(level, np.maximum.reduceat(_with_headroom(high), first))
        tight = rows.total(wants) > budget * (1.0 + 1e-9)
        if tight.any():
            some, rows_at = rows.keep(tight)
            level[tight], _ = water_level(some, budget[tight], None, None, high[rows_at])
    rates[limited_topics] = np.maximum(np.floor(level + 1e-9), 1.0)
    return rates
