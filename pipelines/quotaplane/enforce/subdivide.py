"""A broker's limit of a group, divided over the group's topics on that broker; all at once."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, TypeAlias

import numpy as np

from quotaplane.laws.max_min import max_min
from quotaplane.laws.problem import Problem
from quotaplane.laws.segments import Segments
from quotaplane.laws.water import water_level
from quotaplane.model import BASIC, BoolArray, FloatArray, IntArray
from quotaplane.topic_layout import Layout, Pairs

Divide: TypeAlias = Literal["max_min", "even", "by_rate"]

SATURATED: Final = 0.95
"""Who used at least this part of its rate is taken to want more."""

_AT_FIRST: Final = 0.9

MOST: Final = np.array([2.0**31 - 1, 2.0**53, 2.0**31 - 1, 2.0**53])
"""Of Pulsar's rates: messages are 32-bit numbers, bytes 64-bit ones (floats are exact so far)."""


class Subdivision(NamedTuple):
    """Rates are whole, at least 1 each: to Pulsar 0 means unlimited."""

    rates: FloatArray
    """(u, 4) of each topic; inf = unlimited, NaN = nobody was told anything: leave it alone."""
    shares: FloatArray
    """(p, 4) what each part may use of its broker's limit; inf and NaN as in ``rates``. More than
    the limit in all, as idle parts may use something, too (see ``subdivide``)."""
    least: FloatArray
    """(u, 4) of ``rates`` what is needed now: of who is not held back, a little more than it uses.
    A rate between the two is good enough."""


def subdivide(
    layout: Layout,
    limits: FloatArray,
    usage: FloatArray,
    saturated: BoolArray,
    *,
    law: Divide = "max_min",
    floor_share: float = 0.1,
) -> Subdivision:
    """Rates of all topics, from limits of all (broker, group) pairs.

    What counts towards a pair's limit is what its parts use, not what they might: room kept for
    idle ones would stay unused, and the broker would never be seen to use up its limit, nor be
    given more. So under ``max_min`` those that are held back divide what the others do not use,
    fairly (``laws.max_min``, with a floor of ``floor_share`` of the even share). The others may use
    their floor, or a twentieth more than they do (and a unit), or twice as much within their even
    share; while nobody is held back, what is left over is spread on all.

    ``by_rate`` divides in proportion to usage, with the floor for the idle on top; ``even`` evenly,
    whoever uses it. Limits are rounded up to whole numbers, and shares are whole by largest
    remainder: 1 each where there are more parts than units.

    The one rate of a partitioned topic is the level up to which its partitions, filled as far as
    each wants, take up their shares together: a busy partition has what idle ones leave, on other
    brokers too.

    Args:
        layout: what lies where.
        limits: (k, 4) of ``layout.pairs``; inf = unlimited, NaN = never told.
        usage: (p, 4) per second; NaN = not measured yet, taken to use nearly its even share.
        saturated: (p, 4) which parts used what their rate let them.
        law: one of the three above.
        floor_share: of the even share, for idle topics to wake up with.

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
    for d in range(BASIC):
        if np.isnan(limits[:, d]).all():
            continue
        shares[pairs.parts, d], charges[pairs.parts, d] = _shares(
            pairs,
            rows,
            limits[:, d],
            usage[pairs.parts, d],
            saturated[pairs.parts, d],
            law,
            floor_share,
        )
    rates = _rates(layout, shares, charges, used, saturated, even=law == "even")
    rates = np.minimum(rates, np.where(np.isinf(rates), np.inf, MOST))
    needs = np.full(rates.shape, -np.inf)
    np.maximum.at(needs, layout.topic, np.where(saturated, np.inf, np.floor(_with_headroom(used))))
    return Subdivision(rates, shares, np.minimum(rates, needs))


def _with_headroom(usage: FloatArray) -> FloatArray:
    """The least rate, rounded down, under which who uses so much does not look saturated."""
    return usage / SATURATED + (usage > 0)


def _shares(
    pairs: Pairs,
    rows: Segments,
    limit: FloatArray,
    usage: FloatArray,
    saturated: BoolArray,
    law: Divide,
    floor_share: float,
) -> tuple[FloatArray, FloatArray]:
    """One dimension of all pairs: shares (m,), and what of them counts towards the limit (m,)."""
    count = np.maximum(rows.counts, 1)
    told = np.isfinite(limit)
    # Rounded up: with 1 of a limit of 1.67 the broker would never be seen to use it up.
    units = np.where(told, np.ceil(np.where(told, limit, 0.0) - 1e-9), 0.0)
    even = units / count
    usage = np.where(np.isnan(usage), _AT_FIRST * rows.spread(even), usage)
    if law == "even":
        charge = whole = _rounded(rows, rows.spread(even), units, np.ones(len(usage), np.bool_))
    else:
        floor = rows.spread(np.maximum(floor_share * even, 1.0))
        exact, held, spare = _by_law(pairs, rows, units, usage, saturated, law, floor)
        left = units - rows.total(np.where(held, 0.0, exact))
        whole = _rounded(rows, exact, np.floor(np.round(left, 6)), held)
        loose = floor
        more = usage + rows.spread(spare / count)
        if law == "max_min":
            # Up to its even share a topic may double: a rate that went with its usage would have to
            # be written again and again.
            calm = np.maximum(more, np.minimum(2.0 * usage, rows.spread(even)))
            most = np.minimum(np.maximum(_with_headroom(usage), calm), rows.spread(units))
            loose = np.maximum(floor, most)
        whole = np.where(held, whole, np.floor(np.round(loose, 6)))
        charge = np.where(held, whole, np.minimum(more, whole))
    unlimited = rows.spread(np.where(np.isnan(limit), np.nan, np.inf))
    is_told = rows.spread(told)
    return np.where(is_told, whole, unlimited), np.where(is_told, charge, unlimited)


def _by_law(
    pairs: Pairs,
    rows: Segments,
    units: FloatArray,
    usage: FloatArray,
    saturated: BoolArray,
    law: Divide,
    floor: FloatArray,
) -> tuple[FloatArray, BoolArray, FloatArray]:
    """What each part is charged with (m,), who is held to it (m,), what is to spare (k,)."""
    if law == "by_rate":
        total = rows.total(usage)
        none = rows.spread(total == 0.0)
        part = np.divide(usage, rows.spread(total), out=np.zeros(len(usage)), where=~none)
        part = np.where(none, rows.spread(1.0 / np.maximum(rows.counts, 1)), part)
        exact = rows.spread(units) * part
        return exact, exact >= floor, np.zeros(len(units))
    one = np.ones(len(usage))
    demand = np.where(saturated, np.inf, usage)
    problem = Problem(
        starts=pairs.starts,
        quota=units,
        usage=usage,
        limit=one * np.inf,
        demand=demand,
        weight=one,
        floor=np.minimum(floor, demand),
    )
    exact = np.minimum(max_min(problem).limits, demand)
    held = saturated | (exact < usage * (1.0 - 1e-9))
    return exact, held, np.maximum(units - rows.total(exact), 0.0)


def _rounded(rows: Segments, exact: FloatArray, units: FloatArray, which: BoolArray) -> FloatArray:
    """Some parts' shares as whole numbers, at least 1: largest remainders are rounded up.

    They add up to ``units`` (k,), or 1 each where that is more.
    """
    # A little less, so that no rounding brings their sum above the units; it is handed out below.
    base = np.where(which, np.maximum(np.floor(exact * (1.0 - 1e-12)), 1.0), 0.0)
    counts = np.maximum(rows.total(which.astype(np.float64)), 1.0)
    each, more = np.divmod(np.maximum(units - rows.total(base), 0.0), counts)
    # Equal remainders differ in their last bits; then it goes by name.
    order = np.lexsort((np.round(base - exact, 6), ~which, rows.of_row))
    starts = np.cumsum(rows.counts) - rows.counts
    rank = np.empty(len(base))
    rank[order] = np.arange(len(base)) - starts[rows.of_row]
    rounded: FloatArray = base + rows.spread(each) + (rank < rows.spread(more))
    return rounded


def _rates(
    layout: Layout,
    shares: FloatArray,
    charges: FloatArray,
    usage: FloatArray,
    held: BoolArray,
    *,
    even: bool,
) -> FloatArray:
    """The rate of each topic (u, 4): its part's share, or what its partitions come to together."""
    count = np.bincount(layout.topic, minlength=len(layout.topics))
    single = count[layout.topic] == 1
    rates = np.full((len(layout.topics), BASIC), np.nan)
    rates[layout.topic[single]] = shares[single]
    pooled = np.flatnonzero(~single)
    if len(pooled):
        topics, of_part = np.unique(layout.topic[pooled], return_inverse=True)
        for d in range(BASIC):
            rates[topics, d] = _pooled(
                len(topics), of_part, charges[pooled, d], usage[pooled, d], held[pooled, d], even
            )
    return rates


