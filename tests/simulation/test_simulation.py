"""A short version of the simulation for every commit; ``make chaos`` runs the long one."""

from __future__ import annotations

import re

import pytest

from tests.examples import in_soak
from tests.simulation.planting import planted
from tests.simulation.run import BUGS, ENFORCER_PLANTED, run_seed, seeds_to_find
from tests.unit.pages import ROOT


def _listed() -> dict[str, str]:
    """By planted bug, its first seed or why there is none, as docs/explain/simulation.md says."""
    text = (ROOT / "docs/explain/simulation.md").read_text()
    return dict(re.findall(r"^\| .* \(`(\w+)`\) \| (.*) \|$", text, re.MULTILINE))


LISTED = _listed()
FOUND = {bug: int(seed) for bug, seed in LISTED.items() if seed.isdecimal()}


@pytest.mark.parametrize("enforcer", [False, True], ids=["job", "enforcer"])
def test_no_invariant_is_violated(enforcer: bool) -> None:
    result = run_seed(6, chaos_rounds=15, enforcer=enforcer)
    assert result.failure is None, result.failure


@pytest.mark.parametrize("seed", in_soak(*range(100)))
@pytest.mark.parametrize("enforcer", [False, True], ids=["job", "enforcer"])
def test_no_invariant_is_violated_in_long_runs(enforcer: bool, seed: int) -> None:
    result = run_seed(seed, enforcer=enforcer)
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


def test_each_planted_bug_is_listed() -> None:
    assert LISTED.keys() == BUGS.keys()
    assert all(0 <= seed < 2000 for seed in FOUND.values())


@pytest.mark.parametrize("bug", ["published_before_history", "no_default_rates"])
def test_a_planted_bug_is_found(bug: str) -> None:
    found = seeds_to_find(bug, range(FOUND[bug], FOUND[bug] + 1))
    assert found is not None
    assert "python -m tests.simulation.run" in found[1]


@pytest.mark.parametrize("bug", in_soak(*sorted(FOUND)))
def test_each_planted_bug_is_found_from_its_seed_on(bug: str) -> None:
    # By that seed itself, until a change of the step or of the scenarios changes what seeds do.
    found = seeds_to_find(bug, range(FOUND[bug], FOUND[bug] + 300))
    assert found is not None
    seed, _ = found
    # Without the bug the same run is in order.
    enforcer = bug in ENFORCER_PLANTED
    assert run_seed(seed, settles=BUGS[bug].at_end, enforcer=enforcer).failure is None
