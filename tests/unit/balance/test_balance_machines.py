"""The model of machines: use per byte, idle use, and foreign load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest

from quotabalance.planning.broker_watch import BrokerWatch
from quotabalance.planning.bundle_estimates import BundleEstimates
from quotabalance.planning.cluster_load import ClusterLoad
from quotabalance.planning.load_model import MachineModel
from quotabalance.planning.options import BalanceOptions
from tests.unit.balance.balance_cases import bundle, cluster, once

PER_BYTE = 4.0
LIMIT = 1600.0


def machines(
    carried: Mapping[str, float], idle: float = 0.0, foreign: Mapping[str, float] | None = None
) -> ClusterLoad:
    """Brokers with 10 equal bundles each, whose processors use what they explain and more."""
    use = {
        name: idle + PER_BYTE * load + (foreign or {}).get(name, 0.0)
        for name, load in carried.items()
    }
    return cluster(
        {name: [load / 10] * 10 if load else [] for name, load in carried.items()},
        cpu={name: (one, LIMIT) for name, one in use.items()},
    )


def learned(load: ClusterLoad) -> MachineModel:
    everybody = np.ones(len(load.brokers), np.bool_)
    return MachineModel.empty().aligned(tuple(load.brokers)).learned(load, everybody)


@pytest.mark.parametrize("idle", [0.0, 40.0])
@pytest.mark.parametrize("barely", [0.0, 4.0, 7.0])
def test_the_use_of_a_barely_used_broker_is_not_all_idle_use(idle: float, barely: float) -> None:
    model = learned(machines({"b1": 100.0, "b2": 110.0, "b3": 90.0, "new": barely}, idle))
    assert model.idle[0] == pytest.approx(idle, abs=1e-6)
    per_unit, _ = model.use_per_unit()
    assert per_unit[0] == pytest.approx(PER_BYTE)


def test_foreign_load_on_a_barely_used_broker_is_idle_use_only_if_all_have_it() -> None:
    carried = {"b1": 100.0, "b2": 110.0, "b3": 90.0, "new": 4.0, "newer": 5.0}
    model = learned(machines(carried, foreign={"new": 300.0}))
    assert model.idle[0] == pytest.approx(0.0, abs=1e-6)


def test_brokers_that_handed_bundles_over_are_known_until_both_are_measured_again() -> None:
    brokers = ("b1", "b2", "b3")
    names = [bundle(2 * number) for number in range(9)]
    held = {
        name: dict.fromkeys(names[3 * at : 3 * at + 3], 10.0) for at, name in enumerate(brokers)
    }
    load = cluster(held)
    known, _ = BundleEstimates.empty().aligned(load)
    assert not BundleEstimates.empty().handed_over(load).any()
    assert not known.handed_over(load).any()
    moved = {**held, "b1": dict.fromkeys(names[:2], 10.0)}
    moved["b2"] = held["b2"] | {names[2]: 10.0}
    after = cluster(moved)
    assert known.handed_over(after).tolist() == [True, True, False]
    gone = cluster({**held, "b3": dict.fromkeys(names[6:8], 10.0)})
    assert known.handed_over(gone).tolist() == [False, False, True]
    new = cluster({**held, "b3": held["b3"] | {bundle(100): 10.0}})
    assert known.handed_over(new).tolist() == [False, False, True]
    everything = np.ones(len(names), np.bool_)
    measured = known.aligned(after)[0].sampled(after, everything)
    assert not measured.handed_over(after).any()


def test_a_processor_measured_before_a_bundle_left_is_no_foreign_load() -> None:
    """The broker's processor was measured with bundles that have left since."""
    carried = {f"b{number}": 100.0 for number in range(6)}
    load = machines(carried)
    state = None
    for minute in range(6):
        state, _ = once(load, None, state, 60.0 * minute)
    assert state is not None
    owner = load.owner.copy()
    owner[:5] = 1  # half of what the first broker had; its processor is as before
    moved = ClusterLoad(load.brokers, load.usage, load.limit, load.bundles, owner, load.rates)
    state, _ = once(moved, None, state, 360.0)
    assert state.machines.residual[:, 0] == pytest.approx(np.zeros(6), abs=1e-6)


@pytest.mark.parametrize(("later_s", "counts"), [(-3600.0, True), (-5.0, False), (60.0, True)])
def test_numbers_of_a_clock_that_was_set_back_count(later_s: float, counts: bool) -> None:
    """Else the balancer would know nothing of that broker until the clock is where it was."""
    empty = BrokerWatch.empty().aligned(("b",))
    watch = replace(empty, counted_at_s=np.array([10_000.0]))
    same, measured = np.zeros(1, np.bool_), np.array([10_000.0 + later_s])
    assert watch.fresh(measured, same, BalanceOptions()).tolist() == [counts]
