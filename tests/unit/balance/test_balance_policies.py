"""Policies as Pulsar means them, and what is balanced where they divide the brokers into pools."""

from __future__ import annotations

from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.planning.isolation import IsolatedBrokers
from quotabalance.planning.placement_rules import PlacementRules
from quotabalance.planning.policies import read_policies
from quotabalance.planning.pool_means import pool_means
from quotabalance.pulsar_admin.namespace_policies import read_failure_domains
from quotaplane.errors import InputError
from tests.examples import examples
from tests.fuzz.rest_targets import done, with_answers
from tests.unit.balance.balance_cases import applied, bundle, cluster, labels, once

FEW = examples(0.2)
FAILOVER = {
    "policy_type": "min_available",
    "parameters": {"min_limit": "2", "usage_threshold": "80"},
}
VIP = {"isolation": {"vip": {"namespaces": ["vip/.*"], "primary": ["v\\d"]}}}


def evenly(namespace: str, count: int, each: float) -> dict[str, float]:
    return {bundle(2 * n, namespace): each for n in range(count)}


def pool_of_two(vip: float, free: float) -> dict[str, dict[str, float]]:
    """Two reserved brokers and two shared ones, each pool even."""
    return {
        f"{pool}{n}:8080": evenly(f"{namespace}/{n}", 8, each)
        for pool, namespace, each in (("v", "vip", vip), ("s", "free", free))
        for n in range(2)
    }


def test_expressions_are_compared_with_the_host() -> None:
    brokers = ("b1.example:8080", "b2.example:8080", "b3.example", "[::1]:8080")
    rule = {"namespaces": ["acme/.*"], "primary": ["b2\\.example"], "secondary": ["b3.*", "\\[.*"]}
    isolated = IsolatedBrokers(read_policies({"isolation": [rule]}).isolation, brokers)
    there = np.ones(4, np.bool_)
    assert isolated.open_to("acme/a", there).tolist() == [False, True, False, False]
    without = there & ~np.array([False, True, False, False])
    assert isolated.open_to("acme/a", without).tolist() == [False, True, True, True]
    assert isolated.open_to("free/a", there).tolist() == [True, False, True, True]


def test_an_expression_with_a_port_tells_brokers_of_one_host_apart_but_not_in_pulsar() -> None:
    rule = {"namespaces": ["acme/.*"], "primary": ["host:81"]}
    policies = read_policies({"isolation": {"reserved": rule}})
    brokers, there = ("host:80", "host:81"), np.ones(2, np.bool_)
    ours = IsolatedBrokers(policies.isolation, brokers)
    assert ours.open_to("acme/a", there).tolist() == [False, True]
    pulsars = IsolatedBrokers(policies.isolation, brokers, ports=False)
    assert pulsars.open_to("acme/a", there).tolist() == [False, False]
    assert pulsars.without_brokers == ("reserved",)


def test_an_expression_with_a_port_at_its_end_may_mean_a_host_elsewhere() -> None:
    rule = {"namespaces": ["acme/.*"], "primary": ["b1|b2:81"]}
    isolation = read_policies({"isolation": {"p": rule}}).isolation
    ours = IsolatedBrokers(isolation, ("b1:80", "b1:81", "b2:80", "b2:81"))
    assert ours.open_to("acme/a", np.ones(4, np.bool_)).tolist() == [True, True, False, True]


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        (r"\Qb.1\E|b\d", {"b.1", "b2"}),
        (r"\\Q|b\.\Q1", {r"\Q", "b.1"}),
        ("(?i)B2|[^b]", {"b2"}),
        ("b[-.]?[1-9]{1,2}?", {"b.1", "b2"}),
        ("b[1[2]]", None),
        ("[]b]2", None),
        ("[^][^]2", None),
        ("b[a-z&&[^x]]", None),
        ("b2++", None),
        (r"b\062", None),
        (r"(b)\12", None),
        (r"\bb2", None),
        ("(?x)b 2", None),
        ("(?P<n>b)2", None),
        ("b{,2}2", None),
        ("b{99999999999}", None),
        ("(" * 3000 + ")" * 3000, None),
    ],
)
def test_expressions_are_javas_or_refused(expression: str, names: set[str] | None) -> None:
    rule = {"namespaces": ["acme/.*"], "primary": [expression]}
    if names is None:
        with pytest.raises(InputError, match=r"^isolation\.p\.primary: .* regular expression"):
            read_policies({"isolation": {"p": rule}})
        return
    hosts = ("b.1", "b2", r"\Q")
    isolated = IsolatedBrokers(read_policies({"isolation": {"p": rule}}).isolation, hosts)
    allowed = isolated.open_to("acme/a", np.ones(3, np.bool_)).tolist()
    assert allowed == [host in names for host in hosts]


