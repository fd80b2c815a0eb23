"""A short version of the simulation for every commit; ``make chaos`` runs the long one."""

from __future__ import annotations

import pytest

from tests.examples import in_soak
from tests.simulation.planting import planted
from tests.simulation.run import BUGS, run_seed, seeds_to_find


def test_no_invariant_is_violated() -> None:
    result = run_seed(6, chaos_rounds=15)
    assert result.failure is None, result.failure


@pytest.mark.parametrize("seed", in_soak(*range(100)))
def test_no_invariant_is_violated_in_long_runs(seed: int) -> None:
    result = run_seed(seed)
    assert result.failure is None, result.failure


def test_the_same_seed_gives_the_same_events() -> None:
    first, second = (run_seed(3, 8, settles=False) for _ in range(2))
    assert (first.digest, first.rounds) == (second.digest, second.rounds)
    assert run_seed(4, 8, settles=False).digest != first.digest


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_each_planted_bug_fits_the_code(bug: str) -> None:
    with planted(BUGS[bug]):
        pass


@pytest.mark.parametrize("bug", ["published_before_history", "sum_rounded_up"])
def test_a_planted_bug_is_found(bug: str) -> None:
    found = seeds_to_find(bug, range(1, 2))
    assert found is not None
    assert "python -m tests.simulation.run --seeds" in found[1]
