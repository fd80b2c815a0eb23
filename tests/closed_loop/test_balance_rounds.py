"""The balancer in a closed loop: noise, steps, drains, missed orders."""

from __future__ import annotations

import numpy as np
import pytest

from quotabalance.planning.options import BalanceOptions
from tests.closed_loop.balance_loop import BalanceLoop, balanced_owner


def sizes(kind: str, seed: int, bundles: int = 300) -> np.ndarray:
    random = np.random.default_rng(seed)
    if kind == "uniform":
        return random.uniform(0.5, 1.5, bundles) * 1e6
    if kind == "lognormal":
        return random.lognormal(0, 1, bundles) * 1e6
    return random.permutation(1 / np.arange(1, bundles + 1) ** 0.6) * 1e7


KINDS = pytest.mark.parametrize("kind", ["uniform", "lognormal", "zipf"])


@KINDS
@pytest.mark.parametrize("sigma", [0.1, 0.5])
def test_noise_alone_moves_nothing(kind: str, sigma: float) -> None:
    truth = sizes(kind, 1)
    loop = BalanceLoop(truth, balanced_owner(truth, 10), 10, sigma=sigma, with_limits=True)
    assert loop.run(60).moves() == 0


@pytest.mark.nightly
@KINDS
@pytest.mark.parametrize("seed", range(10))
def test_noise_alone_moves_nothing_in_three_hours(kind: str, seed: int) -> None:
    truth = sizes(kind, seed)
    owner = balanced_owner(truth, 10)
    truth = np.where(owner == 0, truth * 1.1, truth)  # a little uneven, below the start
    loop = BalanceLoop(truth, owner, 10, sigma=0.5, seed=seed, with_limits=seed % 2 == 0)
    assert loop.run(180).moves() == 0


@pytest.mark.parametrize(("sigma", "rounds"), [(0.0, 3), (0.1, 5)])
def test_a_step_is_answered_in_a_few_rounds_and_then_there_is_peace(
    sigma: float, rounds: int
) -> None:
    truth = sizes("uniform", 2)
    loop = BalanceLoop(truth, balanced_owner(truth, 10), 10, sigma=sigma, with_limits=True)
    loop.run(15)
    loop.truth = np.where(loop.owner == 0, truth * 1.6, truth)
    assert loop.ratio() > 1.45
    assert loop.run(rounds).ratio() <= 1.15
    excess = 1.6 - 1.1 * 1.06
    assert loop.bytes_moved() <= 1.3 * excess / 10.6
    before = loop.moves()
    assert loop.run(40).moves() == before


def test_a_new_broker_is_filled_without_a_repeated_move() -> None:
    truth = sizes("lognormal", 3)
    owner = np.random.default_rng(3).integers(0, 9, len(truth))
    loop = BalanceLoop(truth, owner, 10, sigma=0.1, with_limits=True)
    loop.run(29)
    assert loop.ratio() <= 1.16
    moved = [move.bundle for decided in loop.decided for move in decided.moves]
    assert len(moved) == len(set(moved))


def test_a_drain_in_noise_ends_and_nothing_comes_back() -> None:
    truth = sizes("uniform", 4)
    options = BalanceOptions(max_moves_per_round=8)
    loop = BalanceLoop(truth, balanced_owner(truth, 10), 10, options=options, sigma=0.3)
    loop.draining = [3]
    loop.run(8)
    assert not (loop.owner == 3).any()
    assert loop.ratio() < 10 / 9 * 1.15
    assert loop.moves() == 30


def test_missed_orders_are_tried_again_and_in_the_end_done() -> None:
    truth = sizes("uniform", 5)
    owner = balanced_owner(truth, 10)
    loop = BalanceLoop(np.where(owner == 0, truth * 1.8, truth), owner, 10)
    loop.executes = lambda minute, _bundle: minute >= 10
    loop.run(10)
    assert loop.ratio() > 1.6
    assert any(skip.label == "Missed" for decided in loop.decided for skip in decided.skips)
    assert loop.run(15).ratio() <= 1.15


def test_foreign_load_is_found_and_balanced_around() -> None:
    truth = np.full(60, 1e7)
    loop = BalanceLoop(truth, np.arange(60) % 6, 6, sigma=0.1, with_limits=True)
    loop.foreign = np.array([0.1, 0, 0, 0, 0, 0])
    loop.run(20)
    assert loop.ratio() <= 1.16
    assert {move.source for decided in loop.decided for move in decided.moves} == {"b0000"}
