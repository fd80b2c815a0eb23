"""Quotas within quotas, against a slow recursive solution in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.laws import effective_quota
from tests.unit.laws_cases import Broker, textbook


class Node(NamedTuple):
    """A group of a forest; `above` picks one of the groups before it, or none."""

    above: int
    quota: float = math.inf
    demand: float = 0.0
    weight: float = 1.0
    floor: float = 0.0
    priority: int = 0
    has_brokers: bool = True


INF = math.inf
amounts = st.one_of(st.sampled_from([0.0, 1.0, 10.0]), st.floats(1e-3, 1e4))
maybe = st.one_of(st.just(math.inf), amounts)
nodes = st.builds(
    Node,
    st.integers(-1, 30),
    maybe,
    maybe,
    st.one_of(st.just(1.0), st.floats(0.1, 10)),
    st.one_of(st.just(0.0), amounts),
    st.sampled_from([0, 0, 1, -1]),
    st.booleans(),
)
forests = st.lists(nodes, max_size=12)
fair_forests = st.lists(  # every quota above 0, no floors, one priority
    st.builds(
        Node,
        st.integers(-1, 30),
        st.one_of(st.just(math.inf), st.floats(1, 1e4)),
        st.one_of(st.just(math.inf), st.floats(1, 1e4)),
        st.floats(0.1, 10),
        st.just(0.0),
        st.just(0),
        st.booleans(),
    ),
    min_size=1,
    max_size=12,
)


def parents_of(forest: list[Node]) -> list[int]:
    """Any number becomes a group that comes before, or none."""
    return [-1 if node.above < 0 or not at else node.above % at for at, node in enumerate(forest)]


def solve(forest: list[Node], parent: list[int] | None = None) -> np.ndarray:
    columns = list(zip(*forest, strict=True)) if forest else [[]] * 7
    return effective_quota(
        np.array(parents_of(forest) if parent is None else parent, dtype=np.int64),
        *(np.array(column, dtype=np.float64) for column in columns[1:5]),
        priority=np.array(columns[5], dtype=np.int64),
        has_brokers=np.array(columns[6], dtype=np.bool_),
    )


def slowly(forest: list[Node]) -> list[Fraction | float]:
    """Recursively: what a subtree wants and may take at most, and what it makes of its quota."""
    parent = parents_of(forest)
    children = [[at for at, up in enumerate(parent) if up == node] for node in range(len(forest))]
    effective: list[Fraction | float] = [Fraction(0)] * len(forest)

    def most(node: int) -> float:
        if forest[node].has_brokers:
            return forest[node].quota
        return min(forest[node].quota, sum(most(child) for child in children[node]))

    def want(node: int) -> float:
        own = forest[node].demand if forest[node].has_brokers else 0.0
        below = own + sum(want(child) for child in children[node])
        return min(most(node), max(forest[node].floor, below))

    def divide(node: int, has: Fraction | float) -> None:
        if has == math.inf:
            if forest[node].has_brokers:
                effective[node] = has
            for child in children[node]:
                divide(child, forest[child].quota)
            return
        sharing = [
            Broker(
                want(child),
                forest[child].weight,
                forest[child].floor,
                most(child),
                forest[child].priority,
            )
            for child in children[node]
        ]
        if forest[node].has_brokers:
            sharing.append(Broker(forest[node].demand))
        shares = textbook(has, sharing)
        if forest[node].has_brokers:
            effective[node] = shares.pop()
        for child, share in zip(children[node], shares, strict=True):
            divide(child, share)

    for node, up in enumerate(parent):
        if up < 0:
            divide(node, forest[node].quota)
    return effective


def ancestors(parent: list[int], node: int) -> list[int]:
    found = [node]
    while parent[found[-1]] >= 0:
        found.append(parent[found[-1]])
    return found


@given(forests)
def test_is_the_recursive_textbook_solution(forest: list[Node]) -> None:
    parent = parents_of(forest)
    for node, (got, wanted) in enumerate(zip(solve(forest).tolist(), slowly(forest), strict=True)):
        if wanted == math.inf:
            assert got == wanted
            continue
        quota = min(forest[up].quota for up in ancestors(parent, node))
        scale = Fraction(0 if math.isinf(quota) else max(quota, float(wanted)))
        top = max(
            (forest[up].quota for up in ancestors(parent, node) if forest[up].quota < math.inf),
            default=0.0,
        )
        assert abs(Fraction(got) - wanted) <= max(scale, Fraction(top)) * Fraction(1, 10**9)


@given(forests)
def test_a_subtree_stays_inside_every_quota_above_it(forest: list[Node]) -> None:
    parent = parents_of(forest)
    got = solve(forest)
    assert not np.isnan(got).any()
    assert (got >= 0).all()
    below: list[list[float]] = [[] for _ in forest]
    for node, share in enumerate(got.tolist()):
        assert share == 0 or forest[node].has_brokers
        for up in ancestors(parent, node):
            below[up].append(share)
    for node, shares in zip(forest, below, strict=True):
        if node.quota < math.inf:
            assert sum(map(Fraction, shares)) <= Fraction(node.quota)


@given(forests)
def test_what_fits_everywhere_is_granted(forest: list[Node]) -> None:
    parent = parents_of(forest)
    tame = [node._replace(floor=0.0, demand=min(node.demand, 1e4)) for node in forest]
    below = [0.0] * len(tame)
    for at, node in enumerate(tame):
        for up in ancestors(parent, at):
            below[up] += node.demand if node.has_brokers else 0.0
    roomy = [
        node._replace(quota=max(node.quota, wanted * (1 + 1e-9)))
        for node, wanted in zip(tame, below, strict=True)
    ]
    for node, got in zip(roomy, solve(roomy).tolist(), strict=True):
        assert got >= node.demand * (1 - 1e-12) or not node.has_brokers


@given(fair_forests)
def test_nobody_starves(forest: list[Node]) -> None:
    got = solve(forest)
    for node, share in zip(forest, got.tolist(), strict=True):
        # At the least the smallest demand or quota, divided on each of 12 levels among 12.
        assert share > 1e-3**12 or not node.has_brokers


@given(forests, st.randoms(use_true_random=False))
def test_the_order_of_groups_does_not_matter(forest: list[Node], random: object) -> None:
    parent, size = parents_of(forest), len(forest)
    order = list(range(size))
    random.shuffle(order)  # type: ignore[attr-defined]
    place = {node: at for at, node in enumerate(order)}
    shuffled = [forest[node] for node in order]
    turned = solve(shuffled, [-1 if parent[node] < 0 else place[parent[node]] for node in order])
    assert np.allclose(turned, solve(forest)[order], rtol=1e-9, atol=1e-6)


@pytest.mark.parametrize(
    ("forest", "expected"),
    [
        pytest.param(
            [Node(-1, 100, has_brokers=False), Node(0, 60, 90), Node(0, demand=90)],
            [0, 50, 50],
            id="a-tenant-and-two-namespaces",
        ),
        pytest.param(
            [Node(-1, 100, has_brokers=False), Node(0, 30, 90), Node(0, demand=90)],
            [0, 30, 70],
            id="what-a-quota-leaves-goes-to-the-others",
        ),
        pytest.param(
            [Node(-1, 100, 50), Node(0, INF, 50, weight=3), Node(0, INF, 100)],
            [25, 50, 25],
            id="own-brokers-are-one-child-of-weight-1",
        ),
        pytest.param(
            [
                Node(-1, 90, has_brokers=False),
                Node(0, has_brokers=False),
                Node(1, INF, INF),
                Node(0, INF, INF),
                Node(1, INF, INF),
            ],
            [0, 0, 22.5, 45, 22.5],
            id="a-parent-without-a-quota-passes-on",
        ),
        pytest.param(
            [Node(-1, has_brokers=True), Node(0, 10, 50), Node(0, demand=5)],
            [INF, 10, INF],
            id="an-unlimited-root-leaves-children-their-own",
        ),
        pytest.param(
            [Node(-1, 100, has_brokers=False), Node(0, INF, 10), Node(0, 20, 10)],
            [0, 80, 20],
            id="spare-respects-quotas",
        ),
        pytest.param(
            [
                Node(-1, 100, has_brokers=False),
                Node(0, has_brokers=False),
                Node(0, INF, 10),
                Node(1, 20, 10),
                Node(1, 15, 10),
            ],
            [0, 0, 65, 20, 15],
            id="spare-goes-where-it-may-be-used",
        ),
        pytest.param(
            [Node(-1, 100, has_brokers=False), Node(0, INF, INF, floor=70), Node(0, INF, INF)],
            [0, 70, 30],
            id="floor-of-a-child",
        ),
        pytest.param(
            [
                Node(-1, 100, has_brokers=False),
                Node(0, floor=70, has_brokers=False),
                Node(0, INF, INF),
            ],
            [0, 0, 100],
            id="nobody-there-no-floor",
        ),
        pytest.param(
            [Node(-1, 100, has_brokers=False), Node(0, INF, 80, priority=1), Node(0, INF, INF)],
            [0, 80, 20],
            id="priority-among-siblings",
        ),
        pytest.param([Node(-1, 7, INF), Node(-1, demand=3)], [7, INF], id="two-roots-alone"),
        pytest.param([], [], id="no-groups"),
    ],
)
def test_known_cases(forest: list[Node], expected: list[float]) -> None:
    assert solve(forest).tolist() == pytest.approx(expected)


@pytest.mark.parametrize(
    ("parent", "says"),
    [
        ([1, 0], "is its own ancestor"),
        ([-1, 1], "is its own ancestor"),
        ([-1, 2], "an index of a group"),
        ([-2], "an index of a group"),
    ],
)
def test_a_parent_that_can_not_be(parent: list[int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        solve([Node(-1)] * len(parent), parent)


def test_a_deep_chain_passes_on_what_its_top_has() -> None:
    depth = 300
    chain = [Node(-1, 50, has_brokers=False)] + [Node(0, has_brokers=False)] * (depth - 2)
    chain.append(Node(0, demand=INF))
    assert solve(chain, list(range(-1, depth - 1)))[-1] == pytest.approx(50)
