"""A short version of the simulation for every commit; ``make nightly`` runs the long one."""

from __future__ import annotations

import pytest

from tests.examples import in_nightly
from tests.simulation.planting import planted
from tests.simulation.run import BUGS, ENFORCER_PLANTED, run_seed, seeds_to_find


@pytest.mark.parametrize(
    ("seed", "rounds", "enforcer"),
    [
        pytest.param(6, 15, False, id="job"),
        pytest.param(6, 15, True, id="enforcer"),
        # Each finds several of the bugs against which strict is proved.
        pytest.param(1, None, False, id="strict, lost states"),
        pytest.param(7, None, False, id="strict, lost messages"),
        pytest.param(36, None, False, id="strict after fast"),
    ],
)
def test_no_invariant_is_violated(seed: int, rounds: int | None, enforcer: bool) -> None:
    result = run_seed(seed, rounds, enforcer=enforcer)
    assert result.failure is None, result.failure


@pytest.mark.parametrize("enforcer", [False, True], ids=["job", "enforcer"])
def test_the_same_seed_gives_the_same_events(enforcer: bool) -> None:
    first, second, other = (
        run_seed(seed, 8, settles=False, enforcer=enforcer) for seed in (3, 3, 4)
    )
    assert (first.digest, first.rounds) == (second.digest, second.rounds)
    assert other.digest != first.digest


@pytest.mark.parametrize("bug", sorted(BUGS))
def test_each_planted_bug_fits_the_code(bug: str) -> None:
    with planted(BUGS[bug]):
        pass


@pytest.mark.parametrize("bug", ["published_before_history", "no_default_rates"])
def test_a_planted_bug_is_found(bug: str) -> None:
    first = BUGS[bug].first_seed
    found = seeds_to_find(bug, range(first, first + 1))
    assert found is not None
    assert "python -m tests.simulation.run" in found[1]


@pytest.mark.parametrize("bug", in_nightly(*sorted(BUGS)))
def test_each_planted_bug_is_found_from_its_seed_on(bug: str) -> None:
    # By that seed itself, until a change of the step or of the scenarios changes what seeds do.
    first = BUGS[bug].first_seed
    found = seeds_to_find(bug, range(first, first + 300))
    assert found is not None
    seed, _ = found
    # Without the bug the same run is in order.
    enforcer = bug in ENFORCER_PLANTED
    assert run_seed(seed, settles=BUGS[bug].at_end, enforcer=enforcer).failure is None
