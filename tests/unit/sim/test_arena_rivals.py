"""The arena's rivals against their originals' published cases."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.arena.rivals import (
    DOORMAN_LEASE_ROUNDS,
    TIKV_EXPIRY_ROUNDS,
    Doorman,
    Leases,
    StockProportional,
    TikvSlots,
    fair_share,
    proportional_share,
    slot_rates,
)
from quotaplane.sim.loop import Network, run_loop


def granted(share, capacity, wants, subclients=None, preloaded=True) -> list[float]:
    """Doorman's own test: each client asks once, in order; the store may know all wants before."""
    numbers = subclients or [1] * len(wants)
    leases = Leases(len(wants))
    clients = list(zip(wants, numbers, strict=True))
    if preloaded:
        for client, (want, number) in enumerate(clients):
            leases.assign(client, 0.0, want, number)
    return [
        leases.assign(client, share(leases, capacity, client, want, number), want, number)
        for client, (want, number) in enumerate(clients)
    ]


@pytest.mark.parametrize(
    ("capacity", "wants", "subclients", "grants"),
    [
        (120, [1000, 60, 10], None, [55, 55, 10]),
        (120, [1000, 50, 10], None, [60, 50, 10]),
        (120, [1000, 500, 200], [6, 4, 2], [60, 40, 20]),
        (1000, [2000, 500, 700], [10, 10, 30], [200, 200, 600]),
        (120, [8, 32, 38, 44], None, [8, 32, 40, 40]),  # max-min: 8, 32, 38, 42
    ],
)
def test_doormans_fair_share(capacity, wants, subclients, grants) -> None:
    assert granted(fair_share, capacity, wants, subclients) == pytest.approx(grants)


@pytest.mark.parametrize(
    ("wants", "subclients", "preloaded", "grants"),
    [
        ([60, 60, 10], None, True, [55, 55, 10]),
        ([1000, 50, 10], None, True, [69.69, 40.31, 10]),
        ([60, 75, 10], None, False, [60, 60, 0]),
        ([65, 45, 20], [3, 2, 1], True, [60, 40, 20]),
        ([65, 45, 20], [3, 2, 1], False, [65, 45, 10]),
    ],
)
def test_doormans_proportional_share(wants, subclients, preloaded, grants) -> None:
    found = granted(proportional_share, 120, wants, subclients, preloaded)
    assert found == pytest.approx(grants, abs=0.01)


@pytest.mark.parametrize("share", [fair_share, proportional_share])
def test_doorman_never_grants_more_than_its_capacity(share) -> None:
    rng = np.random.default_rng(3)
    demand = rng.uniform(0, 100, (60, 6)) * rng.integers(0, 2, (60, 6))
    run = run_loop(demand, Doorman(share, 6), 150.0)
    assert (run.limit.sum(axis=1) <= 150.0 * (1 + 1e-9)).all()


def test_a_dead_client_of_doorman_holds_its_lease_to_the_end() -> None:
    alive = np.ones((DOORMAN_LEASE_ROUNDS + 6, 2), dtype=bool)
    alive[2:, 1] = False
    run = run_loop(np.full(alive.shape, 80.0), Doorman(fair_share, 2), 100.0, alive=alive)
    held = run.limit[:, 0]
    assert held[3:] == pytest.approx([50.0] * (DOORMAN_LEASE_ROUNDS - 1) + [80.0] * 4)


@pytest.mark.parametrize(
    ("fill_rate", "demand", "rates"),
    [
        (120, [100, 60, 55, 5], [44, 36, 35, 5]),
        (180, [80, 30, 70], [80, 30, 70]),
        (180, [15, 120, 45], [15, 120, 45]),
        (180, [10, 10, 10], [60, 60, 60]),
        (90, [60, 60, 60], [30, 30, 30]),
    ],
)
def test_tikvs_slots(fill_rate, demand, rates) -> None:
    found = slot_rates(fill_rate, np.array(demand, dtype=float), np.ones(len(demand), bool))
    assert found == pytest.approx(rates)


def test_a_slot_of_unknown_demand_has_an_even_share() -> None:
    known = np.array([True, True, False])
    assert slot_rates(90.0, np.array([200.0, 10.0, 0.0]), known) == pytest.approx([50, 10, 30])


def test_tikvs_average_has_a_half_life_of_a_round_and_settles() -> None:
    demand = np.array([[60.0, 20.0]] * 4 + [[60.0, 80.0]] * 10)
    run = run_loop(demand, TikvSlots(2), 100.0)
    assert run.limit[4] == pytest.approx([80, 20])
    # Half-way from 20 to 80; the other asked before that and still has what was left over.
    assert run.limit[5] == pytest.approx([80, 50])
    assert run.limit[6:] == pytest.approx(50.0)


def test_who_asks_tikv_for_nothing_loses_its_slot_and_a_dead_one_in_ten_minutes() -> None:
    rounds = TIKV_EXPIRY_ROUNDS + 8
    demand = np.full((rounds, 3), 80.0)
    demand[4:, 2] = 0.0
    alive = np.ones((rounds, 3), dtype=bool)
    alive[6:, 1] = False
    run = run_loop(demand, TikvSlots(3), 90.0, alive=alive)
    assert run.limit[5:, 2].tolist() == [0.0] * (rounds - 5)
    assert run.limit[8, 0] == pytest.approx(45.0, abs=1)  # shared with the dead one
    assert run.limit[-1, 0] == 90.0


def test_stock_pulsar_stays_stuck_where_the_facts_say() -> None:
    """Limits 70/30, both want 100: 70/29; who wakes has 1. Stock's rounding may take 1."""
    ideal = {"throttled_told": False, "throttle": None}
    both = np.array([[70.0, 30.0]] * 3 + [[100.0, 100.0]] * 8)
    run = run_loop(both, StockProportional(2), 100.0, **ideal)
    assert run.limit[3].tolist() == [70.0, 30.0]
    assert run.limit[-1] == pytest.approx([70.0, 29.0], abs=1.0)
    wakes = np.array([[50.0, 0.0]] * 3 + [[100.0, 50.0]] * 8)
    run = run_loop(wakes, StockProportional(2), 100.0, **ideal)
    assert run.limit[-1] == pytest.approx([98.0, 1.0], abs=1.0)
    four = run_loop(np.full((3, 4), 100.0), StockProportional(4), 100.0, **ideal)
    assert four.usage.sum(axis=1).tolist() == [400.0, 100.0, 100.0]


def test_stock_pulsar_drops_reports_older_than_two_intervals() -> None:
    demand = np.full((6, 2), 80.0)
    late = Network(delay_rounds=3)
    run = run_loop(demand, StockProportional(2), 100.0, network=late, throttled_told=False)
    assert np.isinf(run.limit).all()
