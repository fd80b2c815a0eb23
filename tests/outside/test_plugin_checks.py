"""The checks of runs with the plugin find what they are for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import numpy as np
import pytest

from quotaplane.model import FloatArray
from tests.outside.checks import violations
from tests.outside.journal import Published, Put
from tests.outside.planted import IN_ANY_RUN
from tests.outside.plugin_checks import (
    PLUGIN_CHECKS,
    bound,
    longest_mute_ms,
    longest_pause_ms,
    may_be_in_force,
    most_of_bound,
    most_of_quota,
    recovered_ms,
)
from tests.outside.plugin_evidence import SLOT_MS, Disturbance, PluginEvidence, Wait

BEGUN_MS, QUIET_MS, END_MS = 1_000_000, 1_100_000, 1_160_000
LEASE_MS: Final = 20_000
GROUP, FREE = "acme", "free"
BROKERS: Final = ("broker-1", "broker-2")
A, B = ((GROUP, broker) for broker in BROKERS)
QUOTA: Final = 1_000_000.0
KILLED: Final = Disturbance("broker-1", 1_040_000, 1_050_000)
CUT_OFF: Final = Disturbance("plugin of broker-1", 1_040_000, 1_075_000)
JOB_AWAY: Final = Disturbance("job", 1_040_000, 1_050_000)


def _flat(per_s: float) -> FloatArray:
    return np.full((END_MS - BEGUN_MS) // SLOT_MS, per_s * SLOT_MS / 1000)


def _with(per_s: float, from_ms: int, to_ms: int, other: float) -> FloatArray:
    """A rate, but for a time in which it was another one."""
    rates = _flat(per_s)
    rates[(from_ms - BEGUN_MS) // SLOT_MS : (to_ms - BEGUN_MS) // SLOT_MS] = other / 10
    return rates


def _limit(broker: str, limit: float, t_ms: int) -> Published:
    return Published(0, t_ms, broker, GROUP, 1, t_ms, t_ms, LEASE_MS, 0, limit, QUOTA / 2)


def _published(
    limit: Callable[[str, int], float] = lambda broker, t_ms: QUOTA / 2, without: range = range(0)
) -> list[Published]:
    """Limits each 5 s, by broker and time, but for those within a range."""
    times = [t_ms for t_ms in range(BEGUN_MS - 1000, END_MS, 5000) if t_ms not in without]
    return [_limit(b, limit(b, t_ms), t_ms) for t_ms in times for b in BROKERS]


def _cut(broker: str, t_ms: int) -> float:
    """A limit that is cut to the half at 1,029 s."""
    return QUOTA if broker == "broker-1" and t_ms < 1_029_000 else QUOTA / 2


def _run(**changes: Any) -> PluginEvidence:
    """Two brokers share a quota evenly; a client without a quota gets what it wants."""
    run = PluginEvidence(
        quotas={GROUP: QUOTA},
        table={GROUP: QUOTA},
        lease_ms=LEASE_MS,
        begun_ms=BEGUN_MS,
        faults_end_ms=QUIET_MS,
        end_ms=END_MS,
        fallback=QUOTA,
        wanted={**dict.fromkeys((A, B), _flat(QUOTA)), (FREE, "broker-1"): _flat(5e4)},
        used={**dict.fromkeys((A, B), _flat(QUOTA / 2)), (FREE, "broker-1"): _flat(5e4)},
        waits=[Wait(A, BEGUN_MS, BEGUN_MS + 4_900)],
        disturbed=[],
        published=_published(),
    )
    return replace(run, **changes)


def _used(rates: FloatArray) -> dict[str, Any]:
    """Use of the group at broker-1."""
    return {"used": {**_run().used, A: rates}}


def test_nothing_is_found_in_a_run_in_which_everything_holds() -> None:
    assert violations(_run(), PLUGIN_CHECKS) == []
    assert recovered_ms(_run(), GROUP) == 0
    assert most_of_bound(_run(), GROUP)[0] == pytest.approx(1 / 1.3)
    assert most_of_quota(_run(), GROUP) == pytest.approx(1.0)
    assert longest_mute_ms(_run()) == 4_900


LATE: Final = _with(QUOTA / 2, QUIET_MS, QUIET_MS + 45_000, QUOTA / 4)
PLANTED: dict[str, tuple[str, dict[str, Any]]] = {
    "less than the quota": ("recovered", _used(_with(QUOTA / 2, QUIET_MS, END_MS, QUOTA / 4))),
    "late": ("recovered", _used(LATE)),
    "less than is wanted": (
        "recovered",
        {
            "wanted": {**_run().wanted, A: _flat(QUOTA / 4), B: _flat(QUOTA / 2)},
            **_used(_with(QUOTA / 2, QUIET_MS, END_MS, QUOTA / 8)),
        },
    ),
    "without a limit for a moment": (
        "obeyed",
        _used(_with(QUOTA / 2, 1_030_000, 1_035_000, 0.8 * QUOTA)),
    ),
    "the old limit after a cut": (
        "obeyed",
        {
            "published": _published(_cut),
            **_used(_with(QUOTA / 2, 1_034_000, 1_039_000, QUOTA)),
        },
    ),
    "the limits exceed the quota": (
        "bounded",
        {"published": _published(lambda broker, t_ms: QUOTA)}
        | _used(_with(QUOTA / 2, 1_030_000, 1_045_000, QUOTA)),
    ),
    "mute": ("nobody mute", {"waits": [Wait(A, 1_010_000, 1_015_100)]}),
    "mute long after a restart": (
        "nobody mute",
        {"waits": [Wait(A, 1_041_000, 1_060_100)], "disturbed": [KILLED]},
    ),
    "a client without a quota": (
        "others lose nothing",
        {"used": {**_run().used, (FREE, "broker-1"): _flat(4.9e4)}},
    ),
    "a pause": ("job goes on", {"published": _published(without=range(1_040_000, 1_055_000))}),
    "quota lost": ("nothing lost", {"puts": [Put(END_MS, END_MS, GROUP, 3.0, True)]}),
    **IN_ANY_RUN,
}


@pytest.mark.parametrize("planted", PLANTED)
def test_what_does_not_hold_is_found(planted: str) -> None:
    check, changes = PLANTED[planted]
    assert {violation.check for violation in violations(_run(**changes), PLUGIN_CHECKS)} == {check}


def test_each_check_finds_something() -> None:
    runs = [_run(**changes) for _, changes in PLANTED.values()]
    assert all(any([*check(run)] for run in runs) for check in PLUGIN_CHECKS)


def test_a_job_that_is_away_may_pause() -> None:
    published = _published(without=range(1_040_000, 1_055_000))
    assert violations(_run(published=published, disturbed=[JOB_AWAY]), PLUGIN_CHECKS) == []
    assert longest_pause_ms(_run()) == (5_000, BEGUN_MS - 1000 + 155_000)


def test_a_broker_that_is_gone_may_keep_clients_waiting_until_they_are_connected() -> None:
    around = [Wait(A, 1_041_000, 1_054_000)]
    assert violations(_run(waits=around, disturbed=[KILLED]), PLUGIN_CHECKS) == []
    assert longest_mute_ms(_run(waits=around, disturbed=[CUT_OFF])) == 13_000


def _force(run: PluginEvidence, t_ms: int) -> float:
    return float(may_be_in_force(run, *A)[run.slot(t_ms)])


def test_a_broker_that_is_cut_off_has_its_last_limit_until_the_lease_end() -> None:
    limits = [_limit("broker-1", QUOTA, 1_030_000), _limit("broker-1", 1.0, 1_041_000)]
    run = _run(published=limits, disturbed=[CUT_OFF])
    assert _force(run, 1_049_000) == QUOTA
    assert _force(run, 1_055_000) == QUOTA / 2  # the safe limit
    assert _force(_run(published=limits), 1_045_000) == QUOTA / 2


def test_a_broker_that_starts_has_the_fallback_until_it_must_have_read_limits() -> None:
    run = _run(disturbed=[KILLED], fallback=0.9 * QUOTA)
    assert _force(run, 1_052_000) == 0.9 * QUOTA
    assert _force(run, 1_070_000) == QUOTA / 2


def test_the_bound_is_higher_while_brokers_have_limits_that_nobody_can_take_back() -> None:
    calm_ms, near_ms = 1_010_000, 1_060_000
    assert bound(_run(disturbed=[CUT_OFF]), GROUP, calm_ms) == 1.3 * QUOTA
    assert bound(_run(disturbed=[CUT_OFF]), GROUP, near_ms) == 2 * QUOTA
    assert bound(_run(disturbed=[JOB_AWAY]), GROUP, near_ms) == 2 * QUOTA
    assert bound(_run(disturbed=[KILLED]), GROUP, near_ms) == 2 * QUOTA + QUOTA


def test_a_lowered_quota_counts_no_more_once_it_is_in_force() -> None:
    put = Put(1_020_000, 1_021_000, GROUP, QUOTA / 2, True)
    assert bound(_run(puts=[put]), GROUP, 1_025_000) == 1.3 * QUOTA
    assert bound(_run(puts=[put]), GROUP, 1_032_000) == 1.3 * QUOTA / 2
    assert bound(_run(puts=[put], disturbed=[JOB_AWAY]), GROUP, 1_060_000) == 2 * QUOTA
