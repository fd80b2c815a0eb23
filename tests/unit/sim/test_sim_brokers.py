"""Simulated brokers: what they enforce, in whatever order limits arrive, and what they report."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import InputError
from quotaplane.model import (
    BASIC,
    COUNTER_COLUMNS,
    DIMENSIONS,
    PARTS,
    RATE_COLUMNS,
    THROTTLED_COLUMNS,
    group_id,
)
from quotaplane.settings import Reports
from quotaplane.sim.broker_fleet import BrokerFleet, BrokerSpec, Report
from quotaplane.sim.demand_schedule import added_up
from quotaplane.throttle.terms import ThrottleTerms
from quotaplane.throttle.types import ThrottleLaw
from quotaplane.wire.limits import encode_limits
from quotaplane.wire.pb.quotaplane_pb2 import LimitsUpdate
from quotaplane.wire.reports import Decoded, decode

NOW = 1_000_000
D = len(DIMENSIONS)
PLAIN = [d for d in range(D) if d not in PARTS]
"""Those that are no total."""
GROUPS = ("g", "h")


def cluster(*specs: BrokerSpec, **options) -> BrokerFleet:
    return BrokerFleet(specs or (BrokerSpec("b1"), BrokerSpec("b2")), GROUPS, **options)


def update(
    limit: float, *, epoch: int = 1, seq: int = 1, broker: str = "b1", group: str = "g", **rest
) -> bytes:
    given = {"groups": [group], "limits": np.full((1, D), limit), "issued_at_ms": NOW, **rest}
    return encode_limits(broker=broker, shard=0, epoch=epoch, seq=seq, lease_ms=10_000, **given)


def in_force(brokers: BrokerFleet, now_ms: int = NOW) -> float:
    return float(brokers.limits(now_ms)[0, 0, 0])


def decoded(reports: list[Report], interval_s: float = 1.0) -> Decoded:
    found = decode(
        [report.value for report in reports],
        np.array([report.published_at_ms for report in reports]),
        [str(place) for place in range(len(reports))],
        now_ms=NOW,
        reports=Reports(interval_s=interval_s),
    )
    assert found.rejected.num_rows == 0
    return found


def rates(found: Decoded, row: int, columns=RATE_COLUMNS) -> list[float]:
    return [found.entries[name][row].as_py() for name in columns]


def test_a_message_that_cant_be_decoded_costs_no_other() -> None:
    beyond: Any = LimitsUpdate(magic=0x314C5051, broker="b1", epoch=2**64 - 1, groups=["g"])
    brokers = cluster()
    assert brokers.receive([b"noise", beyond.SerializeToString(), update(25.0)]) == 1
    assert in_force(brokers) == 25
    assert brokers.refused == 2


def test_demand_gets_through_up_to_the_limit_and_freely_without_one() -> None:
    brokers = cluster()
    demand = np.full((2, 2, D), 50.0)
    assert (brokers.use(demand, NOW) == added_up(demand)).all()
    limits = np.array([np.inf if place in PARTS else 25.0 for place in range(D)])
    assert brokers.receive([update(limits)]) == 1
    used = [brokers.use(demand, NOW) for _ in range(3)]
    assert [one[0, 0, 0] for one in used] == [50.0, 25.0, 25.0]  # first with a burst of 25
    for one in used:
        assert (one[0, 0, PLAIN] == one[0, 0, 0]).all()
        assert (one[0, 1, PLAIN] == 50.0).all()
        assert (one[1][:, PLAIN] == 50.0).all()


def test_a_group_is_held_to_its_limits_on_the_terms_that_were_told() -> None:
    brokers = cluster()
    demand = np.zeros((2, 2, D))
    demand[..., -1] = 50.0
    hard = '{"*": {"law": "sliding_window", "mode": "hard"}}'
    brokers.receive([update(25.0, throttles=[hard])])
    assert brokers.use(demand, NOW)[0, 0, -1] == 25.0  # a window has no burst beside it
    brokers.receive([update(25.0, seq=2)])  # as told before
    assert brokers.use(demand, NOW)[0, 0, -1] == 25.0
    brokers.receive([update(25.0, seq=3, throttles=[""])])
    assert brokers.use(demand, NOW)[0, 0, -1] == 50.0  # its own: a bucket, which begins full
    brokers.receive([update(25.0, seq=4, throttles=[hard])])
    brokers.join("b1", NOW)
    brokers.receive([update(25.0, seq=5)])
    assert brokers.use(demand, NOW)[0, 0, -1] == 50.0  # nothing told yet


def test_an_interval_may_be_one_brokers_alone() -> None:
    brokers = cluster()
    brokers.receive([update(25.0), update(25.0, broker="b2")])
    demand = np.full((2, 2, D), 50.0)
    first = brokers.use(demand, NOW, 0)
    assert first[0, 0, -1] == 50.0
    assert (first[1] == 0.0).all()
    assert brokers.use(demand, NOW)[:, 0, -1].tolist() == [25.0, 50.0]


def test_a_total_is_kept_by_cutting_both_of_its_parts_alike() -> None:
    brokers = cluster()
    limits = np.full((1, D), np.inf)
    limits[0, DIMENSIONS.index("total_messages")] = 50.0
    limits[0, DIMENSIONS.index("publish_messages")] = 40.0
    brokers.receive([update(0.0, limits=limits)])
    demand = np.zeros((2, 2, D))
    demand[..., :4] = [60.0, 7.0, 60.0, 8.0]
    mean = np.mean([brokers.use(demand, NOW)[0, 0] for _ in range(24)][4:], axis=0)
    used = dict(zip(DIMENSIONS, mean.tolist(), strict=True))
    assert used["publish_messages"] == pytest.approx(20, rel=0.02)  # of 40, beside 60
    assert used["dispatch_messages"] == pytest.approx(30, rel=0.02)
    assert used["total_messages"] == pytest.approx(50, rel=0.02)
    assert used["total_bytes"] == 15.0


def test_what_a_total_owes_is_forgotten_while_nothing_is_limited() -> None:
    """Eleven windows of a second, used up in the first: after a lease gap they begin anew."""
    terms = ThrottleTerms(law=ThrottleLaw.SLIDING_WINDOW, samples=11, window_s=1.0)
    brokers = cluster(throttle=terms)
    limits = np.full((1, D), np.inf)
    limits[0, DIMENSIONS.index("total_messages")] = 10.0
    demand = np.full((2, 2, D), 200.0)

    def used(now_ms: int) -> float:
        return float(brokers.use(demand, now_ms)[0, 0, DIMENSIONS.index("total_messages")])

    brokers.receive([update(0.0, limits=limits)])
    assert [used(NOW) for _ in range(2)] == pytest.approx([110, 0], abs=1)
    gap = NOW + 10_001  # and the safe limit is none
    assert [used(gap) for _ in range(12)] == [400.0] * 12
    brokers.receive([update(0.0, limits=limits, seq=2, issued_at_ms=gap)])
    assert used(gap) == pytest.approx(110, abs=1)


@given(st.permutations([(1, 1), (1, 2), (2, 1), (1, 9)]))
def test_the_newest_limit_is_in_force_in_whatever_order_they_come(order) -> None:
    brokers = cluster()
    for epoch, seq in order:
        brokers.receive([update(10.0 * epoch + seq, epoch=epoch, seq=seq)])
    assert in_force(brokers) == 21.0


def test_the_same_limit_again_changes_nothing() -> None:
    brokers = cluster()
    brokers.receive([update(20.0)])
    assert brokers.receive([update(20.0), update(30.0)]) == 0
    assert in_force(brokers) == 20.0


def test_versions_are_compared_group_by_group() -> None:
    brokers = cluster()
    brokers.receive([update(20.0, seq=5, group="g"), update(30.0, seq=4, group="h")])
    assert brokers.limits(NOW)[0, :, 0].tolist() == [20.0, 30.0]


def test_limits_by_id_and_of_unknown_groups_and_brokers() -> None:
    brokers = cluster()
    by_id = update(7.0, groups=None, group_ids=[group_id("g")])
    assert brokers.receive([by_id, update(1.0, group="other"), update(1.0, broker="b9")]) == 1
    assert in_force(brokers) == 7.0


def test_a_removed_group_is_free_until_a_newer_limit_comes() -> None:
    brokers = cluster()
    gone = {"groups": [], "limits": np.empty((0, D)), "removed_groups": ["g"]}
    brokers.receive([update(20.0), update(0.0, seq=2, **gone), update(20.0)])
    assert in_force(brokers) == np.inf
    brokers.receive([update(30.0, seq=3)])
    assert in_force(brokers) == 30.0


def test_a_delayed_duplicate_of_a_limit_of_a_removed_group_is_not_obeyed() -> None:
    """Its version is remembered for a lease; then the duplicate is over wherever it comes."""
    gone = {"groups": [], "limits": np.empty((0, D)), "removed_groups": ["g"]}
    brokers = cluster(strict=True)
    brokers.receive([update(20.0), update(0.0, seq=2, **gone), update(20.0)])
    assert in_force(brokers) == 0.0
    forgot = cluster(strict=True)
    forgot.receive([update(20.0)])
    assert (in_force(forgot), in_force(forgot, NOW + 10_001)) == (20.0, 0.0)


def test_after_its_lease_the_safe_limit_holds_until_it_is_renewed() -> None:
    brokers = cluster(safe_limit=5.0)
    brokers.receive([update(20.0)])
    assert in_force(brokers, NOW + 10_000) == 20.0
    assert in_force(brokers, NOW + 10_001) == 5.0
    brokers.receive([update(20.0, seq=2, issued_at_ms=NOW + 11_000)])
    assert in_force(brokers, NOW + 11_000) == 20.0


def test_a_dead_broker_neither_serves_nor_reports_nor_listens() -> None:
    brokers = cluster()
    brokers.die("b1")
    assert brokers.receive([update(20.0)]) == 0
    demand = added_up(np.full((2, 2, D), 50.0))
    used = brokers.use(demand, NOW)
    assert used[0].sum() == 0.0
    assert [report.broker for report in brokers.reports(used, demand, NOW)] == ["b2"]


def test_a_broker_that_joins_again_has_forgotten_limits_and_sequence() -> None:
    brokers = cluster()
    demand = np.ones((2, 2, D))
    brokers.receive([update(20.0, seq=9)])
    brokers.reports(demand, demand, NOW)
    brokers.die("b1")
    brokers.join("b1", NOW + 5)
    assert in_force(brokers) == np.inf
    found = decoded(brokers.reports(demand, demand, NOW))
    header = found.headers.slice(0, 1).to_pylist()[0]
    assert (header["started_at_ms"], header["sequence"]) == (NOW + 5, 1)
    assert header["applied_epoch"] == -1
    assert found.headers["sequence"][1].as_py() == 2


def test_a_report_says_what_was_used_refused_and_applied() -> None:
    brokers = cluster(BrokerSpec("b1", throttled=True), BrokerSpec("b2", uses_ids=True))
    brokers.receive([update(20.0, epoch=3, seq=4)])
    demand = added_up(np.full((2, 2, D), 50.0))
    usage = added_up(np.full((2, 2, D), 10.0))
    found = decoded(brokers.reports(usage, demand, NOW))
    first, second = found.headers.to_pylist()
    assert (first["applied_epoch"], first["applied_seq"]) == (3, 4)
    assert (second["applied_epoch"], second["uses_ids"]) == (-1, True)
    assert [rates(found, 0)[d] for d in PLAIN] == [10.0] * len(PLAIN)
    assert [rates(found, 0, THROTTLED_COLUMNS)[d] for d in PLAIN] == [40.0] * len(PLAIN)
    assert np.isnan([rates(found, 0)[d] for d in PARTS]).all()  # they follow from their parts
    assert found.entries["group_id"].to_pylist() == [group_id(name) for name in GROUPS] * 2
    assert np.isnan(rates(found, 2, THROTTLED_COLUMNS)).all()


def test_counters_grow_by_what_each_interval_used_and_end_with_the_broker() -> None:
    brokers = cluster(BrokerSpec("b1"), BrokerSpec("b2"), interval_s=2.0)
    usage = added_up(np.arange(4.0 * D).reshape(2, 2, D))
    brokers.reports(usage, usage, NOW)
    brokers.join("b2", NOW + 5)
    found = decoded(brokers.reports(usage, usage, NOW + 2000), interval_s=2.0).entries
    counters = np.stack([found[name].to_numpy() for name in COUNTER_COLUMNS], axis=1)
    windows = np.array([2.0, 2.0, 1.0, 1.0])[:, None]
    np.testing.assert_array_equal(counters, windows * 2.0 * usage.reshape(4, D)[:, PLAIN])


def test_a_detached_group_is_not_reported_and_a_broker_without_groups_is_silent() -> None:
    brokers = cluster()
    brokers.attached[0, 1] = False
    brokers.attached[1] = False
    demand = added_up(np.full((2, 2, D), 50.0))
    used = brokers.use(demand, NOW)
    assert used[..., PLAIN].sum() == 50.0 * len(PLAIN)
    found = decoded(brokers.reports(used, demand, NOW))
    assert found.entries["group"].to_pylist() == ["g"]


def test_a_stock_broker_reports_whole_counts_of_its_period() -> None:
    brokers = cluster(BrokerSpec("b1", format="stock"), interval_s=5.0)
    demand = np.full((1, 2, D), 10.25)
    found = decoded(brokers.reports(demand, demand, NOW), interval_s=5.0)
    assert rates(found, 0, RATE_COLUMNS[:BASIC]) == [51 / 5] * 4
    assert RATE_COLUMNS[BASIC] not in found.entries.column_names


def test_a_stock_broker_suppresses_a_class_until_it_moved_or_was_quiet_for_five_rounds() -> None:
    """facts.md: report again? 1040 from 1000 no, 1060 yes, 940 yes; after 5 suppressed rounds."""
    brokers = cluster(BrokerSpec("b1", format="stock"))

    def publish_of(rate: float) -> float:
        demand = np.full((1, 2, D), 1000.0)
        demand[..., :2] = rate
        return rates(decoded(brokers.reports(demand, demand, NOW)), 0, RATE_COLUMNS[:1])[0]

    assert publish_of(1000) == 1000
    assert np.isnan(publish_of(1040))
    assert publish_of(1060) == 1060
    assert publish_of(940) == 940
    quiet = [publish_of(950) for _ in range(6)]
    assert np.isnan(quiet[:5]).all()
    assert quiet[5] == 950


def test_two_brokers_of_one_name_and_unknown_names_are_refused() -> None:
    with pytest.raises(InputError, match="same name"):
        cluster(BrokerSpec("b1"), BrokerSpec("b1"))
    with pytest.raises(InputError, match="no 'b9'"):
        cluster().die("b9")


def test_the_columns_are_the_models_dimensions() -> None:
    brokers = cluster()
    limits = np.array([[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]])
    brokers.receive([update(0.0, limits=limits)])
    demand = np.full((2, 2, D), 9.0)
    used = np.mean([brokers.use(demand, NOW) for _ in range(30)][10:], axis=0)
    assert dict(zip(DIMENSIONS, used[0, 0].round(1).tolist(), strict=True)) == {
        "publish_messages": 1.0,
        "publish_bytes": 2.0,
        "dispatch_messages": 3.0,
        "dispatch_bytes": 4.0,
        "total_messages": 4.0,
        "total_bytes": 6.0,
        "controller_mutations": 7.0,
        "request_ms": 8.0,
    }
