"""Random forests of groups for tests of nested quotas, and a slow solution in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction
from functools import cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from quotaplane.laws import effective_quota, get_law
from tests.unit.laws.laws_cases import Broker, log_uniform, problem, textbook, weights

INF = math.inf


class Node(NamedTuple):
    """A group of a forest; `above` selects its parent among the groups before it, or none."""

    above: int
    quota: float = INF
    brokers: tuple[Broker, ...] = ()
    weight: float = 1.0
    floor: float = 0.0
    priority: int = 0


amounts = st.one_of(st.sampled_from([0.0, 1.0, 10.0]), st.floats(1e-3, 1e4))
maybe = st.one_of(st.just(INF), amounts)
seldom = st.one_of(st.just(0.0), st.just(0.0), amounts)
terms = st.tuples(seldom, st.one_of(st.just(INF), maybe), st.sampled_from([0, 0, 1]))


@st.composite
def own_brokers(draw: st.DrawFn) -> tuple[Broker, ...]:
    count = draw(st.sampled_from([0, 0, 1, 1, 2, 3]))
    return tuple(Broker(draw(maybe), draw(weights), *draw(terms)) for _ in range(count))


def forests_of(
    quotas: st.SearchStrategy[float],
    brokers: st.SearchStrategy[tuple[Broker, ...]],
    widths: st.SearchStrategy[float],
    floors: st.SearchStrategy[float],
) -> st.SearchStrategy[list[Node]]:
    node = st.builds(
        Node, st.integers(-1, 30), quotas, brokers, widths, floors, st.sampled_from([0, 0, 1, -1])
    )
    return st.lists(node, max_size=12)


forests = forests_of(maybe, own_brokers(), st.one_of(st.just(1.0), st.floats(0.1, 10)), seldom)

scales = st.one_of(log_uniform(-12, 18), st.sampled_from([0.0, 1.0, 100.0]))
wide_forests = forests_of(
    st.one_of(st.just(INF), scales),
    st.lists(
        st.builds(
            Broker,
            st.one_of(st.just(INF), scales),
            log_uniform(-9, 9),
            st.one_of(st.just(0.0), scales),
            st.one_of(st.just(INF), scales),
            st.sampled_from([0, 0, 1]),
        ),
        max_size=3,
    ).map(tuple),
    log_uniform(-9, 9),
    st.one_of(st.just(0.0), scales),
)

fair_forests = st.lists(  # every quota above 0, no floors or ceilings, one priority
    st.builds(
        Node,
        st.integers(-1, 30),
        st.one_of(st.just(INF), st.floats(1, 1e4)),
        st.lists((st.floats(1, 1e4) | st.just(INF)).map(Broker), max_size=1).map(tuple),
        st.floats(0.1, 10),
        st.just(0.0),
        st.just(0),
    ),
    min_size=1,
    max_size=12,
)


def parents_of(forest: list[Node]) -> list[int]:
    """Each node's parent: `above` modulo the number of groups before it; -1 = none."""
    return [-1 if node.above < 0 or not at else node.above % at for at, node in enumerate(forest)]


def solve(forest: list[Node], parent: Iterable[int] | None = None) -> np.ndarray:
    def column(values: Iterable[float], dtype: type = np.float64) -> np.ndarray:
        return np.array(list(values), dtype=dtype)

    return effective_quota(
        column(parents_of(forest) if parent is None else parent, np.int64),
        problem([(node.quota, list(node.brokers)) for node in forest]),
        column([node.weight for node in forest]),
        column([node.floor for node in forest]),
        column([node.priority for node in forest], np.int64),
    )


def in_force(forest: list[Node], parent: Iterable[int] | None = None) -> list[list[float]]:
    """The limits of each group's own brokers."""
    brokers = problem([(node.quota, list(node.brokers)) for node in forest])
    limits = get_law("max_min")(replace(brokers, quota=solve(forest, parent))).limits
    return [limits[a:b].tolist() for a, b in pairwise(brokers.starts)]


Exact = Fraction | float
"""A float only if it is infinite."""


class Subtree(NamedTuple):
    """The demand, guarantee and ceiling of all brokers below a group together."""

    want: Exact
    least: Exact
    most: Exact

    @staticmethod
    def of(parts: list[Subtree]) -> Subtree:
        return Subtree(*(sum(values, Fraction(0)) for values in zip(*parts, strict=True)))


NOBODY = Subtree(Fraction(0), Fraction(0), Fraction(0))


def exact(value: float) -> Exact:
    return value if value == INF else Fraction(value)


def of_broker(broker: Broker) -> Subtree:
    most, least = exact(broker.ceiling), exact(min(broker.floor, broker.ceiling))
    return Subtree(max(least, exact(min(broker.demand, broker.ceiling))), least, most)


def of_brokers(node: Node) -> Subtree:
    return Subtree.of([NOBODY, *map(of_broker, node.brokers)])


def slowly(forest: list[Node]) -> list[Exact]:
    """The effective quota of each group, computed recursively from the subtrees' demand."""
    parent = parents_of(forest)
    children = [[at for at, up in enumerate(parent) if up == node] for node in range(len(forest))]
    effective: list[Exact] = [Fraction(0)] * len(forest)

    @cache
    def subtree(node: int) -> Subtree:
        all_ = Subtree.of([of_brokers(forest[node]), *map(subtree, children[node])])
        most = min(exact(forest[node].quota), all_.most)
        least = min(max(exact(forest[node].floor), all_.least), most)
        return Subtree(min(max(all_.want, least), most), least, most)

    def as_broker(part: Subtree, weight: float, priority: int) -> Broker:
        return Broker(part.want, weight, part.least, part.most, priority)  # type: ignore[arg-type]

    def divide(node: int, has: Exact) -> None:
        below, brokers = children[node], bool(forest[node].brokers)
        if has == INF:
            effective[node] = has if brokers else Fraction(0)
            for child in below:
                divide(child, exact(forest[child].quota))
            return
        if not below:
            effective[node] = has if brokers else Fraction(0)
            return
        sharing = [
            as_broker(subtree(child), forest[child].weight, forest[child].priority)
            for child in below
        ]
        if brokers:
            sharing.append(as_broker(of_brokers(forest[node]), 1.0, 0))
        shares = textbook(has, sharing)
        if brokers:
            effective[node] = shares.pop()
        for child, share in zip(below, shares, strict=True):
            divide(child, share)

    for node, up in enumerate(parent):
        if up < 0:
            divide(node, exact(forest[node].quota))
    return effective


def ancestors(parent: list[int], node: int) -> list[int]:
    path = [node]
    while parent[path[-1]] >= 0:
        path.append(parent[path[-1]])
    return path


def want(*demands: float, **terms: float) -> tuple[Broker, ...]:
    """Brokers with these demands and the same terms."""
    return tuple(Broker(demand, **terms) for demand in demands)  # type: ignore[arg-type]
