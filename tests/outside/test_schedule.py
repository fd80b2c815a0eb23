"""Which faults happen when."""

from __future__ import annotations

import itertools

from tests.outside import plugin_lanes
from tests.outside.kafka_lanes import lanes
from tests.outside.plugin_lanes import LEASE_S
from tests.outside.schedule import FIRST_S, schedule

LASTS_S = 500.0


def test_a_seed_always_gives_the_same_faults() -> None:
    assert schedule(7, lanes(), LASTS_S) == schedule(7, lanes(), LASTS_S)
    assert schedule(7, lanes(), LASTS_S) != schedule(8, lanes(), LASTS_S)


def test_no_fault_lasts_into_the_quiet_time() -> None:
    for seed in range(50):
        faults = schedule(seed, lanes(), LASTS_S)
        assert max(fault.at_s + fault.for_s for fault in faults) <= LASTS_S
        assert min(fault.at_s for fault in faults) >= FIRST_S


def test_faults_of_a_process_do_not_overlap() -> None:
    for seed in range(50):
        ends: dict[str, float] = {}
        for fault in schedule(seed, lanes(), LASTS_S):
            if fault.kind in ("kill", "freeze"):
                assert fault.at_s >= ends.get(fault.target, 0.0)
                ends[fault.target] = fault.at_s + fault.for_s


def test_all_kinds_happen_and_quotas_always_change() -> None:
    seen: set[str] = set()
    for seed in range(50):
        kinds = {fault.kind for fault in schedule(seed, lanes(), LASTS_S)}
        assert {"put", "want"} <= kinds
        seen |= kinds
    process = {"kill", "freeze", "replace", "freeze and replace", "twin", "new checkpoint"}
    network = {"delay", "cut", "half-open", "trickle", "silence"}
    assert seen == {"put", "want", "clock", "table away", "access"} | process | network


def test_one_of_three_controllers_is_down_at_a_time_and_some_leases_end() -> None:
    longest_s = 0.0
    for seed in range(50):
        faults = schedule(seed, plugin_lanes.lanes(), LASTS_S)
        downs = [fault for fault in faults if fault.target in plugin_lanes.BROKERS]
        downs = [fault for fault in downs if fault.kind in ("kill", "freeze")]
        for earlier, later in itertools.pairwise(downs):
            assert later.at_s >= earlier.at_s + earlier.for_s
        cuts = (fault.for_s for fault in faults if fault.target.startswith("plugin of"))
        longest_s = max(longest_s, *cuts)
    assert longest_s > LEASE_S
