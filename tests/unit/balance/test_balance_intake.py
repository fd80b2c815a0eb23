"""Which load reports count, and the round that follows from them."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotabalance.planning.report_choice import (
    NOT_NEWER,
    TOO_MANY_BUNDLES,
    Chosen,
    choose,
)
from quotabalance.planning.reported_loads import ReportedLoads
from quotabalance.planning.reports_intake import round_of
from quotabalance.wire.broker_loads import BrokerLoad
from quotabalance.wire.load_reports import encode_load_report
from tests.unit.balance.load_report_cases import NOW_MS, bundle_of, decoded, load_of

NONE = ReportedLoads.none()
GONE_AFTER_S = 3600.0


def loads_of(*reports: BrokerLoad) -> ReportedLoads:
    loads = decoded(*map(encode_load_report, reports)).loads
    assert len(loads.reports) == len(reports)
    return loads


def chosen(
    latest: ReportedLoads, *reports: BrokerLoad, now_ms: int = NOW_MS, **most: Any
) -> Chosen:
    return choose(latest, loads_of(*reports), now_ms, GONE_AFTER_S, **most)


def held(loads: ReportedLoads) -> dict[str, tuple[int, list[str]]]:
    """Each broker's sequence and bundles."""
    names, sequences = (loads.reports[name].to_pylist() for name in ("broker", "sequence"))
    report = loads.bundles["report"].to_numpy()
    return {
        name: (
            sequence,
            loads.bundles["bundle"].take(pa.array(np.flatnonzero(report == row))).to_pylist(),
        )
        for row, (name, sequence) in enumerate(zip(names, sequences, strict=True))
    }


def test_the_newest_report_of_a_broker_replaces_all_of_the_earlier_one() -> None:
    first = chosen(NONE, load_of("b2", (1.0,), first=9), load_of("b1", (1.0, 2.0)))
    assert held(first.latest) == {
        "b1": (1, [bundle_of(0), bundle_of(1)]),
        "b2": (1, [bundle_of(9)]),
    }
    assert (first.used, first.fresh) == (2, {"b1", "b2"})
    second = chosen(first.latest, load_of("b1", (5.0,), first=3, sequence=2))
    assert held(second.latest) == {"b1": (2, [bundle_of(3)]), "b2": (1, [bundle_of(9)])}
    assert second.fresh == {"b1"}


def test_a_report_that_was_used_or_is_older_is_refused() -> None:
    first = chosen(NONE, load_of(sequence=5))
    for again in (load_of(sequence=5), load_of(sequence=4), replace(load_of(), started_at_ms=0)):
        after = chosen(first.latest, again)
        assert (after.refused, after.used, after.fresh) == (((0, NOT_NEWER),), 0, frozenset())
        assert held(after.latest) == held(first.latest)
    restarted = chosen(first.latest, replace(load_of(sequence=1), started_at_ms=2_000))
    assert held(restarted.latest)["b1:8080"][0] == 1


def test_of_reports_that_arrive_together_the_newest_counts() -> None:
    after = chosen(NONE, load_of(sequence=2), load_of(sequence=3), load_of(sequence=3, cpu=99.0))
    assert (after.used, after.superseded, after.refused) == (1, 1, ((2, NOT_NEWER),))
    assert after.latest.reports["cpu_usage"].to_pylist() == [10.0]


def test_a_broker_whose_numbers_are_too_old_is_forgotten() -> None:
    first = chosen(NONE, load_of("b1"), load_of("b2"))
    fresh = load_of("b2", sequence=2, at_ms=NOW_MS)
    assert chosen(first.latest, fresh, now_ms=NOW_MS + 3_600_000).gone == ()
    later = choose(first.latest, NONE, NOW_MS + 3_600_001, GONE_AFTER_S)
    assert (later.gone, len(later.latest.reports)) == (("b1", "b2"), 0)


def test_more_bundles_than_allowed_are_refused_and_known_ones_stay() -> None:
    first = chosen(NONE, load_of("b5"))
    more = chosen(first.latest, load_of("b5", (1.0,) * 5, sequence=2), most_bundles=4)
    assert (more.refused, held(more.latest)) == (((0, TOO_MANY_BUNDLES),), held(first.latest))