def test_a_policy_is_read_as_pulsar_prints_it() -> None:
    printed = {"namespaces": ["a/b"], "primary": ["b1"], "auto_failover_policy": FAILOVER}
    policies = read_policies({"isolation": {"p": printed}, "anti_affinity": {"a/b": " "}})
    assert policies.isolation["p"].min_primary == 2
    always = {"parameters": {"min_limit": "2147483647"}}  # Java's highest number
    secondaries = read_policies({"isolation": {"p": printed | {"auto_failover_policy": always}}})
    assert secondaries.isolation["p"].min_primary == 2**31 - 1
    assert not policies.group_of("a/b")
    assert read_policies(policies.model_dump(mode="json")) == policies
    for failover, wrong in (
        ({"policy_type": "best"}, "policy_type must be"),
        ({}, "min_limit must be a whole number"),
        ({"policy_type": "min_available", "parameters": {}}, "min_limit must be a whole number"),
    ):
        with pytest.raises(InputError, match=rf"^isolation\.p: .*{wrong}"):
            read_policies({"isolation": {"p": printed | {"auto_failover_policy": failover}}})


@pytest.mark.parametrize(("vip", "free"), [(0.1, 30.0), (30.0, 0.1), (0.0, 30.0)])
def test_even_pools_are_left_alone_however_unequal_they_are(vip: float, free: float) -> None:
    _, decided = once(cluster(pool_of_two(vip, free)), read_policies(VIP))
    assert not decided.moves
    assert not decided.splits
    (skip,) = decided.skips
    fuller = "v0:8080, v1:8080" if vip > free else "s0:8080, s1:8080"
    assert skip.label == "Policy"
    assert "policies leave some bundles only 2 brokers, whose mean is" in skip.reason
    assert skip.reason.endswith(fuller)


def test_a_pool_is_balanced_within_itself() -> None:
    held = pool_of_two(1.0, 30.0)
    held["v0:8080"] |= evenly("vip/more", 12, 1.0)
    _, decided = once(cluster(held), read_policies(VIP))
    assert decided.moves
    assert {(move.source, move.target) for move in decided.moves} == {("v0:8080", "v1:8080")}
    assert not decided.splits


def test_nothing_is_split_where_policies_keep_the_parts() -> None:
    apart = {"anti_affinity": {f"t/n{n}": "Ha" if n else "hA" for n in range(3)}}
    held = {f"b{n}": evenly(f"t/n{n}", 2 if n else 8, 10.0) for n in range(3)}
    _, decided = once(cluster(held), read_policies(apart))
    assert not decided.moves
    assert not decided.splits
    about = [(skip.subject, skip.label, skip.bundles) for skip in decided.skips]
    assert about == [("b0", "Policy", 8), (bundle(0, "t/n0"), "Policy", 1)]


def test_a_policy_that_matches_no_broker_is_named() -> None:
    held = {"b1:80": evenly("acme/a", 6, 10.0), "b2:80": {}, "b3:80": {}}
    rule = {"namespaces": ["acme/a"], "primary": ["b2-old"]}
    _, decided = once(cluster(held), read_policies({"isolation": {"acme": rule}}))
    assert not decided.moves
    assert not decided.splits
    assert "isolation policy acme matches no broker" in decided.skips[0].reason


def test_a_reserved_namespace_leaves_its_secondary_brokers_when_primary_ones_are_back() -> None:
    rule = {
        "namespaces": ["vip/.*"],
        "primary": ["v\\d"],
        "secondary": ["s\\d"],
        "auto_failover_policy": FAILOVER,
    }
    policies = read_policies({"isolation": {"vip": rule}})
    held = {"v0:1": evenly("vip/a", 3, 5.0), "v1:1": {}, "s0:1": evenly("vip/b", 3, 5.0)}
    _, decided = once(cluster(held), policies)
    assert {(move.source, move.target, move.label) for move in decided.moves} == {
        ("s0:1", "v1:1", "Policy")
    }
    _, short = once(cluster(held), policies, draining=["v1:1"])
    assert not short.moves


