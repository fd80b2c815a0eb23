"""Quotas within quotas, against a slow recursive solution in exact fractions."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.laws.laws_cases import Group, groups, rounding, wide_groups
from tests.unit.laws.tree_cases import (
    INF,
    Node,
    ancestors,
    fair_forests,
    forests,
    in_force,
    of_brokers,
    parents_of,
    slowly,
    solve,
    want,
    wide_forests,
)


@given(st.one_of(forests, wide_forests))
def test_is_the_recursive_textbook_solution(forest: list[Node]) -> None:
    parent = parents_of(forest)
    for node, (got, wanted) in enumerate(zip(solve(forest).tolist(), slowly(forest), strict=True)):
        if wanted == INF:
            assert got == wanted
            continue
        quotas = [forest[up].quota for up in ancestors(parent, node)]
        scale = max((Fraction(quota) for quota in quotas if quota < INF), default=Fraction(0))
        assert abs(Fraction(got) - wanted) <= scale * Fraction(1, 10**9)


@given(st.one_of(forests, wide_forests))
def test_a_subtree_stays_inside_every_quota_above_it(forest: list[Node]) -> None:
    parent = parents_of(forest)
    got = solve(forest)
    assert not np.isnan(got).any()
    assert (got >= 0).all()
    below: list[list[float]] = [[] for _ in forest]
    for node, share in enumerate(got.tolist()):
        assert share == 0 or forest[node].brokers
        for up in ancestors(parent, node):
            below[up].append(share)
    for node, shares in zip(forest, below, strict=True):
        if node.quota < INF:
            assert sum(map(Fraction, shares)) <= Fraction(node.quota)


@given(st.one_of(forests, wide_forests))
def test_no_quota_is_left_over_that_any_broker_may_take(forest: list[Node]) -> None:
    parent = parents_of(forest)
    most = [math.fsum(one.ceiling for one in node.brokers) for node in forest]
    given_ = [math.fsum(limits) for limits in in_force(forest)]
    for node in reversed(range(len(forest))):
        most[node] = min(most[node], forest[node].quota)
        if parent[node] >= 0:
            most[parent[node]] += most[node]
            given_[parent[node]] += given_[node]
    for node in range(len(forest)):
        # The uppermost quotas: below no quota a ceiling is no matter of division.
        if [up for up in ancestors(parent, node) if forest[up].quota < INF] == [node]:
            assert given_[node] == pytest.approx(most[node], rel=1e-9, abs=0)


@given(st.one_of(forests, wide_forests))
def test_floors_of_brokers_hold_where_the_quotas_above_have_room_for_them(
    forest: list[Node],
) -> None:
    parent = parents_of(forest)
    least = [sum(min(one.floor, one.ceiling) for one in node.brokers) for node in forest]
    anybody = [bool(node.brokers) for node in forest]
    for node in reversed(range(len(forest))):
        anybody[parent[node]] |= anybody[node] and parent[node] >= 0
        if anybody[node]:
            least[node] = max(least[node], forest[node].floor)
        if parent[node] >= 0:
            least[parent[node]] += least[node]
    fits = [total <= node.quota * (1 - 1e-9) for total, node in zip(least, forest, strict=True)]
    for node, limits in enumerate(in_force(forest)):
        if all(fits[up] for up in ancestors(parent, node)):
            for limit, one in zip(limits, forest[node].brokers, strict=True):
                assert limit >= min(one.floor, one.ceiling) * (1 - 1e-12)


@given(st.one_of(groups, wide_groups), st.integers(1, 3))
def test_a_group_that_is_alone_in_its_tree_has_what_it_would_have_without(
    parts: list[Group], depth: int
) -> None:
    for quota, brokers in parts:
        above = [Node(-1, quota), *[Node(0)] * (depth - 1)]
        *_, nested = in_force([*above, Node(0, INF, tuple(brokers))], range(-1, depth))
        (flat,) = in_force([Node(-1, quota, tuple(brokers))])
        off = float((depth + 1) * rounding(len(brokers))) * quota
        assert nested == pytest.approx(flat, rel=0, abs=off)


@given(forests)
def test_what_fits_everywhere_is_granted(forest: list[Node]) -> None:
    parent = parents_of(forest)
    tame = [
        node._replace(
            floor=0.0,
            brokers=tuple(one._replace(demand=min(one.demand, 1e4)) for one in node.brokers),
        )
        for node in forest
    ]
    wanted = [float(of_brokers(node).want) for node in tame]
    below = [0.0] * len(tame)
    for at, own in enumerate(wanted):
        for up in ancestors(parent, at):
            below[up] += own
    roomy = [
        node._replace(quota=max(node.quota, total * (1 + 1e-9)))
        for node, total in zip(tame, below, strict=True)
    ]
    for at, (own, got) in enumerate(zip(wanted, solve(roomy).tolist(), strict=True)):
        # A group between has just what it wants, and pays for the rounding below it.
        assert got >= own - 1e-12 * below[ancestors(parent, at)[-1]]


@given(fair_forests)
def test_nobody_starves(forest: list[Node]) -> None:
    got = solve(forest)
    for node, share in zip(forest, got.tolist(), strict=True):
        # At the least the smallest demand or quota, divided on each of 12 levels among 12.
        assert share > 1e-3**12 or not node.brokers


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
            [Node(-1, 100, want(50)), Node(0, INF, want(50), weight=3), Node(0, INF, want(100))],
            [25, 50, 25],
            id="own-brokers-are-one-child-of-weight-1",
        ),
        pytest.param(
            [
                Node(-1, 90),
                Node(0),
                Node(1, INF, want(INF)),
                Node(0, INF, want(INF)),
                Node(1, INF, want(INF)),
            ],
            [0, 0, 22.5, 45, 22.5],
            id="a-parent-without-a-quota-passes-on",
        ),
        pytest.param(
            [Node(-1, INF, want(0)), Node(0, 10, want(50)), Node(0, INF, want(5))],
            [INF, 10, INF],
            id="an-unlimited-root-leaves-children-their-own",
        ),
        pytest.param(
            [
                Node(-1, 100),
                Node(0),
                Node(0, INF, want(10)),
                Node(1, 20, want(10)),
                Node(1, 15, want(10)),
            ],
            [0, 0, 65, 20, 15],
            id="spare-goes-where-it-may-be-used",
        ),
        pytest.param(
            [Node(-1, 100), Node(0, floor=70), Node(0, INF, want(INF))],
            [0, 0, 100],
            id="nobody-there-no-floor",
        ),
        pytest.param(
            [
                Node(-1, 100),
                Node(0),
                Node(1, INF, want(5, 5, ceiling=8)),
                Node(1, INF, want(0, ceiling=4)),
                Node(0, INF, want(40)),
                Node(0, INF, want(10)),
            ],
            [0, 0, 16, 4, 55, 25],
            id="ceilings-bound-the-spare-of-a-subtree",
        ),
        pytest.param(
            [
                Node(-1, 100),
                Node(0),
                Node(1, INF, want(0, 0, floor=20)),
                Node(1, INF, want(1000), floor=30),
                Node(0, INF, want(1000), priority=9),
            ],
            [0, 0, 40, 30, 30],
            id="guarantees-add-up-upwards-and-go-before-priorities",
        ),
        pytest.param(
            [
                Node(-1, 100),
                Node(0, 50),
                Node(1, INF, want(0, floor=60)),
                Node(1, INF, want(0, floor=40)),
                Node(0, INF, want(1000)),
            ],
            [0, 0, 30, 20, 50],
            id="guarantees-are-cut-to-the-quota-above",
        ),
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
        ([-1, 2], "the index of a group"),
        ([-2], "the index of a group"),
    ],
)
def test_a_parent_that_can_not_be(parent: list[int], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        solve([Node(-1)] * len(parent), parent)


def test_a_deep_chain_passes_on_what_its_top_has() -> None:
    depth = 300
    chain = [Node(-1, 50), *[Node(0)] * (depth - 2), Node(0, INF, want(INF))]
    assert solve(chain, list(range(-1, depth - 1)))[-1] == pytest.approx(50)
