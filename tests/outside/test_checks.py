"""The checks find what they are for: for each one a run in which that does not hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from tests.outside.checks import (
    CHECKS,
    CLOCKS_MS,
    ceilings,
    promised_ms,
    served_from,
    share_in_force,
    violations,
)
from tests.outside.journal import Evidence, Held, Look, Published, Put, read_journal
from tests.outside.planted import IN_ANY_RUN

LEASE_MS, STALE_MS, BEGIN_MS = 10_000, 2_000, 100_000
LATER_MS = BEGIN_MS + 2 * LEASE_MS
"""The promise of strict holds by then."""
END_MS = LATER_MS + 40_000


def _published(agent: str, seq: int, t_ms: int, limit: float, epoch: int = 1) -> Published:
    issued = (t_ms, LEASE_MS, 1)
    return Published(seq, t_ms, agent, "g", epoch, seq, *issued, limit, 0.0)


def _look(t_ms: int, of: Published, limit: float | None = None) -> Look:
    until_ms = of.issued_at_ms + of.lease_ms
    held = Held(of.limit if limit is None else limit, until_ms, of.epoch, of.seq)
    return Look(t_ms, 1, {"g": held}, {"g": 100.0})


def _run() -> Evidence:
    """A run of two agents with 50 of 100 each, renewed every 5 s, in which everything holds."""
    evidence = Evidence(
        quotas={"g": 100.0},
        lease_ms=LEASE_MS,
        stale_ms=STALE_MS,
        faults_end_ms=LATER_MS,
        end_ms=END_MS,
        looks={"a": [], "b": []},
        table={"g": 100.0},
    )
    for seq, t_ms in enumerate(range(BEGIN_MS, END_MS, 5_000)):
        for agent in ("a", "b"):
            message = _published(agent, seq, t_ms, 50.0)
            evidence.published.append(message)
            evidence.looks[agent] += [_look(t_ms + after, message) for after in (50, 2_000)]
    return evidence


def _checks_that_fail(evidence: Evidence) -> set[str]:
    return {violation.check for violation in violations(evidence)}


def test_nothing_is_found_in_a_run_in_which_everything_holds() -> None:
    assert violations(_run()) == []
    assert served_from(_run()) == 0


def test_how_much_was_seen_of_limits_in_force() -> None:
    run = _run()
    assert 0.99 < share_in_force(run) <= 1.0
    # Nothing new arrives any more: what holds ends with its lease.
    half_ms = (BEGIN_MS + END_MS) // 2
    for agent, looks in run.looks.items():
        run.looks[agent] = [look for look in looks if look.t_ms < half_ms]
    assert 0.5 < share_in_force(run) < 0.7
    assert share_in_force(replace(run, published=[])) == 0.0


def _more_than_the_quota(run: Evidence) -> None:
    message = _published("c", 3, LATER_MS, 1.0)
    run.published.append(message)
    run.looks["c"] = [_look(LATER_MS, message)]


def _lease_end_ignored(run: Evidence) -> None:
    look = run.looks["a"][2]
    run.looks["a"][3:] = [look._replace(t_ms=look.held["g"].until_ms + 1_000)]


def _two_contents(run: Evidence) -> None:
    run.published.append(run.published[-1]._replace(limit=49.0))


def _renewed_lease_of_one_version(run: Evidence) -> None:
    run.published.append(run.published[-1]._replace(issued_at_ms=END_MS))


def _deposed_goes_on(run: Evidence) -> None:
    run.published.insert(6, run.published[6]._replace(epoch=2, seq=0))


def _older_obeyed(run: Evidence) -> None:
    run.looks["b"].append(run.looks["b"][-3]._replace(t_ms=END_MS - 1))


def _not_published(run: Evidence) -> None:
    run.published = [each for each in run.published if (each.broker, each.seq) != ("a", 4)]


def _not_served(run: Evidence) -> None:
    at_ms = LATER_MS + 2 * LEASE_MS
    run.looks["a"] = [look for look in run.looks["a"] if look.t_ms < at_ms]


PLANTED: dict[str, tuple[str, Callable[[Evidence], None] | dict[str, Any]]] = {
    "more than the quota": ("strict", _more_than_the_quota),
    "lease end ignored": ("as published", _lease_end_ignored),
    "two contents": ("one content", _two_contents),
    "renewed lease of one version": ("one content", _renewed_lease_of_one_version),
    "deposed goes on": ("one leader", _deposed_goes_on),
    "older obeyed": ("newest obeyed", _older_obeyed),
    "not published": ("as published", _not_published),
    "not served": ("recovered", _not_served),
    "quota not used up": ("recovered", {"table": {"g": 130.0}, "quotas": {"g": 130.0}}),
    "quota lost": ("nothing lost", {"puts": [Put(BEGIN_MS, BEGIN_MS + 900, "g", 101.0, True)]}),
    "table empty": ("nothing lost", {"table": {}}),
    **IN_ANY_RUN,
}
"""By what it is: the check that must find it, and what plants it, or the changed evidence."""


@pytest.mark.parametrize("planted", PLANTED)
def test_what_does_not_hold_is_found(planted: str) -> None:
    check, plant = PLANTED[planted]
    run = replace(_run(), **plant) if isinstance(plant, dict) else _run()
    if callable(plant):
        plant(run)
    assert check in _checks_that_fail(run)


def test_each_check_finds_something() -> None:
    names = {check.__name__.replace("_", " ") for check in CHECKS}
    assert {check for check, _ in PLANTED.values()} == names


def test_a_frozen_agent_holds_its_limit_until_the_lease_end_only() -> None:
    run = _run()
    message = _published("c", 3, LATER_MS - LEASE_MS, 40.0)
    run.published.append(message)
    # It looked before, and next when the lease had been over for long.
    run.looks["c"] = [_look(LATER_MS - 8_000, message), _look(END_MS - 1, message, limit=0.0)]
    assert "strict" in _checks_that_fail(run)
    for agent in ("a", "b"):
        run.looks[agent] = [look for look in run.looks[agent] if look.t_ms >= LATER_MS]
    assert "strict" not in _checks_that_fail(run)


def test_strict_promises_nothing_while_an_epoch_learns() -> None:
    run = _run()
    _more_than_the_quota(run)
    judged_ms = promised_ms(run)
    run.published.append(_published("a", 0, LATER_MS, 50.0, epoch=2))
    assert "strict" not in _checks_that_fail(run)
    # It learns until the newest lease of the epoch before is over, which is after the end here.
    assert judged_ms == END_MS - BEGIN_MS - LEASE_MS - STALE_MS - CLOCKS_MS
    assert promised_ms(run) == LATER_MS - 1_000 - (END_MS - judged_ms)


def test_a_lowered_quota_counts_two_leases_later() -> None:
    run = _run()
    run.puts = [Put(LATER_MS, LATER_MS + 900, "g", 80.0, acknowledged=True)]
    run.table["g"] = 80.0
    settled_ms = LATER_MS + 900 + 2 * LEASE_MS + STALE_MS
    first = min(v.t_ms for v in violations(run) if v.check == "strict")
    assert settled_ms <= first < settled_ms + 5_000


def test_a_put_that_failed_may_have_been_made() -> None:
    run = _run()
    run.puts = [Put(LATER_MS, LATER_MS + 900, "g", 80.0, acknowledged=False)]
    assert violations(run) == []
    assert violations(replace(run, table={"g": 80.0})) == []
    assert {quota for _, _, quota in ceilings(run, "g")} == {100.0, 80.0}


def test_a_journal_of_a_process_that_was_killed_amid_a_line() -> None:
    line = '{"t": 5, "off": 2, "start": 1, "demand": {}, "limits": {"g": [7.0, 12, 3, 4]}}\n'
    ended = '{"t": 6, "end": true}\n'
    looks = read_journal([line, ended, line[:20]])
    assert looks[0].held == {"g": Held(7.0, 10, 3, 4)}
    assert [look.ended for look in looks] == [False, True]