def test_a_new_rule_overloads_no_broker_though_a_round_can_not_move_all() -> None:
    """Ten even brokers, of which three are reserved: 42 % of the load have to move."""
    brokers = [*(f"v{n}" for n in range(3)), *(f"w{n}" for n in range(7))]
    held: dict[str, dict[str, float]] = {
        broker: evenly(f"free/{broker}", 14, 10.0) | evenly(f"vip/{broker}", 6, 10.0)
        for broker in brokers
    }
    policies, load = read_policies(VIP), cluster(held)
    state, decided = once(load, policies, max_bytes_share_per_round=0.3)
    assert {move.label for move in decided.moves} == {"Policy"}
    after = applied(load, decided)
    carried = np.bincount(after.owner, after.throughput(), len(brokers))
    assert carried.max() <= 1.15 * carried.mean()
    _, rest = once(after, policies, state, now_s=60.0)
    owners = applied(after, rest).owner
    reserved = np.array([broker.startswith("v") for broker in load.brokers])
    isolated = np.array([name.startswith("vip") for name in load.bundles])
    assert (reserved[owners] == isolated).all()


def test_a_new_rule_is_followed_at_once_though_machines_are_nearly_full() -> None:
    """Most bundles find no room before others have left."""
    rng = np.random.default_rng(1)
    brokers = [*(f"v{n}" for n in range(3)), *(f"w{n}" for n in range(7))]
    held: dict[str, dict[str, float]] = {}
    for broker in brokers:
        size = rng.lognormal(0.0, 0.7, 20)
        names = [bundle(2 * n, f"{'vip' if n < 6 else 'free'}/{broker}") for n in range(20)]
        size[:6] *= 28 / size[:6].sum()
        size[6:] *= 72 / size[6:].sum()
        held[broker] = dict(zip(names, size.tolist(), strict=True))
    policies, load = read_policies(VIP), cluster(held, cpu=dict.fromkeys(brokers, (82.0, 100.0)))
    _, decided = once(load, policies)
    assert len(decided.moves) > 0.9 * (3 * 14 + 7 * 6)
    carried = applied(load, decided).throughput_of_brokers()
    assert carried.max() * 0.82 <= 85


def test_failure_domains_keep_a_group_apart() -> None:
    held: dict[str, Any] = {
        "b1": evenly("a/one", 6, 10.0),
        "b2": {},
        "b3": {},
        "b4": evenly("a/two", 1, 1.0),
    }
    racks = {"x": ["b1", "b2"], "y": ["b3", "b4"]}
    policies = {"anti_affinity": {"a/one": "g", "a/two": "g"}, "failure_domains": racks}
    _, decided = once(cluster(held), read_policies(policies))
    assert {move.target for move in decided.moves} == {"b2"}


@pytest.mark.parametrize("draining", [[], ["b1"]])
def test_a_group_goes_where_it_is_apart_if_there_is_room(draining: list[str]) -> None:
    """One namespace of the group is with ``a/one`` already, so ``b2`` would not be worse, and it is
    the least used broker; ``b3`` has none of them.
    """
    group = {"anti_affinity": {f"a/{name}": "g" for name in ("one", "two", "three")}}
    held: dict[str, Any] = {
        "b1": evenly("a/one", 6, 10.0) | evenly("a/two", 1, 0.1),
        "b2": evenly("a/three", 1, 1.0),
        "b3": evenly("free/a", 1, 12.0),
    }
    _, decided = once(cluster(held), read_policies(group), draining=draining)
    assert decided.moves[0].target == "b3"
    held["b3"] |= evenly("free/b", 6, 12.0)
    _, full = once(cluster(held), read_policies(group), draining=draining)
    assert next(move.target for move in full.moves if move.source == "b1") == "b2"


def test_failure_domains_are_read_as_pulsar_answers() -> None:
    answer = b'{"rack-2": {"brokers": ["b2:80", "b1:80"]}, "rack-1": {"brokers": []}}'
    domains = done(read_failure_domains(with_answers(answer), "blue"))
    assert domains == {"rack-1": [], "rack-2": ["b1:80", "b2:80"]}


def test_a_drain_overloads_no_machine() -> None:
    held = {f"b{n}": evenly(f"t/n{n}", 4, 15.0 + 5 * (n > 0)) for n in range(3)}
    cpu = {"b0": (60.0, 100.0), "b1": (80.0, 100.0), "b2": (80.0, 100.0)}
    _, decided = once(cluster(held, cpu=cpu), draining=["b0"])
    assert not decided.moves
    assert [(skip.subject, skip.label, skip.bundles) for skip in decided.skips] == [
        ("b0", "NoTarget", 4)
    ]


