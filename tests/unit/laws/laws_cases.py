"""Random groups of brokers for tests of the laws, and max-min fairness in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from quotaplane.laws import Problem


class Broker(NamedTuple):
    """The inputs of `max_min`."""

    demand: float
    weight: float = 1.0
    floor: float = 0.0
    ceiling: float = math.inf
    priority: int = 0


Group = tuple[float, list[Broker]]
"""A quota, and the brokers that share it."""

rates = st.one_of(
    st.sampled_from([0.0, 0.1, 1.0, 10.0, 1e-9, 1e15]),
    st.floats(1e-100, 100),
    st.floats(1e-100, 1e9),
    st.integers(0, 100).map(float),
)
demands = st.one_of(rates, st.just(math.inf))
weights = st.one_of(st.just(1.0), st.sampled_from([1e-3, 0.1, 3.0, 1000.0]), st.floats(0.01, 100))
floors = st.one_of(st.just(0.0), st.just(0.0), rates)
ceilings = st.one_of(st.just(math.inf), st.just(math.inf), rates)
priorities = st.sampled_from([0, 0, 0, 1, 5, -2])

no_ceiling, one_priority = st.just(math.inf), st.just(0)

plain_brokers = st.lists(
    st.builds(Broker, demands, weights, floors, no_ceiling, one_priority), max_size=12
)
brokers = st.one_of(
    plain_brokers,
    st.lists(st.builds(Broker, demands, weights, floors, ceilings, one_priority), max_size=9),
    st.lists(st.builds(Broker, demands, weights, floors, ceilings, priorities), max_size=9),
)
groups = st.lists(st.tuples(rates, brokers), min_size=1, max_size=5)


def log_uniform(least: float, most: float) -> st.SearchStrategy[float]:
    """Numbers from 10^least to 10^most, all orders of magnitude alike."""
    return st.builds(
        lambda whole, part: float(10.0 ** min(max(whole + part, least), most)),
        st.integers(math.floor(least), math.ceil(most) - 1),
        st.floats(0, 1),
    )


@st.composite
def wide_group(draw: st.DrawFn) -> Group:
    """A group from all of the allowed range, with amounts at its water level or some ulps off."""
    quota = draw(st.one_of(log_uniform(-97, 97), st.sampled_from([100.0, 120.0, 1.0, 0.3])))
    count = draw(st.sampled_from([1, 2, 2, 3, 3, 5, 8, 12]))
    widths = draw(st.sampled_from([st.just(1.0), log_uniform(-9, 9), st.sampled_from(_FAR_APART)]))
    weight = [draw(widths) for _ in range(count)]
    share = [quota * w / sum(weight) for w in weight]
    near = st.tuples(
        st.sampled_from([quota, quota / count]),
        st.sampled_from([0.0, 0.5, 1.0, 1.0, 2.0]),
        st.sampled_from([0.0, 0.0, math.inf]),
        st.sampled_from([0, 0, 1, 2]),
    )

    def amount(fair: float) -> float:
        if draw(st.integers(0, 3)) == 0:
            return quota * draw(log_uniform(-18, 2))
        other, part, towards, ulps = draw(near)
        value = part * (fair if draw(st.booleans()) else other)
        for _ in range(ulps if value else 0):
            value = math.nextafter(value, towards)
        return value if value > 1e-100 else 0.0

    def often(default: float, fair: float, chance: int) -> float:
        return amount(fair) if draw(st.integers(1, 4)) <= chance else default

    has_floors, has_ceilings = draw(st.sampled_from([(0, 0), (2, 0), (0, 2), (2, 2)]))
    ranks = draw(st.sampled_from([st.just(0), st.just(0), st.sampled_from([0, 1])]))
    return quota, [
        Broker(
            often(math.inf, fair, 3),
            w,
            often(0.0, fair, has_floors),
            often(math.inf, fair, has_ceilings),
            draw(ranks),
        )
        for w, fair in zip(weight, share, strict=True)
    ]


_FAR_APART = [1e-9, 1e9, 1e8, 1e-8, 1.0]

wide_groups = st.lists(wide_group(), min_size=1, max_size=3)


def rounding(count: int) -> Fraction:
    """The fraction of a quota that may be left over because of rounding, with ``count`` brokers."""
    return (4 * count + 16) * Fraction(2) ** -52


def problem(parts: list[Group]) -> Problem:
    rows = np.array([row for _, part in parts for row in part], dtype=float).reshape(-1, 5)
    sizes = [len(part) for _, part in parts]
    ceiling, priority = rows[:, 3], rows[:, 4].astype(np.int64)
    return Problem(
        starts=np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
        quota=np.array([quota for quota, _ in parts], dtype=float),
        usage=np.zeros(len(rows)),
        limit=np.full(len(rows), np.inf),
        demand=rows[:, 0].copy(),
        weight=rows[:, 1].copy(),
        floor=rows[:, 2].copy(),
        ceiling=None if np.isinf(ceiling).all() else ceiling.copy(),
        priority=priority if priority.any() else None,
    )


def water_fill(
    whole: Fraction, lows: list[Fraction], highs: list[Fraction], widths: list[Fraction]
) -> list[Fraction]:
    """Find the water level exactly: search the breakpoints, then interpolate."""
    if sum(highs) <= whole:
        return highs

    def filled(level: Fraction) -> list[Fraction]:
        return [
            min(max(low, w * level), high) for low, high, w in zip(lows, highs, widths, strict=True)
        ]

    points = {Fraction(0)} | {
        bound / w for bounds in (lows, highs) for bound, w in zip(bounds, widths, strict=True)
    }
    ordered = sorted(points)
    first, last = 0, len(ordered) - 1  # the first fits, the last does not
    while last - first > 1:
        middle = (first + last) // 2
        if sum(filled(ordered[middle])) <= whole:
            first = middle
        else:
            last = middle
    below, above = ordered[first], ordered[last]
    used_below, used_above = sum(filled(below)), sum(filled(above))
    return filled(below + (above - below) * (whole - used_below) / (used_above - used_below))


def textbook(quota: Fraction | float, part: list[Broker]) -> list[Fraction]:
    """Divide one group step by step: floors, priorities from the highest, the unused rest."""
    whole = Fraction(quota)
    widths = [Fraction(broker.weight) for broker in part]

    def finite(value: float) -> Fraction:
        return whole if math.isinf(value) else Fraction(value)

    lows = [Fraction(min(broker.floor, broker.ceiling)) for broker in part]
    if sum(lows) > whole:
        lows = [low * whole / sum(lows) for low in lows]
    wants = [min(finite(broker.demand), finite(broker.ceiling), whole) for broker in part]
    highs = [max(want, low) for want, low in zip(wants, lows, strict=True)]
    limits, rest = list(lows), whole - sum(lows)
    for priority in sorted({broker.priority for broker in part}, reverse=True):
        of_this = [index for index, broker in enumerate(part) if broker.priority == priority]
        own = [lows[index] for index in of_this]
        solved = water_fill(
            rest + sum(own),
            own,
            [highs[index] for index in of_this],
            [widths[index] for index in of_this],
        )
        rest -= sum(solved) - sum(own)
        for index, limit in zip(of_this, solved, strict=True):
            limits[index] = limit
    if rest > 0:
        rooms = [
            rest if math.isinf(b.ceiling) else max(Fraction(b.ceiling) - limit, Fraction(0))
            for b, limit in zip(part, limits, strict=True)
        ]
        more = water_fill(rest, [Fraction(0)] * len(part), rooms, widths)
        limits = [limit + extra for limit, extra in zip(limits, more, strict=True)]
    return limits
