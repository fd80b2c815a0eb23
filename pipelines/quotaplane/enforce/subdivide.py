"""A broker's limit of a group, divided over the group's topics on that broker; all at once."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from quotaplane.enforce.layout import Layout, Pairs
from quotaplane.laws.max_min import max_min
from quotaplane.laws.problem import Problem
from quotaplane.laws.segments import Segments
from quotaplane.laws.water import water_level
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray

Divide: TypeAlias = Literal["max_min", "even", "by_rate"]

SATURATED: Final = 0.95
"""Who used at least this part of its rate is taken to want more."""

HEADROOM: Final = 0.1
"""What a topic that is not held back may grow by before it is, as a part of its usage, and one unit
at least: with its demand as its rate, rounded down, it must not look saturated."""

MOST: Final = np.array([2.0**31 - 1, 2.0**53, 2.0**31 - 1, 2.0**53])
"""Of Pulsar's rates: messages are 32-bit numbers, bytes 64-bit ones (floats are exact so far)."""


class Division(NamedTuple):
    """Rates are whole, at least 1 each: to Pulsar 0 means unlimited."""

    rates: FloatArray
    """(u, 4) of each topic; inf = unlimited, NaN = nobody was told anything: leave it alone."""
    shares: FloatArray
    """(p, 4) of each part, of its broker's limit; inf and NaN as in ``rates``."""


def divide(
    layout: Layout,
    limits: FloatArray,
    usage: FloatArray,
    saturated: BoolArray,
    *,
    law: Divide = "max_min",
    floor_share: float = 0.1,
) -> Division:
    """Rates of all topics, from limits of all (broker, group) pairs.

    The shares of a pair's parts are whole and add up to its limit, rounded down, and rounded by
    largest remainder; 1 each where there are more parts than units to share. ``even`` is even;
    ``by_rate`` gives each its floor, ``floor_share`` of the even share, and the rest in proportion
    to usage; ``max_min`` is ``laws.max_min`` with these floors and a demand of usage and 10 % more
    or, of the saturated, as much as there is. What is left over is spread over all, so that they
    can grow.

    The one rate of a partitioned topic is the level up to which its partitions, filled as far as
    each wants, take up their shares together: a busy partition has what idle ones leave, on other
    brokers too.

    Args:
        layout: what lies where.
        limits: (k, 4) of ``layout.pairs``; inf = unlimited, NaN = never told.
        usage: (p, 4) per second; NaN = not measured yet, taken to want as much as there is.
        saturated: (p, 4) which parts used what their rate let them.
        law: one of the three above.
        floor_share: of the even share, for idle topics to wake up with.

    >>> layout = Layout(("b",), ("g",), ("s", "t"), np.array([0, 0]), ("s", "t"),
    ...     np.array([0, 1]), np.array([0, 0]))
    >>> usage, full = np.array([[30.0] * 4, [0.0] * 4]), np.array([[True] * 4, [False] * 4])
    >>> divide(layout, np.array([[100.0, 1.0, np.inf, np.nan]]), usage, full).rates
    array([[95.,  1., inf, nan],
           [ 5.,  1., inf, nan]])
    """
    pairs = layout.pairs
    rows = Segments(pairs.starts)
    shares = np.full((len(layout.parts), BASIC), np.nan)
    used = np.nan_to_num(usage)
    demand = np.maximum(used * (1.0 + HEADROOM), used / SATURATED + (used > 0))
    demand[saturated | np.isnan(usage)] = np.inf
    for d in range(BASIC):
        if np.isnan(limits[:, d]).all():
            continue
        shares[pairs.parts, d] = _shares(
            pairs,
            rows,
            limits[:, d],
            used[pairs.parts, d],
            demand[pairs.parts, d],
            law,
            floor_share,
        )
    rates = _rates(layout, shares, demand, even=law == "even")
    return Division(np.minimum(rates, np.where(np.isinf(rates), np.inf, MOST)), shares)


