"""``transition: strict``: limits in force never add up to more than the quota, at no instant.

The limits in force are added up after every step of ``strict_chaos``.
"""

from __future__ import annotations

import numpy as np
import pytest

from quotaplane.model import BASIC
from quotaplane.sim.broker_fleet import BrokerSpec
from quotaplane.sim.broker_throttle import SLOTS_PER_S, BrokerThrottle
from quotaplane.throttle.terms import ThrottleTerms
from quotaplane.throttle.types import ThrottleMode
from tests.closed_loop.conftest import Loop, settings_with
from tests.closed_loop.strict_chaos import (
    GROUPS,
    INTERVAL_MS,
    MOST,
    NETWORKS,
    START_MS,
    STEP_MS,
    WILD,
    Chaos,
    totals,
)
from tests.examples import in_nightly


def check_the_quota_is_never_exceeded(chaos: Chaos) -> None:
    most = np.zeros(2)
    for in_force in chaos.run(seconds=100):
        total = totals(in_force)
        assert (total <= MOST * (1 + 1e-9)).all(), f"{chaos.now_ms - START_MS} ms: {in_force}"
        most = np.maximum(most, total)
    assert (most > 0.4 * MOST).all()  # limits were given at all


@pytest.mark.parametrize("seed", [0, *in_nightly(*range(1, 8))])
@NETWORKS
def test_limits_in_force_never_exceed_the_quota(network, seed: int) -> None:
    check_the_quota_is_never_exceeded(Chaos(seed, brokers=3 + seed % 4, **network))


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("dimension", ["total_messages", "controller_mutations"])
def test_that_holds_in_a_dimension_that_comes_with_its_quota(dimension: str, seed: int) -> None:
    chaos = Chaos(seed, brokers=4, dimension=dimension, **WILD)
    check_the_quota_is_never_exceeded(chaos)
    assert len(chaos.state.leases.dimensions) == BASIC + 1


@pytest.mark.nightly
@pytest.mark.parametrize("mode", list(ThrottleMode))
@NETWORKS
def test_use_in_any_time_is_at_most_the_quotas_and_one_burst(network, mode) -> None:
    """With buckets of a second, all brokers together use in any time at most quota times time, plus
    one second's quota, plus a request each."""
    chaos = Chaos(1, brokers=4, **network)
    step_s, entities = STEP_MS / 1000, 4 * len(GROUPS)
    buckets = BrokerThrottle(entities, ThrottleTerms(mode=mode), interval_s=step_s)
    used = [np.zeros(2)]
    for in_force in chaos.run(seconds=60):
        admitted = buckets.use(np.full(entities, 500.0), in_force.ravel())
        used.append(step_s * totals(admitted.reshape(in_force.shape)))
    sent = np.cumsum(used, axis=0)
    requests = MOST / SLOTS_PER_S * [4, 8]  # a request is at most this part of the quota
    for begin in range(0, len(sent) - 1, 5):
        time_s = step_s * np.arange(1, len(sent) - begin)[:, None]
        assert (sent[begin + 1 :] - sent[begin] <= MOST * (time_s + 1.0) + requests).all()
    assert (sent[-1] > 0.3 * MOST * 60).all()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("max_step", [None, 0.02])
def test_a_lowered_quota_holds_two_leases_later_at_the_latest(
    max_step: float | None, seed: int
) -> None:
    chaos = Chaos(seed, brokers=4, max_step=max_step, **WILD)
    for _ in chaos.run(seconds=35):
        pass
    lowered = {"g": 40.0, "t": 20.0}
    chaos.quota |= lowered
    chaos.pending |= lowered
    lowered_at_ms = chaos.now_ms
    for in_force in chaos.run(seconds=60):
        late = chaos.now_ms > lowered_at_ms + 2 * (12_000 + 2 * INTERVAL_MS)
        most = np.array([40.0, 20.0]) if late else MOST
        assert (totals(in_force) <= most * (1 + 1e-9)).all()


@pytest.mark.nightly
def test_when_the_network_calms_down_everybody_gets_its_fair_share() -> None:
    chaos = Chaos(1, brokers=3, **WILD)
    for _ in chaos.run(seconds=45):
        pass
    chaos.loss, chaos.most_delay_ms, chaos._happen = 0.0, 100, lambda: None
    chaos.cut_off_until_ms[:] = 0
    for name in chaos.brokers.names:
        chaos.brokers.join(name, chaos.now_ms)
    chaos.brokers.attached[:] = True
    chaos.demand[:, :, 0] = [[200.0, 5, 10], [200.0, 90, 10], [10.0, 90, 10]]
    for _ in chaos.run(seconds=25):  # two leases: all old limits have expired
        pass
    in_force = chaos.in_force()
    used = np.minimum(in_force, chaos.demand[:, :, 0])
    assert used[:, 0] == pytest.approx([45, 45, 10], rel=0.03)
    assert used[:, 1] == pytest.approx([5, 12.5, 12.5], rel=0.1)
    assert used[:, 2] == pytest.approx([10, 10, 10], rel=0.1)


def test_a_lowered_quota_lowers_limits_below_it_that_wait_for_a_lease_end() -> None:
    """Stock brokers acknowledge nothing, so a limit that fell may not move for a lease."""
    settings = settings_with(limits={"transition": "strict", "lease_s": 10.0})
    wants = {"t::a": {"b1": [(0, 90), (22, 60)], "b2": [(0, 5), (22, 90)]}}
    run = Loop(
        wants,
        {"t": {"publish_messages": 100.0}, "t::a": {}},
        settings=settings,
        specs={name: BrokerSpec(name, format="stock") for name in ("b1", "b2")},
    ).run(26)
    assert run.last("limit", "t::a")["b1"] == pytest.approx(50.0)  # it was 93
    run.put("t", {"publish_messages": 50.0})
    run.run(2)
    assert sum(run.last("limit", "t::a").values()) <= 50.0 * (1 + 1e-6)
