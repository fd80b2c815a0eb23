"""Never more than the quotas, whatever was published: each limit, and those of all together."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from quotaplane.agents.conditions import Conditions
from quotaplane.enforce.agent.allowed_limits import AllowedLimits
from quotaplane.enforce.limits_received import ClusterLimits
from quotaplane.enforce.quota_caps import QuotaCaps, TableQuotas, capped, caps_of
from quotaplane.model import FloatArray
from tests.unit.enforce.enforce_cases import layout_of, only_messages
from tests.unit.enforce.test_enforce_limits_received import T0, receive

GROUPS = ("acme", "acme::a", "acme::a::x", "acme::b", "other", "soft", "soft::c")


def quotas_of(
    quota: FloatArray, *, soft: tuple[str, ...] = ("soft",), in_part: tuple[str, ...] = ()
) -> TableQuotas:
    return TableQuotas(
        {name: at for at, name in enumerate(GROUPS)},
        quota,
        np.array([name not in soft for name in GROUPS]),
        np.array([name in in_part for name in GROUPS]),
        np.zeros(len(GROUPS)),
    )


def below(name: str) -> list[int]:
    """The groups that a group's quota holds for."""
    return [at for at, one in enumerate(GROUPS) if one == name or one.startswith(f"{name}::")]


rates = st.one_of(st.floats(0, 1e12), st.just(np.inf))
per_group = hnp.arrays(float, (len(GROUPS), 4), elements=rates)
told_limits = hnp.arrays(float, (3 * len(GROUPS), 4), elements=st.one_of(rates, st.just(np.nan)))


@given(per_group, told_limits)
def test_no_limit_and_no_sum_exceeds_a_quota(quota: FloatArray, limits: FloatArray) -> None:
    caps = caps_of(GROUPS, quotas_of(quota))
    group = np.repeat(np.arange(len(GROUPS)), 3)
    left = capped(caps, group, limits).limits
    np.testing.assert_array_equal(np.isnan(left), np.isnan(limits))
    assert (np.nan_to_num(left, posinf=np.inf) <= np.nan_to_num(limits, posinf=np.inf)).all()
    for at, name in enumerate(GROUPS):
        if name == "soft":
            np.testing.assert_array_equal(left[group == at], limits[group == at])
            continue
        limited = np.isfinite(quota[at])
        total = np.nansum(left[np.isin(group, below(name))], axis=0)
        assert (total[limited] <= quota[at][limited] * (1 + 2e-6)).all()


@given(st.integers(1, 5), st.floats(1.0, 1e12))
def test_limits_that_add_up_to_the_quota_are_left_as_they_are(brokers: int, quota: float) -> None:
    caps = caps_of(("acme",), quotas_of(np.full((len(GROUPS), 4), quota)))
    limits = np.full((brokers, 4), quota / brokers)
    # A number that went through single precision is off by less than a millionth.
    for told_as in (limits, limits.astype(np.float32).astype(np.float64)):
        left = capped(caps, np.zeros(brokers, np.int64), told_as)
        np.testing.assert_allclose(left.limits, told_as, rtol=2e-7)
        assert not left.cut.any()


def test_groups_that_are_not_enforced_are_held_to_nothing() -> None:
    quotas = quotas_of(np.full((len(GROUPS), 4), 100.0), soft=("soft", "acme::a"))
    caps = caps_of((*GROUPS, "unknown"), quotas)
    limits = np.full((len(GROUPS) + 1, 4), 1e9)
    left = capped(caps, np.arange(len(limits)), limits).limits[:, 0]
    by_name = dict(zip((*GROUPS, "unknown"), left.tolist(), strict=True))
    assert by_name["soft"] == by_name["acme::a"] == by_name["unknown"] == 1e9
    # A group that is only watched binds nobody below it, one that is enforced does.
    assert by_name["soft::c"] == by_name["other"] == 100
    assert by_name["acme"] + by_name["acme::a::x"] + by_name["acme::b"] == pytest.approx(100)


