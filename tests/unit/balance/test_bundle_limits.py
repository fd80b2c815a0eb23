"""Bundles that have more than a bundle may have are split, with and without other brokers."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import Decisions
from quotabalance.planning.options import BalanceOptions, read_options
from quotabalance.planning.planner import BalanceRound, BalanceState, decide
from quotabalance.planning.policies import Policies
from quotaplane.errors import InputError
from tests.unit.balance.balance_cases import AT_ONCE, cluster, labels, once
from tests.unit.balance.load_report_cases import bundle_of

EVEN = {"b1": {bundle_of(0): 1e6, bundle_of(1): 1e6}, "b2": {bundle_of(2): 1e6, bundle_of(3): 1e6}}


def load_with(held: Mapping[str, Mapping[str, float]] = EVEN, **first: float) -> ClusterLoad:
    """A cluster whose first bundle has these amounts; the others have little."""
    load = cluster(held)
    count = len(load.bundles)
    topics, sessions, rates = np.full(count, 5), np.full(count, 5), load.rates.copy()
    topics[0] = first.get("topics", 5)
    sessions[0] = first.get("sessions", 5)
    rates[0, 2] = first.get("messages", 0.0)
    rates[0, 0] = first.get("bytes", rates[0, 0])
    return replace(load, topics=topics, sessions=sessions, rates=rates)


@pytest.mark.parametrize(
    ("first", "label", "parts"),
    [
        ({"topics": 1000}, "", 0),
        ({"topics": 1001}, "Topics", 2),
        ({"topics": 2001}, "Topics", 4),
        ({"sessions": 5000}, "Sessions", 5),
        ({"messages": 30_001.0}, "MsgRate", 2),
        ({"messages": 1e9}, "MsgRate", 5),
        ({"bytes": 104_857_601.0}, "Bandwidth", 2),
    ],
)
@pytest.mark.parametrize("held", [EVEN, {"b1": EVEN["b1"]}], ids=["two brokers", "one broker"])
def test_what_is_above_a_limit_is_split(
    held: Mapping[str, Mapping[str, float]], first: dict[str, Any], label: str, parts: int
) -> None:
    found = once(load_with(held, **first))[1]
    assert [(split.bundle, split.label) for split in found.splits][: bool(label) + 1] == [
        (bundle_of(0), label)
    ] * bool(label)
    if label:
        # as many parts as topics at most; two are cut where the topics divide
        most = {2: 0, 4: 3, 5: 3}[parts]
        assert len(found.splits[0].boundaries) == most
        assert re.match(r"it has [\d.e+]+, more than \d+ \w+", found.splits[0].reason)


def test_limits_have_pulsars_names_too() -> None:
    mine = read_options({"loadBalancerNamespaceBundleMaxTopics": 100, "max_bundle_sessions": 7})
    assert (mine.max_bundle_topics, mine.max_bundle_sessions) == (100, 7)
    with pytest.raises(InputError, match="is given twice, also as max_bundle_topics"):
        read_options({"max_bundle_topics": 1, "loadBalancerNamespaceBundleMaxTopics": 1})
    with pytest.raises(InputError, match="max_bundle_topics: Input should be greater"):
        read_options({"loadBalancerNamespaceBundleMaxTopics": 0})


def rounds(load: ClusterLoad, seed: int, count: int, **options: Any) -> list[Decisions]:
    """Rounds with noise of 30 % on every rate."""
    random, state, found = np.random.default_rng(seed), BalanceState.empty(), []
    given = BalanceOptions.model_validate(options)
    for number in range(count):
        noisy = replace(
            load, rates=load.rates * random.lognormal(-0.045, 0.3, (len(load.bundles), 1))
        )
        brokers = len(load.brokers)
        round_ = BalanceRound(noisy, 60.0 * number, np.zeros(brokers), np.zeros(brokers, bool))
        state, decided = decide(state, round_, given, Policies())
        found.append(decided)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_noise_around_a_limit_splits_nothing_and_a_rate_far_above_it_is_split(seed: int) -> None:
    near = load_with(bytes=100e6, messages=27_000.0)
    assert not any(decided.splits for decided in rounds(near, seed, 60, start_above=5))
    far = load_with(bytes=250e6)
    first = next(n for n, each in enumerate(rounds(far, seed, 60, start_above=5)) if each.splits)
    assert 1 <= first <= 8


def test_a_bundle_that_is_split_is_not_moved_in_the_same_round() -> None:
    hot = {"b1": {bundle_of(n): 9e6 for n in range(6)}, "b2": {}}
    found = once(load_with(hot, topics=1001, bytes=1e6))[1]
    assert [split.bundle for split in found.splits] == [bundle_of(0)]
    assert found.moves
    assert bundle_of(0) not in {move.bundle for move in found.moves}


@pytest.mark.parametrize(
    ("options", "label", "reason"),
    [
        ({"allow_splits": False}, "TooBig", "but splits are switched off"),
        ({"max_bundles_per_namespace": 4}, "TooBig", "its namespace has 4 of 4 bundles"),
    ],
)
def test_what_can_not_be_split_is_counted_in_one_row(
    options: dict[str, Any], label: str, reason: str
) -> None:
    load = load_with()
    load = replace(load, topics=np.full(4, 1001))
    found = once(load, **options)[1]
    assert not found.splits
    (skip,) = [skip for skip in found.skips if skip.label == label]
    assert skip.bundles == 4
    assert reason in skip.reason


def test_many_bundles_above_a_limit_are_split_ten_a_round_the_biggest_first() -> None:
    held = {"b1": {bundle_of(n): 1e6 for n in range(30)}, "b2": {bundle_of(99): 1e6}}
    load = load_with(held)
    load = replace(load, topics=np.arange(2000, 2000 + 31))
    found = once(load, **AT_ONCE | {"start_above": 9})[1]
    assert [split.bundle for split in found.splits[:2]] == [bundle_of(99), bundle_of(29)]
    assert len(found.splits) == 10
    assert "Budget" in labels(found)


def test_pinned_drained_and_misplaced_bundles_wait() -> None:
    excluded = Policies(excluded_namespaces=["acme/orders"])
    load = load_with(topics=5000)
    assert not once(load, excluded)[1].splits
    assert not once(load, draining=("b1",))[1].splits
    assert once(load)[1].splits
