"""The checks of runs with Pulsar find what they are for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.outside.checks import unknown_ends, violations
from tests.outside.journal import Exit
from tests.outside.planted import IN_ANY_RUN
from tests.outside.pulsar_checks import (
    PULSAR_CHECKS,
    PulsarEvidence,
    kept_from,
    new_topics_p99_ms,
)

QUIET_MS, END_MS = 100_000, 160_000


def _run() -> PulsarEvidence:
    """Two topics with 100 messages a second, of a quota of 200."""
    slots = dict.fromkeys(range(QUIET_MS // 100, END_MS // 100), 10)
    return PulsarEvidence(
        quota=200.0,
        table=200.0,
        lease_ms=20_000,
        faults_end_ms=QUIET_MS,
        end_ms=END_MS,
        acked={"a": dict(slots), "b": dict(slots)},
        unlimited_ms={"a": 0, "b": 900},
        unlimited_looks={"a": [], "b": []},
    )


def test_nothing_is_found_in_a_run_in_which_everything_holds() -> None:
    assert violations(_run(), PULSAR_CHECKS) == []
    assert kept_from(_run()) == 0
    assert new_topics_p99_ms(_run()) == 900


def _more_than_the_quota(run: PulsarEvidence) -> None:
    run.acked["c"] = dict.fromkeys(range(QUIET_MS // 100, END_MS // 100), 5)


def _less_than_the_quota(run: PulsarEvidence) -> None:
    run.acked["b"] = {}


def _late(run: PulsarEvidence) -> None:
    half_ms = QUIET_MS + 45_000
    run.acked["b"] = {at: n for at, n in run.acked["b"].items() if at * 100 >= half_ms}


def _slow_rate(run: PulsarEvidence) -> None:
    run.unlimited_ms["b"] = 1_100


def _no_rate(run: PulsarEvidence) -> None:
    run.unlimited_ms["b"] = None


def _rate_gone(run: PulsarEvidence) -> None:
    run.unlimited_looks["a"].append(QUIET_MS)


def _quota_lost(run: PulsarEvidence) -> None:
    run.table = np.inf


PLANTED: dict[str, tuple[str, Callable[[PulsarEvidence], None]]] = {
    "more than the quota": ("recovered", _more_than_the_quota),
    "less than the quota": ("recovered", _less_than_the_quota),
    "late": ("recovered", _late),
    "slow rate": ("new topics", _slow_rate),
    "no rate": ("new topics", _no_rate),
    "rate gone": ("stays limited", _rate_gone),
    "quota lost": ("nothing lost", _quota_lost),
    **IN_ANY_RUN,
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_does_not_hold_is_found(planted: str) -> None:
    check, plant = PLANTED[planted]
    run = _run()
    plant(run)
    assert {violation.check for violation in violations(run, PULSAR_CHECKS)} == {check}


def test_each_check_finds_something() -> None:
    found = set()
    for _, plant in PLANTED.values():
        run = _run()
        plant(run)
        found |= {check.__name__ for check in PULSAR_CHECKS if [*check(run)]}
    assert found == {check.__name__ for check in PULSAR_CHECKS}


def test_a_job_may_end_as_the_rest_api_is_gone() -> None:
    """With exit code 6 (docs/reference/cli.md); a run with Kafka has no REST API."""
    run = _run()
    run.exits.append(Exit(QUIET_MS, "job", 6, "quotaplane: error: Pulsar's REST API at ..."))
    assert violations(run, PULSAR_CHECKS) == []
    assert [*unknown_ends(run.exits)]
