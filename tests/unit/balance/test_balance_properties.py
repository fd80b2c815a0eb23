"""Properties of every cluster that quotaplane balances."""

from __future__ import annotations

from itertools import combinations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from quotabalance.planning.bundle_choice import cheapest_cover
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.decisions import LABELS
from quotabalance.planning.planner import BalanceState
from quotabalance.planning.policies import Policies
from quotabalance.planning.split_positions import split_positions
from quotaplane.topics.bundle_names import BundleName
from tests.examples import examples
from tests.unit.balance.balance_cases import applied, cluster, labels, once

FEW = examples(0.2)
SIZES = st.just(0.0) | st.floats(1e-3, 100)
HELD = st.lists(st.lists(SIZES, max_size=12), min_size=2, max_size=6).map(
    lambda rows: {f"b{i}": row for i, row in enumerate(rows)}
)


def peaks(load: ClusterLoad) -> list[float]:
    return sorted(load.throughput_of_brokers().tolist(), reverse=True)


@FEW
@given(HELD)
def test_never_worse_and_nobody_is_overloaded_by_a_move(held: dict[str, list[float]]) -> None:
    load = cluster(held)
    _, decided = once(load)
    after = applied(load, decided)
    assert len({move.bundle for move in decided.moves}) == len(decided.moves)
    assert all(one.reason for one in (*decided.moves, *decided.splits, *decided.skips))
    assert labels(decided) <= LABELS.keys()
    before, now = load.throughput_of_brokers(), after.throughput_of_brokers()
    assert now.max() <= before.max() * (1 + 1e-9)
    # nobody who got a bundle is then above the limit at which it would shed
    got = {move.target for move in decided.moves} - {move.source for move in decided.moves}
    for name in got:
        place = load.brokers.index(name)
        assert now[place] <= 1.15 * now.mean() * (1 + 1e-6)


@FEW
@given(HELD, st.sets(st.sampled_from(["b0", "b1", "b2", "b3"]), max_size=2))
def test_drained_brokers_get_nothing(held: dict[str, list[float]], drained: set[str]) -> None:
    load = cluster(held)
    _, decided = once(load, Policies(drained_brokers=drained))
    assert not drained & {move.target for move in decided.moves}


@FEW
@given(HELD, st.integers(0, 5), st.floats(0.01, 1))
def test_budgets_hold(held: dict[str, list[float]], moves: int, share: float) -> None:
    load = cluster(held)
    _, decided = once(load, max_moves_per_round=moves, max_bytes_share_per_round=share)
    bytes_per_s = share * load.throughput().sum()
    assert len(decided.moves) <= moves
    total = sum(move.bytes_per_s for move in decided.moves)
    # the first move always may; a swap is two moves that count as one
    first = [move for move in decided.moves if move.label == "Swap"][:2] or decided.moves[:1]
    assert total <= max(bytes_per_s, sum(move.bytes_per_s for move in first)) * (1 + 1e-9)


@FEW
@given(HELD, st.randoms(use_true_random=False))
def test_the_order_of_brokers_and_bundles_does_not_matter(
    held: dict[str, list[float]], random
) -> None:
    load = cluster(held)
    state, decided = once(load)
    brokers = list(range(len(load.brokers)))
    bundles = list(range(len(load.bundles)))
    random.shuffle(brokers)
    random.shuffle(bundles)
    place = np.argsort(brokers)
    other = ClusterLoad(
        tuple(load.brokers[i] for i in brokers),
        load.usage[brokers],
        load.limit[brokers],
        tuple(load.bundles[i] for i in bundles),
        place[load.owner[bundles]] if bundles else load.owner,
        load.rates[bundles],
    )
    other_state, same = once(other)
    assert same == decided
    assert other_state.to_bytes() == state.to_bytes()


@FEW
@given(HELD, st.sampled_from([2.0**-10, 0.25, 8.0, 2.0**20]))
def test_the_unit_of_load_does_not_matter(held: dict[str, list[float]], factor: float) -> None:
    _, decided = once(cluster(held))
    scaled = {name: [x * factor for x in row] for name, row in held.items()}
    _, same = once(cluster(scaled))
    assert [move[:3] for move in same.moves] == [move[:3] for move in decided.moves]


@FEW
@given(HELD)
def test_the_same_round_gives_the_same_answer_and_a_state_survives(
    held: dict[str, list[float]],
) -> None:
    load = cluster(held)
    state, decided = once(load)
    assert once(load)[1] == decided
    stored = BalanceState.from_bytes(state.to_bytes())
    assert stored.to_bytes() == state.to_bytes()
    after = applied(load, decided)
    first, again = (once(after, state=one, now_s=60.0) for one in (state, stored))
    assert first[1] == again[1]
    assert first[0].to_bytes() == again[0].to_bytes()


@FEW
@given(HELD)
def test_a_balanced_cluster_stays_as_it_is(held: dict[str, list[float]]) -> None:
    load = cluster(held)
    state, decided = once(load, max_moves_per_round=1000)
    after = applied(load, decided)
    if load.rates.sum() > 0 and after.max_by_mean() <= 1.1:
        _, again = once(after, state=state, now_s=60.0)
        assert not again.moves
        _, fresh = once(after)
        assert not fresh.moves


@given(st.lists(st.integers(1, 50), min_size=1, max_size=9), st.floats(0.05, 0.95))
def test_a_cover_covers_and_is_seldom_far_from_the_cheapest(gains: list[int], part: float) -> None:
    gain = np.array(gains, np.float64)
    enough = part * gain.sum()
    chosen = cheapest_cover(gain, gain, enough)
    assert len(set(chosen.tolist())) == len(chosen)
    assert gain[chosen].sum() >= enough
    cheapest = min(
        gain[list(some)].sum()
        for count in range(1, len(gain) + 1)
        for some in combinations(range(len(gain)), count)
        if gain[list(some)].sum() >= enough
    )
    assert gain[chosen].sum() <= cheapest + gain.min() + 1e-9


@given(st.lists(st.tuples(st.integers(0, 999), st.floats(0, 9)), min_size=1, max_size=12))
def test_a_boundary_is_inside_and_has_topics_on_both_sides(topics: list[tuple[int, float]]) -> None:
    hashes, loads = zip(*topics, strict=True)
    whole = BundleName("acme/orders", 0, 1000)
    boundaries = split_positions(whole, np.array(hashes), np.array(loads))
    if not boundaries:
        assert len(set(hashes)) == 1
    else:
        (boundary,) = boundaries
        assert 0 < boundary < 1000
        assert min(hashes) < boundary <= max(hashes)