def _shares(
    pairs: Pairs,
    rows: Segments,
    limit: FloatArray,
    usage: FloatArray,
    demand: FloatArray,
    law: Divide,
    floor_share: float,
) -> FloatArray:
    """One dimension of all pairs, (m,)."""
    count = np.maximum(rows.counts, 1)
    told = np.isfinite(limit)
    units = np.where(told, np.floor(np.where(told, limit, 0.0)), 0.0)
    scarce = units <= count
    even = units / count
    floor = np.where(scarce, even, np.maximum(floor_share * even, 1.0))
    if law == "even":
        exact = rows.spread(even)
    elif law == "by_rate":
        total = rows.total(usage)
        part = np.divide(usage, rows.spread(total), out=np.zeros(len(usage)), where=usage > 0)
        part = np.where(rows.spread(total > 0), part, rows.spread(1.0 / count))
        exact = rows.spread(floor) + rows.spread(np.maximum(units - count * floor, 0.0)) * part
    else:
        one = np.ones(len(usage))
        problem = Problem(
            starts=pairs.starts,
            quota=units,
            usage=usage,
            limit=one * np.inf,
            demand=demand,
            weight=one,
            floor=rows.spread(floor),
        )
        exact = max_min(problem).limits
    whole = np.where(rows.spread(scarce), 1.0, _rounded(rows, exact, units))
    unlimited = np.where(np.isnan(limit), np.nan, np.inf)
    return np.where(rows.spread(told), whole, rows.spread(unlimited))


def _rounded(rows: Segments, exact: FloatArray, units: FloatArray) -> FloatArray:
    """Whole shares, at least 1, that add up to the units: largest remainders are rounded up."""
    # A little less, so that no rounding brings their sum above the units; it is handed out below.
    base = np.maximum(np.floor(exact * (1.0 - 1e-12)), 1.0)
    left = units - rows.total(base)
    each, more = np.divmod(left, np.maximum(rows.counts, 1))
    # Equal remainders differ in their last bits; then it goes by name.
    order = np.lexsort((np.round(base - exact, 6), rows.of_row))
    starts = np.cumsum(rows.counts) - rows.counts
    rank = np.empty(len(base))
    rank[order] = np.arange(len(base)) - starts[rows.of_row]
    rounded: FloatArray = base + rows.spread(each) + (rank < rows.spread(more))
    return rounded


def _rates(layout: Layout, shares: FloatArray, demand: FloatArray, *, even: bool) -> FloatArray:
    """The rate of each topic (u, 4), from its parts' shares."""
    count = np.bincount(layout.topic, minlength=len(layout.topics))
    single = count[layout.topic] == 1
    rates = np.full((len(layout.topics), BASIC), np.nan)
    rates[layout.topic[single]] = shares[single]
    pooled = np.flatnonzero(~single)
    if len(pooled):
        topics, of_part = np.unique(layout.topic[pooled], return_inverse=True)
        for d in range(BASIC):
            rates[topics, d] = _pooled(
                len(topics), of_part, shares[pooled, d], demand[pooled, d], even
            )
    return rates


def _pooled(
    topics: int, of_part: IntArray, shares: FloatArray, demand: FloatArray, even: bool
) -> FloatArray:
    """One dimension of partitioned topics, (topics,).

    Only limited brokers count: what is unlimited elsewhere is held to the same rate.
    """
    rates = np.full(topics, np.nan)
    rates[of_part[np.isposinf(shares)]] = np.inf
    limited = np.isfinite(shares)
    if not limited.any():
        return rates
    # In order of topics, which is how sums over segments want them.
    at = np.flatnonzero(limited)
    at = at[np.argsort(of_part[at], kind="stable")]
    these, counts = np.unique(of_part[at], return_counts=True)
    rows = Segments(np.append(0, np.cumsum(counts)))
    budget = rows.total(shares[at])
    level = budget / counts
    if not even:
        high = np.minimum(demand[at], rows.spread(budget))
        spare = budget - rows.total(high)
        highest = np.maximum.reduceat(high, np.cumsum(counts) - counts)
        level = highest + np.maximum(spare, 0.0) / counts
        tight = spare < 0
        if tight.any():
            some, rows_at = rows.keep(tight)
            level[tight], _ = water_level(some, budget[tight], None, None, high[rows_at])
    rates[these] = np.maximum(np.floor(level + 1e-9), 1.0)
    return rates