def _pooled(
    topics: int,
    of_part: IntArray,
    charges: FloatArray,
    usage: FloatArray,
    held: BoolArray,
    even: bool,
) -> FloatArray:
    """One dimension of partitioned topics, (topics,).

    Only limited brokers count: what is unlimited elsewhere is held to the same rate.
    """
    rates = np.full(topics, np.nan)
    rates[of_part[np.isposinf(charges)]] = np.inf
    limited = np.isfinite(charges)
    if not limited.any():
        return rates
    # In order of topics, which is how sums over segments want them.
    at = np.flatnonzero(limited)
    at = at[np.argsort(of_part[at], kind="stable")]
    these, counts = np.unique(of_part[at], return_counts=True)
    rows = Segments(np.append(0, np.cumsum(counts)))
    budget = rows.total(charges[at])
    level = budget / counts
    if not even:
        first = np.cumsum(counts) - counts
        wants = np.where(held[at], np.inf, usage[at])
        high = np.minimum(wants, rows.spread(budget))
        spare = budget - rows.total(high)
        highest = np.maximum.reduceat(high, first)
        level = highest + np.maximum(spare, 0.0) / counts
        # Who just has what it uses would look held back, and the next division would be another.
        level = np.maximum(level, np.maximum.reduceat(_with_headroom(high), first))
        tight = rows.total(wants) > budget * (1.0 + 1e-9)
        if tight.any():
            some, rows_at = rows.keep(tight)
            level[tight], _ = water_level(some, budget[tight], None, None, high[rows_at])
    rates[these] = np.maximum(np.floor(level + 1e-9), 1.0)
    return rates
