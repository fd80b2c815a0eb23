"""Tests of policies in the step: modes, roll-out, broker terms, trees."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.groups.policy_options import POLICY_COLUMNS
from quotaplane.laws.reason import Reason
from quotaplane.model import DIMENSIONS, RATE_COLUMNS, Transition, group_id
from quotaplane.quota.config import Events
from tests.unit.quota.step_cases import CONFIG, KINDS, T0, Shard, report, reports

RATE = RATE_COLUMNS[0]
REASON = f"{DIMENSIONS[0]}_reason_code"


def defined(version: int = 0, **groups: dict[str, Any]) -> Events:
    """Changes that define groups by name (``__`` for ``::``), with quota and policy columns."""
    kinds = {**KINDS, **POLICY_COLUMNS}
    rows = []
    for number, (key, given) in enumerate(groups.items()):
        name = key.replace("__", "::")
        row: dict[str, Any] = dict.fromkeys(kinds)
        row |= {RATE: given.get("quota"), "group": name, "group_id": group_id(name)}
        row |= {"deleted": False, "version": version + number}
        row |= {column: value for column, value in given.items() if column != "quota"}
        if row["brokers"] is not None:
            row["brokers"] = json.dumps(row["brokers"])
        rows.append(row)
    return Events(groups=pa.table({k: pa.array([r[k] for r in rows], kinds[k]) for k in kinds}))


def using(at_ms: int, **uses: dict[str, float]) -> Events:
    """One report per broker with its usage by group; brokers refuse nothing."""
    return reports(
        *(
            report(b, at_ms, {g.replace("__", "::"): u for g, u in used.items()}, throttled=0.0)
            for b, used in uses.items()
        )
    )


def shard(config=CONFIG, **groups: dict[str, Any]) -> Shard:
    one = Shard(config)
    one.run(defined(**groups), now_ms=T0)
    return one


def limits(one: Shard, group: str) -> list[float]:
    return [value for (name, _), value in sorted(one.in_force.items()) if name == group]


@pytest.mark.parametrize(("mode", "published"), [("hard", 2), ("soft", 2), ("shadow", 0)])
def test_what_a_mode_tells_brokers(mode: str, published: int) -> None:
    one = shard(g={"quota": 100, "mode": mode})
    outcome = one.run(using(T0, b1={"g": 90}, b2={"g": 60}), now_ms=T0)
    rows = outcome.limits.to_pylist()
    assert [row[RATE] for row in rows] == pytest.approx([50, 50])  # recorded whatever the mode
    assert sum(row["published"] for row in rows) == published == outcome.counts.limits_sent
    assert {row["enforced"] for row in rows} == {mode == "hard"}
    assert outcome.counts.soft_exceeded == (mode == "soft")


def test_use_above_what_would_be_the_limit_is_no_sign_of_saturation() -> None:
    one = shard(g={"quota": 100, "mode": "soft"})
    for turn in range(3):
        at = T0 + 5_000 * turn
        made = (report("b1", at, {"g": 80}), report("b2", at, {"g": 40}))
        one.run(reports(*made), now_ms=at)
    assert limits(one, "g") == pytest.approx([60, 40])  # not 50 and 50


def test_who_was_limited_hears_that_it_no_longer_is_and_keeps_hearing_it() -> None:
    one = shard(g={"quota": 100})
    one.run(using(T0, b1={"g": 90}, b2={"g": 60}), now_ms=T0)
    one.run(defined(1, g={"quota": 100, "mode": "shadow"}), now_ms=T0 + 1_000)
    told = one.run(using(T0 + 5_000, b1={"g": 50}, b2={"g": 50}), now_ms=T0 + 5_000)
    sent = [*told.limits.to_pylist()]
    for turn in range(2, 14):
        at = T0 + 5_000 * turn
        sent += one.run(using(at, b1={"g": 90}, b2={"g": 60}), now_ms=at).limits.to_pylist()
    assert sent
    assert all(row["published"] and not row["enforced"] for row in sent)


def test_back_to_hard_is_told_although_no_limit_moves() -> None:
    one = shard(g={"quota": 100, "mode": "shadow"})
    one.run(using(T0, b1={"g": 90}, b2={"g": 60}), now_ms=T0)
    outcome = one.run(defined(1, g={"quota": 100}), now_ms=T0 + 1_000)
    rows = outcome.limits.to_pylist()
    assert [(row["published"], row["enforced"], row["changed"]) for row in rows] == [
        (True,) * 3
    ] * 2


def test_enforcement_grows_with_its_percentage_broker_by_broker() -> None:
    one = shard(g={"quota": 1000, "enforcement_percent": 0.0})
    brokers = {f"b{number}": {"g": 10} for number in range(200)}
    one.run(using(T0, **brokers), now_ms=T0)
    chosen: list[set[str]] = []
    for version, percent in enumerate((10.0, 50.0, 100.0), start=1):
        change = defined(version, g={"quota": 1000, "enforcement_percent": percent})
        one.run(change, now_ms=T0 + version)
        rows = one.state.leases
        chosen.append({one.state.brokers.names[b] for b in rows.broker[rows.enforced]})
    assert chosen[0] < chosen[1] < chosen[2]
    assert [len(names) for names in chosen] == [
        pytest.approx(20, abs=12),
        pytest.approx(100, abs=25),
        200,
    ]


def test_terms_of_brokers_reach_the_law() -> None:
    terms = {"b1": {"weight": 3}, "b3": {"ceiling": {RATE: 5}}, "b4": {"floor": {RATE: 20}}}
    one = shard(g={"quota": 100, "brokers": terms})
    uses = {name: {"g": 100.0} for name in ("b1", "b2", "b3")}
    one.run(using(T0, **uses, b4={"g": 0}), now_ms=T0)
    assert limits(one, "g") == pytest.approx([56.25, 18.75, 5, 20])


def test_a_tree_stays_inside_its_root_and_shares_what_siblings_leave() -> None:
    one = shard(
        acme={"quota": 100},
        acme__a={"quota": 60},
        acme__b={"weight": 2, "priority": 0},
        acme__c={"quota": 50, "floor_publish_messages_per_s": 30},
    )
    uses = {"acme__a": 200.0, "acme__b": 200.0, "acme__c": 10.0}
    outcome = one.run(using(T0, b1=uses, b2=uses), now_ms=T0)
    found = {g: sum(limits(one, f"acme::{g}")) for g in "abc"}
    assert found == pytest.approx({"a": 70 / 3, "b": 140 / 3, "c": 30}, rel=1e-5)
    assert len(outcome.limits) == 6
    one.run(using(T0 + 5_000, b1={"acme__c": 0.0}), now_ms=T0 + 5_000)
    assert sum(one.in_force.values()) <= 100 * (1 + 1e-9)


BUSY = {"t__a": 1000.0}
OTHER_BUSY = {"t__b": 1000.0}


def test_what_a_ceiling_leaves_of_a_tree_goes_to_the_other_groups() -> None:
    one = shard(t={"quota": 100}, t__a={"brokers": {"b1": {"ceiling": {RATE: 1}}}}, t__b={})
    one.run(using(T0, b1=BUSY, b2=OTHER_BUSY), now_ms=T0)
    assert one.in_force == {("t::a", "b1"): 1, ("t::b", "b2"): 99}


@pytest.mark.parametrize(
    ("quota", "mode", "has"),
    [(70, "hard", 60), (70, "soft", 60), (70, "shadow", 60), (30, "hard", 30), (30, "soft", 60)],
)
def test_a_brokers_floor_holds_as_far_as_the_enforced_quotas_above_allow(
    quota: float, mode: str, has: float
) -> None:
    floor = {"brokers": {"b1": {"floor": {RATE: 60}}}}
    one = shard(t={"quota": 100}, t__m={"quota": quota, "mode": mode}, t__m__a=floor, t__b={})
    one.run(using(T0, b1={"t__m__a": 0.0}, b2=OTHER_BUSY), now_ms=T0)
    assert one.in_force == {("t::m::a", "b1"): has, ("t::b", "b2"): 100 - has}


def test_floors_of_a_groups_own_brokers_hold_beside_those_of_its_children() -> None:
    floors = {name: {"floor": {RATE: 30}} for name in ("b1", "b3")}
    one = shard(t={"quota": 100, "brokers": floors}, t__a={"weight": 8, "priority": 1})
    one.run(using(T0, b1={"t": 0.0}, b2=BUSY, b3={"t": 0.0}), now_ms=T0)
    assert one.in_force == {("t", "b1"): 30, ("t::a", "b2"): 40, ("t", "b3"): 30}


def test_safe_limits_know_the_quotas_above_and_ceilings() -> None:
    terms = {"*": {"ceiling": {RATE: 30}}}
    one = shard(acme={"quota": 100}, acme__a={"brokers": terms}, acme__b={"quota": 400})
    uses = {"acme__a": 200.0, "acme__b": 200.0}
    outcome = one.run(using(T0, b1={"acme__b": 200.0}, b2=uses), now_ms=T0)
    safe = {
        (row["group"], row["broker"]): row[f"safe_{RATE}"] for row in outcome.limits.to_pylist()
    }
    third = pytest.approx(100 / 3)
    assert safe == {("acme::a", "b2"): 30, ("acme::b", "b1"): third, ("acme::b", "b2"): third}


OTHER = RATE_COLUMNS[2]
"""A dimension in which nobody has a quota."""


@pytest.mark.parametrize("transition", Transition)
@pytest.mark.parametrize("mode", ["hard", "soft"])
def test_a_ceiling_is_the_most_also_where_there_is_no_quota(mode: str, transition) -> None:
    share = 0.0 if transition is Transition.STRICT else 1.0
    config = replace(CONFIG, transition=transition, learns=False, safe_share=share)
    terms = {"b1": {"ceiling": {OTHER: 0.1}}}  # no float32: what is told is rounded
    one = shard(config, g={"quota": 100, "mode": mode, "brokers": terms})
    for turn in range(3):
        at = T0 + 5_000 * turn
        made = [
            report(b, at, {"g": 30.0}, throttled=0.0, applied_seqs=one.seq) for b in ("b1", "b2")
        ]
        outcome = one.run(reports(*made), now_ms=at)
        if turn == 0:
            first, other = outcome.limits.to_pylist()
            why, _ = outcome.changed.to_pylist()
    assert (first["broker"], first["enforced"]) == ("b1", mode == "hard")
    assert first[OTHER] == pytest.approx(0.1) == first[f"safe_{OTHER}"]
    assert (why["broker"], why[OTHER]) == (first["broker"], first[OTHER])
    assert why[f"{DIMENSIONS[2]}_reason_code"] == Reason.CEILING
    assert why[f"{DIMENSIONS[2]}_reason_numbers"] is None  # no law was asked
    assert other[OTHER] == np.inf == other[f"safe_{OTHER}"]
    assert outcome.counts.limits_changed == 0
    taken_away = one.run(defined(5, g={"quota": 100, "mode": mode}), now_ms=at + 1_000)
    assert {row[OTHER] for row in taken_away.limits.to_pylist()} == {np.inf}


def test_strict_waits_for_who_has_not_heard_of_its_ceiling_when_a_quota_comes() -> None:
    one = shard(replace(CONFIG, transition=Transition.STRICT, learns=False), g={})
    told = {"throttled": 50.0, "applied_epoch": 1}
    one.run(reports(report("b1", T0, {"g": 0.0})), now_ms=T0)
    one.run(
        reports(report("b1", T0 + 5_000, {"g": 50.0}, applied_seqs=1, **told)), now_ms=T0 + 5_000
    )
    terms = {"b1": {"ceiling": {RATE: 10}}}
    one.run(defined(1, g={"brokers": terms}), now_ms=T0 + 6_000)
    assert one.in_force["g", "b1"] == 10
    one.run(defined(2, g={"quota": 100, "brokers": terms}), now_ms=T0 + 7_000)
    for at, applied, free in ((10_000, 1, 0.0), (15_000, 3, 90.0), (20_000, 5, 90.0)):
        made = report("b1", T0 + at, {"g": 10.0}, applied_seqs=applied, **told)
        new = report("b2", T0 + at, {"g": 0.0}, throttled=500.0)
        one.run(reports(made, new), now_ms=T0 + at)
        assert one.in_force["g", "b2"] == pytest.approx(free)


def test_a_quota_that_is_only_watched_binds_nobody_below_it() -> None:
    one = shard(acme={"quota": 100, "mode": "shadow"}, acme__a={"quota": 1000})
    one.run(using(T0, b1={"acme__a": 800.0}, b2={"acme__a": 800.0}), now_ms=T0)
    assert sum(limits(one, "acme::a")) == pytest.approx(1000)
    one.run(defined(5, acme={"quota": 100}), now_ms=T0 + 1_000)
    assert sum(limits(one, "acme::a")) == pytest.approx(100)


def test_shadows_are_told_that_they_are_free_where_nothing_goes_without_a_word() -> None:
    config = replace(CONFIG, transition=Transition.STRICT, learns=False)
    one = shard(config, g={"quota": 100, "mode": "shadow"})
    outcome = one.run(using(T0, b1={"g": 0}), now_ms=T0)
    (row,) = outcome.limits.to_pylist()
    assert (row["published"], row["enforced"]) == (True, False)


def test_strict_holds_in_a_tree_too() -> None:
    """Both groups have a quota of their own, and share that of their root."""
    config = replace(CONFIG, transition=Transition.STRICT, lease_ms=60_000, learns=False)
    one = shard(config, acme={"quota": 100}, acme__a={"quota": 90}, acme__b={"quota": 90})
    group = {"b1": "acme::a", "b2": "acme::b"}
    # At last b2 wants more; b1 has not said a word of the lower limit that it got for that.
    for second, applied, b2 in ((0, -1, 10.0), (5, 1, 10.0), (10, 1, 90.0), (15, 1, 90.0)):
        at = T0 + 1000 * second
        made = []
        for broker, want in {"b1": 90.0, "b2": b2}.items():
            used = min(want, one.in_force.get((group[broker], broker), 0.0))
            told = {"applied_epoch": min(applied, 1), "applied_seqs": applied}
            made.append(report(broker, at, {group[broker]: used}, throttled=want - used, **told))
        one.run(reports(*made), now_ms=at)
    assert one.in_force["acme::a", "b1"] == pytest.approx(50, rel=0.02)
    assert one.in_force["acme::b", "b2"] == pytest.approx(10, rel=0.02)


def test_use_below_a_soft_parent_counts_as_its_own() -> None:
    one = shard(t={"quota": 10, "mode": "soft"}, t__a={}, t__b={})
    assert one.run(using(T0, b1={"t__a": 4}), now_ms=T0).counts.soft_exceeded == 0
    outcome = one.run(using(T0 + 5_000, b1={"t__b": 9}), now_ms=T0 + 5_000)
    assert outcome.counts.soft_exceeded == 1


@pytest.mark.parametrize("mode", ["soft", "shadow"])
def test_what_an_earlier_control_plane_enforced_is_not_handed_back_where_it_is_only_watched(
    mode: str,
) -> None:
    one = Shard(CONFIG, epoch=7)
    one.run(defined(g={"quota": 100, "mode": mode}), now_ms=T0)
    had = report("b1", T0, {"g": 70}, applied_epoch=6, applied_seq=5, limit=70.0)
    (told,) = one.run(reports(had), now_ms=T0).limits.to_pylist()
    assert (told[RATE], told["enforced"], told["published"]) == (70, False, True)