def test_a_report_that_is_too_much_pushes_no_other_out() -> None:
    first = chosen(NONE, load_of("b1"), load_of("b2"))
    big = load_of("b1", (1.0,) * 9, sequence=2)
    after = chosen(
        first.latest,
        big,
        load_of("b0", (1.0,) * 9),
        load_of("b2", sequence=2),
        load_of("b3"),
        most_bundles=4,
    )
    assert after.refused == ((0, TOO_MANY_BUNDLES), (1, TOO_MANY_BUNDLES))
    assert [*held(after.latest)] == ["b1", "b2", "b3"]
    assert after.fresh == {"b2", "b3"}


def test_a_long_name_counts_as_several_bundles() -> None:
    long = load_of("b1", bundles=[bundle_of(1, f"acme/{'n' * 600}")])
    assert chosen(NONE, long, most_bundles=3).used == 1
    assert chosen(NONE, long, most_bundles=2).refused == ((0, TOO_MANY_BUNDLES),)


@pytest.mark.parametrize("seed", range(20))
def test_the_choice_does_not_depend_on_the_order_of_arrival(seed: int) -> None:
    draw = random.Random(seed)
    first = chosen(NONE, load_of("b1", sequence=3), load_of("b2"))
    arrived = loads_of(
        *(
            load_of(f"b{draw.randint(1, 3)}", (1.0,) * draw.randint(0, 3), sequence=n % 5)
            for n in range(8)
        )
    )
    order = draw.sample(range(8), 8)
    one, other = (
        choose(first.latest, loads, NOW_MS, GONE_AFTER_S)
        for loads in (arrived, arrived.take(order))
    )
    assert one.latest == other.latest
    assert [*one.refused] == sorted((order[row], why) for row, why in other.refused)
    everything = one.used + one.superseded + len(one.refused)
    assert everything == 8


def test_the_round_has_the_load_and_the_ages() -> None:
    unknown = np.zeros(0, np.int64)
    latest = chosen(
        NONE,
        load_of("b2", (4e6,), first=9, at_ms=NOW_MS - 5_000, draining=True),
        load_of("b1", (1e6, 2e6), topics=unknown),
    ).latest
    round_, skips = round_of(latest, NOW_MS)
    round_.load.check()
    assert round_.load.brokers == ["b1", "b2"]
    assert round_.load.throughput_of_brokers().tolist() == [3e6, 4e6]
    assert round_.load.topics.tolist() == [0, 0, 3]
    assert (round_.age_s.tolist(), round_.draining.tolist()) == ([0.0, 5.0], [False, True])
    assert (round_.now_s, skips) == (NOW_MS / 1000, ())


def test_a_bundle_that_two_brokers_report_belongs_to_the_newer_measurement() -> None:
    latest = chosen(
        NONE,
        load_of("b1", (1e6, 2e6, 3e6), at_ms=NOW_MS - 1),
        load_of("b2", (5e6, 6e6), first=1),
        load_of("b3", (7e6,), first=2),
    ).latest
    round_, skips = round_of(latest, NOW_MS)
    owners = dict(zip(round_.load.bundles, round_.load.owner.tolist(), strict=True))
    assert owners == {bundle_of(0): 0, bundle_of(1): 1, bundle_of(2): 1}
    assert round_.load.throughput_of_brokers().tolist() == [1e6, 11e6, 0.0]
    assert [(skip.subject, skip.label, skip.bundles) for skip in skips] == [
        ("b1", "ReportedTwice", 2),
        ("b3", "ReportedTwice", 1),
    ]
    assert skips[0].reason == (
        f"b1 (measured 22:13:19.999) and b2 (measured 22:13:20.000) both report {bundle_of(1)}, "
        f"{bundle_of(2)}; b2 counts"
    )


def test_a_cluster_without_bundles_or_brokers_has_a_round() -> None:
    assert round_of(NONE, NOW_MS).round.load.throughput_of_brokers().tolist() == []
    round_of(chosen(NONE, load_of(bytes_per_s=())).latest, NOW_MS).round.load.check()
