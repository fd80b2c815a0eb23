"""The checks of runs with Pulsar find what they are for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.outside.checks import unknown_ends, violations
from tests.outside.journal import Exit
from tests.outside.planted import IN_ANY_RUN
from tests.outside.pulsar_checks import PULSAR_CHECKS, PulsarEvidence, kept_from, new_topics_p99_ms

QUIET_MS, END_MS = 100_000, 160_000
SLOTS = dict.fromkeys(range(QUIET_MS // 100, END_MS // 100), 10)


def _run() -> PulsarEvidence:
    """Two topics with 100 messages a second, of a quota of 200."""
    return PulsarEvidence(
        quota=200.0,
        table=200.0,
        lease_ms=20_000,
        faults_end_ms=QUIET_MS,
        end_ms=END_MS,
        acked={"a": SLOTS, "b": SLOTS},
        unlimited_ms={"a": 0, "b": 900},
        unlimited_looks={"a": [], "b": []},
    )


def test_nothing_is_found_in_a_run_in_which_everything_holds() -> None:
    assert violations(_run(), PULSAR_CHECKS) == []
    assert kept_from(_run()) == 0
    assert new_topics_p99_ms(_run()) == 900


LATE = {slot: count for slot, count in SLOTS.items() if slot * 100 >= QUIET_MS + 45_000}
PLANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "more than the quota": ("recovered", {"acked": {"a": SLOTS, "b": SLOTS, "c": SLOTS}}),
    "less than the quota": ("recovered", {"acked": {"a": SLOTS, "b": {}}}),
    "late": ("recovered", {"acked": {"a": SLOTS, "b": LATE}}),
    "slow rate": ("new topics", {"unlimited_ms": {"a": 0, "b": 1_100}}),
    "no rate": ("new topics", {"unlimited_ms": {"a": 0, "b": None}}),
    "rate gone": ("stays limited", {"unlimited_looks": {"a": [QUIET_MS], "b": []}}),
    "quota lost": ("nothing lost", {"table": np.inf}),
    **IN_ANY_RUN,
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_does_not_hold_is_found(planted: str) -> None:
    check, changes = PLANTED[planted]
    run = replace(_run(), **changes)
    assert {violation.check for violation in violations(run, PULSAR_CHECKS)} == {check}


def test_each_check_finds_something() -> None:
    runs = [replace(_run(), **changes) for _, changes in PLANTED.values()]
    assert all(any([*check(run)] for run in runs) for check in PULSAR_CHECKS)


def test_a_job_may_end_as_the_rest_api_is_gone() -> None:
    """With exit code 6 (docs/reference/cli.md); a run with Kafka has no REST API."""
    run = _run()
    run.exits.append(Exit(QUIET_MS, "job", 6, "quotaplane: error: Pulsar's REST API at ..."))
    assert violations(run, PULSAR_CHECKS) == []
    assert [*unknown_ends(run.exits)]
