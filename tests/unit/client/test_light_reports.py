"""A broker's agent names in each report what changed, and everything once in a while."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from quotaplane.client.light_reports import NAMED_EVERY, SETTLED
from quotaplane.errors import TransportError
from quotaplane.model import COUNTER_COLUMNS, group_id
from quotaplane.wire.reports import Decoded
from tests.unit.client.test_client import LEASE_MS, update
from tests.unit.client.test_client_agent import Rig, rates

GROUPS = [f"g{number}" for number in range(40)]


def in_turn(sequence: int) -> set[str]:
    return {name for name in GROUPS if group_id(name) % NAMED_EVERY == sequence % NAMED_EVERY}


def named(found: Decoded) -> set[str]:
    return set(found.entries["group"].to_pylist())


def by_group(found: Decoded, column: str) -> dict[str, float]:
    return dict(
        zip(found.entries["group"].to_pylist(), found.entries[column].to_pylist(), strict=True)
    )


def sequence(found: Decoded) -> int:
    return int(found.headers["sequence"][0].as_py())


class Steady(Rig):
    """An agent with 40 groups that use the same in each report, and have settled."""

    def __init__(self, **options: Any) -> None:
        super().__init__(groups=GROUPS, dimensions=["publish_messages"], **options)
        self.used = np.zeros((len(GROUPS), 8))
        self.used[1:, 0] = 100.0
        self.all = [self.next() for _ in range(1 + SETTLED)]

    def next(self) -> Decoded:
        self.client.use_all(self.used)
        return self.report()

    def limit(self, group: str, rate: float, seq: int = 1) -> None:
        now = {"issued_at_ms": self.now_ms, "lease_ms": 60 * LEASE_MS}
        self.get(update(rate, group=group, seq=seq, **now))

    def changed(self) -> set[str]:
        """Names in the next report that are not there in turn."""
        found = self.next()
        assert found.headers["named_every"].to_pylist() == [NAMED_EVERY]
        assert in_turn(sequence(found)) <= named(found)
        return named(found) - in_turn(sequence(found))


def test_the_first_report_names_all_and_steady_use_settles() -> None:
    rig = Steady()
    assert named(rig.all[0]) == {*GROUPS}
    for found in rig.all[1:SETTLED]:
        assert named(found) == {*GROUPS[1:]} | in_turn(sequence(found))  # the first one is idle
    assert rig.changed() == set()


def test_each_group_is_named_once_in_so_many_reports() -> None:
    rig = Steady()
    reports = [rig.next() for _ in range(3 * NAMED_EVERY)]
    for begin in range(2 * NAMED_EVERY):
        several = [named(found) for found in reports[begin : begin + NAMED_EVERY]]
        assert set.union(*several) == {*GROUPS}
    assert sum(map(len, map(named, reports))) == 3 * len(GROUPS)


@pytest.mark.parametrize(
    ("rate", "is_named"),
    [(104, False), (96, False), (106, True), (94, True), (0, True)],
)
def test_use_that_changed_by_more_than_5_percent_is_reported(rate: float, is_named: bool) -> None:
    rig = Steady()
    rig.used[7, 0] = rate
    assert rig.changed() == ({"g7"} if is_named else set())
    if is_named:
        for _ in range(SETTLED - 1):
            assert rig.changed() <= {"g7"}
        assert rig.changed() == set()


def test_small_steps_add_up() -> None:
    rig = Steady()
    rig.used[7, 0] = 103.0
    assert "g7" not in rig.changed()
    rig.used[7, 0] = 106.0
    assert "g7" in rig.changed() | in_turn(rig.client._reporter.sequence)  # of what was said


def test_an_idle_group_that_wakes_is_reported() -> None:
    rig = Steady()
    rig.used[0, 0] = 1.0
    assert rig.changed() == {"g0"}


def test_what_is_held_back_is_in_each_report() -> None:
    rig = Steady()
    for _ in range(2 * SETTLED):
        rig.client.refuse("g3", publish_messages=10)
        assert "g3" in named(rig.next())
    for _ in range(SETTLED):
        assert rig.changed() <= {"g3"}  # it no longer is
    assert rig.changed() == set()


def test_without_counts_of_refusals_use_near_the_limit_counts_as_held_back() -> None:
    rig = Steady(counts_refused=False)
    rig.limit("g3", 105.0)
    rig.limit("g4", 200.0)
    assert rig.changed() == {"g3", "g4"}  # the limit is new
    for _ in range(SETTLED, 2 * SETTLED):
        assert rig.changed() <= {"g3"}


def test_a_new_limit_is_acknowledged_and_a_renewed_one_only_if_strict() -> None:
    for strict in (False, True):
        rig = Steady(strict=strict)
        rig.used[:] = 0.0  # strict allows nothing without a limit
        for _ in range(SETTLED):
            rig.next()
        rig.limit("g3", 500.0, seq=5)
        found = rig.next()
        assert "g3" in named(found)
        assert by_group(found, "applied_seq")["g3"] == 5
        rig.limit("g3", 500.0, seq=6)
        assert rig.changed() == ({"g3"} if strict else set())


def test_limits_are_said_of_all_groups_that_are_named() -> None:
    """A job that starts without its state takes them from there."""
    rig = Steady()
    rig.limit("g3", 500.0)
    found = rig.next()
    assert by_group(found, "limit_publish_messages_per_s")["g3"] == 500.0
    rig.now_ms += 61 * LEASE_MS  # the safe limit is another one
    assert "g3" in rig.changed()


def test_a_report_that_was_not_sent_is_made_up_for() -> None:
    rig = Steady()
    rig.used[7, 0] = 50.0
    lost = in_turn(rig.client._reporter.sequence + 1)
    rig.link.fails = TransportError("down")
    with pytest.raises(TransportError):
        rig.next()
    rig.link.fails = None
    assert {"g7"} | lost <= named(rig.report())


def test_a_detached_group_is_named_once_more_as_unused_and_counted_whole() -> None:
    rig = Steady()
    rig.client.use("g7", publish_messages=5)
    rig.client.detach(["g7"])
    rig.used = np.delete(rig.used, 7, axis=0)
    found = rig.next()
    assert rates(found, "g7") == {"publish_messages_per_s": 0.0}
    counters = rates(found, "g7", COUNTER_COLUMNS)
    assert counters == {"counter_publish_messages": 100.0 * (1 + SETTLED) + 5}
    for _ in range(NAMED_EVERY):
        assert "g7" not in named(rig.next())
    rig.client.attach(["g7"])
    rig.used = np.concatenate([rig.used, [[10.0, *[0.0] * 7]]])
    found = rig.next()
    assert rates(found, "g7") == {"publish_messages_per_s": 10.0}
    assert rates(found, "g7", COUNTER_COLUMNS)["counter_publish_messages"] == 3315.0


def test_a_group_that_is_back_before_the_report_is_named_once() -> None:
    rig = Steady()
    rig.client.detach(["g7"])
    rig.client.attach(["g7"])
    rig.used = np.concatenate([np.delete(rig.used, 7, axis=0), rig.used[7:8]])
    assert [*rig.next().entries["group"].to_pylist()].count("g7") == 1


def test_full_reports_name_all() -> None:
    rig = Rig(groups=GROUPS, named_every=0)
    for _ in range(3):
        found = rig.report()
        assert named(found) == {*GROUPS}
        assert "named_every" not in found.headers.column_names
