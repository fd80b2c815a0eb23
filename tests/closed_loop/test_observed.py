"""Stock brokers whose usage the enforcer observes, too: how soon a woken producer has its rate.

A group has a quota of 120 messages a second. Its topics on the brokers ``a`` and ``b`` want 80
each; the one on ``c`` begins to want 60. So each gets 40.
"""

from __future__ import annotations

import numpy as np
import pytest

from tests.closed_loop.stock_cluster import StockCluster

QUOTA = 120.0
FAIR = 40.0


def waking(at_s: float, *, observes: bool, **more: float) -> StockCluster:
    wants = {"a/t": [(0, 80)], "b/t": [(0, 80)], "c/t": [(0, 0), (at_s, 60)]}
    return StockCluster(wants, QUOTA, observes=observes, **more)  # type: ignore[arg-type]


def delay_s(at_s: float, *, observes: bool) -> float:
    """From the waking of ``c`` until it has nine tenths of its fair share as a rate."""
    cluster = waking(at_s, observes=observes).run(at_s + 35)
    return cluster.since("c/t", 0.9 * FAIR, int(at_s)) - at_s % 1


@pytest.mark.nightly
def test_a_woken_producer_has_its_rate_sooner() -> None:
    wakes_s = [60.0, 61.3, 64.9, 68.8]
    without = [delay_s(at_s, observes=False) for at_s in wakes_s]
    observed = [delay_s(at_s, observes=True) for at_s in wakes_s]
    assert max(observed) < 3.0
    assert min(without) > 10.0


@pytest.mark.nightly
def test_both_end_at_the_same_limits() -> None:
    for observes in (False, True):
        cluster = waking(30, observes=observes).run(90)
        assert cluster.rates[-1] == pytest.approx([FAIR] * 3, abs=1.0)
        assert cluster.used[-1].sum() <= QUOTA * 1.02
        assert cluster.differing == 0


@pytest.mark.nightly
def test_noise_causes_no_more_writes_than_without() -> None:
    wants = {"a/t": [(0, 40.0)], "b/t": [(0, 40.0)], "c/t": [(0, 30.0)]}
    writes, used = {}, {}
    for observes in (False, True):
        cluster = StockCluster(wants, 130, observes=observes, interval_s=5.0, poisson=1).run(90)
        writes[observes] = cluster.writes
        used[observes] = np.mean([row.sum() for row in cluster.used[30:]])
    assert writes[True] <= 2 * writes[False] + 6
    assert used[True] == pytest.approx(used[False], rel=0.03)


@pytest.mark.nightly
def test_noise_of_small_brokers_leaves_a_large_one_alone() -> None:
    """Each write of its rate lets a burst of a second's worth through."""
    wants = {"a/t": [(0, 20.0)], "b/t": [(0, 30.0)], "c/t": [(0, 120.0)]}
    cluster = StockCluster(wants, QUOTA, observes=True, interval_s=5.0, poisson=3).run(40)
    begun = cluster.writes
    used = np.array(cluster.run(120).used[40:])
    assert cluster.writes - begun < 30
    lost = 1 - used.mean(axis=0)[:2] / [20, 30]
    assert lost.max() < 0.05
    means = np.convolve(used.sum(axis=1), np.ones(5) / 5, "valid")
    assert np.quantile(means, 0.9) < 1.05 * QUOTA


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(1, 6))
def test_a_noisy_broker_that_wants_more_gets_its_share_and_keeps_it(seed: int) -> None:
    wants = {"a/t": [(0, 80.0)], "b/t": [(0, 20.0), (60, 60.0)], "c/t": [(0, 20.0)]}
    cluster = StockCluster(wants, QUOTA, observes=True, interval_s=5.0, poisson=seed).run(120)
    used = np.array(cluster.used[75:])
    assert used.mean(axis=0)[:2] == pytest.approx([50, 50], rel=0.12)


def test_an_enforcer_that_sees_a_part_does_not_win() -> None:
    # Both topics of ``c`` want 30, and the counters of one are missing. Its broker reports 60.
    wants = {"a/t": [(0, 30.0)], "b/t": [(0, 20.0)], "c/t": [(0, 30.0)], "c/u": [(0, 30.0)]}
    hidden = frozenset({"c/u"})
    cluster = StockCluster(wants, QUOTA, observes=True, interval_s=5.0, hidden=hidden).run(60)
    assert cluster.used[-1] == pytest.approx([30, 20, 30, 30], abs=1.0)
    leases, brokers = cluster.state.leases, cluster.state.brokers.names
    assert leases.usage[0, leases.broker == brokers.index("c")] == pytest.approx(60, rel=0.02)
    assert cluster.differing > 0


def test_an_enforcer_that_stops_to_observe_leaves_the_brokers_reports() -> None:
    cluster = waking(60, observes=True, stops_at_s=40).run(95)
    assert not len(cluster.state.observed)
    assert cluster.rates[-1] == pytest.approx([FAIR] * 3, abs=1.0)
    # As late as without observations, which is up to two report intervals.
    assert 10 < cluster.since("c/t", 0.9 * FAIR, 60) <= 21