def test_a_broker_without_policies_is_not_said_to_be_held_by_them() -> None:
    cpu = {"b1": (100.0, 100.0), "b2": (10.0, 100.0), "b3": (10.0, 100.0)}
    held = {name: evenly(f"t/{name}", 1, 10.0) for name in cpu}
    _, decided = once(cluster(held, cpu=cpu))
    assert "Policy" not in labels(decided)


LOADS = st.lists(st.just(0.0) | st.floats(0.01, 100), min_size=1, max_size=4)
MASKS = st.lists(st.booleans(), min_size=5, max_size=5)


@FEW
@given(
    LOADS,
    st.lists(MASKS, min_size=4, max_size=4),
    st.lists(st.floats(0.1, 9), min_size=5, max_size=5),
)
def test_pool_means_are_those_of_all_subsets(
    loads: list[float], masks: list[list[bool]], capacities: list[float]
) -> None:
    """The densest set of loads is found here by trying all sets."""
    load, capacity = np.array(loads), np.array(capacities)
    pools = np.array(masks)[: len(loads)]
    pools[:, 0] |= ~pools.any(axis=1)
    expected, open_, left = (
        np.zeros(5),
        np.ones(5, np.bool_),
        [n for n in range(len(load)) if load[n]],
    )
    while left:
        sets = [c for k in range(1, len(left) + 1) for c in combinations(left, k)]

        def density(chosen: tuple[int, ...], still: Any = open_) -> float:
            room = capacity[pools[list(chosen)].any(axis=0) & still].sum()
            return float(load[list(chosen)].sum() / room)

        densest = max(sets, key=density)
        brokers = pools[list(densest)].any(axis=0) & open_
        expected[brokers] = density(densest)
        open_ = open_ & ~brokers
        left = [n for n in left if n not in densest]
    np.testing.assert_allclose(pool_means(load, pools, capacity), expected, rtol=1e-6)


HELD = st.lists(st.lists(st.floats(1.0, 100), max_size=8), min_size=4, max_size=4)
PRIMARIES = st.lists(st.sampled_from(["b0", "b1", "b[01]", "b[12]", "b3"]), min_size=1, max_size=2)


@FEW
@given(HELD, PRIMARIES, PRIMARIES)
def test_no_move_breaks_a_policy_and_no_receiver_sheds(
    held: list[list[float]], first: list[str], second: list[str]
) -> None:
    policies = read_policies(
        {
            "isolation": [
                {"namespaces": ["vip/0"], "primary": first},
                {"namespaces": ["vip/1"], "primary": second, "secondary": ["b3"]},
            ]
        }
    )
    names = ["vip/0", "vip/1", "free/0", "free/1"]
    load = cluster(
        {
            f"b{n}": {bundle(16 * n + 2 * i, names[i % 4]): size for i, size in enumerate(sizes)}
            for n, sizes in enumerate(held)
        }
    )
    isolated = IsolatedBrokers(policies.isolation, load.brokers)
    there = np.ones(4, np.bool_)
    state, decided = once(load, policies)
    for move in decided.moves:
        namespace = move.bundle.rpartition("/")[0]
        assert isolated.open_to(namespace, there)[load.brokers.index(move.target)]
    after = applied(load, decided)
    _, again = once(after, policies, state, now_s=60.0)
    relieved = {move.source for move in again.moves if move.label != "Policy"}
    assert not relieved & {move.target for move in decided.moves if move.label == "Overloaded"}


@FEW
@given(HELD, st.lists(st.sampled_from("gG "), min_size=4, max_size=4), st.booleans())
def test_no_move_brings_more_of_a_group_together(
    held: list[list[float]], groups: list[str], racks: bool
) -> None:
    names = [f"t/n{n}" for n in range(4)]
    domains = {"x": ["b0", "b1"], "y": ["b2"]} if racks else {}
    policies = read_policies(
        {"anti_affinity": dict(zip(names, groups, strict=True)), "failure_domains": domains}
    )
    load = cluster(
        {
            f"b{n}": {bundle(16 * n + 2 * i, names[(n + i) % 4]): size for i, size in enumerate(on)}
            for n, on in enumerate(held)
        }
    )
    _, decided = once(load, policies)
    owner, there = load.owner.copy(), np.ones(len(load.brokers), np.bool_)
    for move in decided.moves:
        at, target = load.bundles.index(move.bundle), load.brokers.index(move.target)
        rules = PlacementRules(policies, load.brokers, there, load.bundles, owner)
        assert rules.allowed(at, int(owner[at]))[target]
        owner[at] = target