def test_brokers_that_a_roll_out_leaves_free_are_free() -> None:
    quotas = quotas_of(np.full((len(GROUPS), 4), 100.0), in_part=("other",))
    caps = caps_of(("other", "acme"), quotas)
    limits = np.array([[np.inf] * 4, [1e9] * 4, [np.inf] * 4])
    left = capped(caps, np.array([0, 0, 1]), limits)
    assert left.limits[:, 0].tolist() == [np.inf, 100, 100]
    assert left.cut.tolist() == [True, True]


def test_without_quotas_limits_are_as_told() -> None:
    limits = np.array([[1e9, np.inf, np.nan, 0.0]])
    caps: QuotaCaps = caps_of(("g",), None)
    left = capped(caps, np.zeros(1, np.int64), limits)
    np.testing.assert_array_equal(left.limits, limits)
    assert not left.cut.any()
    none = np.zeros(0, np.int64)
    assert capped(caps_of((), None), none, np.zeros((0, 4))).limits.shape == (0, 4)


class Table:
    """In place of the table in the history."""

    def __init__(self, quota: float) -> None:
        self.put(quota)

    def put(self, quota: float) -> None:
        one = np.ones(1, np.bool_)
        self.quotas = TableQuotas({"g": 0}, only_messages([quota]), one, ~one, np.zeros(1))


def test_what_is_cut_is_told_once_it_lasts_and_when_it_is_over() -> None:
    lines: list[str] = []
    received, table = ClusterLimits(), Table(100.0)
    allowed = AllowedLimits(received, table, Conditions(lines.append))  # type: ignore[arg-type]
    layout = layout_of({"s": "b1", "t": "b2"}, "g")
    receive(received, "b1", limits=[1e9])
    receive(received, "b2", limits=[60.0])

    def limits(now_s: float) -> list[float]:
        held: list[float] = allowed.limits(layout, T0, now_s)[:, 0].tolist()
        return held

    assert limits(0.0) == [62.5, 37.5]
    assert limits(9.9) == [62.5, 37.5]
    assert (allowed.cut, lines) == (1, [])
    limits(10.0)
    limits(20.0)
    assert len(lines) == 1
    assert lines[0].startswith(
        "cut limits: the limits received for g have exceeded their quotas for 10 s"
    )
    # A quota that was raised is in force as soon as the table is read.
    table.put(1e10)
    assert limits(21.0) == [1e9, 60.0]
    assert lines[1:] == ["cut limits: over after 0 s"]
    # And one that was lowered a moment ago is no reason to tell anybody.
    table.put(50.0)
    limits(22.0)
    receive(received, "b1", limits=[20.0], seq=2)
    receive(received, "b2", limits=[30.0], seq=2)
    assert limits(25.0) == [20.0, 30.0]
    assert (allowed.cut, len(lines)) == (0, 2)


def test_safe_limits_are_capped_too_and_stand_for_limits_that_have_none() -> None:
    received = ClusterLimits()
    allowed = AllowedLimits(received, Table(100.0), Conditions(print))  # type: ignore[arg-type]
    layout = layout_of({"s": "b1", "t": "b2", "u": "b3"}, "g")
    receive(received, "b1", limits=[10.0], safe=[1e9])
    receive(received, "b2", limits=[100.0])
    safe = allowed.safe_limits(layout, T0)[:, 0, 0]
    assert safe[:2].tolist() == [50, 50]
    assert np.isnan(safe[2])


def test_limits_may_add_up_to_what_limits_over_allows() -> None:
    caps = caps_of(("acme",), quotas_of(np.full((len(GROUPS), 4), 100.0)))
    both = np.zeros(2, np.int64)
    limits = np.array([[70.0] * 4, [40.0] * 4])
    assert capped(caps, both, limits, over=0.1).limits == pytest.approx(limits)
    assert capped(caps, both, limits, over=0.0).limits.sum(axis=0) == pytest.approx([100.0] * 4)
    beyond = capped(caps, both, 2 * limits, over=0.1).limits
    assert beyond.sum(axis=0) == pytest.approx([110.0] * 4)
