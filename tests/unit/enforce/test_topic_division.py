"""One tick of the enforcer as a pure function: what it does after what it read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.enforce.least_bytes import MOST_RAISED
from quotaplane.enforce.rate_writes import Moves, Rates
from quotaplane.enforce.topic_division import (
    DivisionMemory,
    DivisionReadings,
    DivisionSettings,
    TopicDivision,
    divide,
)
from tests.unit.enforce.enforce_cases import layout_of

INF, NAN = np.inf, np.nan
HOW = DivisionSettings("max_min", 0.05, MOST_RAISED, patient=False)
TOPICS = {"busy": "b", "idle": "b", "other": "b"}
LAYOUT = layout_of(TOPICS, {"busy": "g", "idle": "g", "other": "h"})


def rates_of(in_force: Sequence[float]) -> Rates:
    """These publish rates of the topics in messages; no rate otherwise."""
    rates = np.full((len(in_force), 4), INF)
    rates[:, 0] = in_force
    no = np.zeros((len(in_force), 2), np.bool_)
    return Rates(rates, rates, ~no, no, no, np.zeros(no.shape), np.zeros(rates.shape), no, no)


def readings_of(in_force: Sequence[float] = (INF, INF, INF), **other: Any) -> DivisionReadings:
    """``g`` may publish 100 messages a second, ``h`` is unlimited; ``busy`` wants more."""
    limits = np.full((2, 4), INF)
    limits[0, 0] = 100.0
    usage, saturated = np.zeros((3, 4)), np.zeros((3, 4), np.bool_)
    usage[0, 0], saturated[0, 0] = 90.0, True
    endless = np.full((3, 4), INF)
    made = DivisionReadings(
        layout=LAYOUT,
        limits=limits,
        safe_limits=None,
        decided_ms=np.array([7.0, 7.0]),
        usage=usage,
        saturated=saturated,
        rates=rates_of(in_force),
        own_rates=endless,
        other_rates=endless,
        has_default=np.zeros((3, 2), np.bool_),
        limited_by_cluster=(),
        job_gone=False,
        now_s=0.0,
    )
    return made._replace(**other)


def in_words(moves: Moves) -> dict[str, float]:
    """The rates in messages that are written for publish; nothing else is."""
    assert not moves.kind.any()
    assert np.isposinf(moves.rates[:, 1]).all()
    names = [LAYOUT.topics[at] for at in moves.topic]
    return dict(zip(names, moves.rates[:, 0].tolist(), strict=True))


def divided(readings: DivisionReadings, memory: DivisionMemory | None = None) -> TopicDivision:
    return divide(readings, memory or DivisionMemory(), HOW)


NO_LIMITS = np.full((2, 4), NAN)
ADMINISTRATORS = np.full((3, 4), INF)
ADMINISTRATORS[0, 0] = 30.0
RECORDED = rates_of([INF] * 3)._replace(recorded=np.array([[True, False]] * 3))
DEFAULTS = np.array([[True, False]] * 3)
_MOST_STEPS = 3
"""Lower, then raise."""
UNLIMITED = np.full((2, 4), INF)


@pytest.mark.parametrize(
    ("readings", "writes"),
    [
        # Neither has a rate. An idle topic gets a tenth of its equal share, on top.
        (readings_of(), {"busy": 100.0, "idle": 5.0}),
        (readings_of([100.0, 5.0, INF]), {}),
        # Nothing was received: what is there stays.
        (readings_of([40.0, 5.0, 9.0], limits=NO_LIMITS), {}),
        # Only significant changes.
        (readings_of([96.0, 5.0, INF]), {}),
        (readings_of([45.0, 5.0, INF]), {"busy": 100.0}),
        (readings_of([45.0, 5.0, INF], has_default=DEFAULTS), {"busy": 100.0}),
        # An administrator's rate is lower than the share: the namespace's, and the topic's own.
        (readings_of(other_rates=ADMINISTRATORS), {"busy": 30.0, "idle": 70.0}),
        (readings_of(own_rates=ADMINISTRATORS), {"busy": 100.0, "idle": 5.0}),
        (readings_of(own_rates=ADMINISTRATORS, rates=RECORDED), {"busy": 30.0, "idle": 70.0}),
        # An unread topic is not written; it may use all, so another one is not raised.
        (readings_of([NAN, 1.0, INF]), {}),
        # A group that becomes unlimited loses its rates, once there is no default of ours.
        (readings_of([100.0, 5.0, INF], limits=UNLIMITED), {"busy": INF, "idle": INF}),
        (readings_of([100.0, 5.0, INF], limits=UNLIMITED, has_default=DEFAULTS), {}),
        # The job is gone: the rates of groups that the cluster limits are removed.
        (readings_of([100.0, 5.0, 9.0], job_gone=True), {}),
        (
            readings_of([100.0, 5.0, 9.0], job_gone=True, limited_by_cluster={"g"}),
            {"busy": INF, "idle": INF},
        ),
    ],
)
def test_what_is_written(readings: DivisionReadings, writes: dict[str, float]) -> None:
    assert in_words(divided(readings).writes) == writes


def test_unread_rates_are_read_those_to_be_limited_first() -> None:
    found = divided(readings_of([NAN, 5.0, NAN]))
    assert found.moves.unread[:, 0].tolist() == [True, False, True]
    assert found.wanted.limited[:, 0].tolist() == [True, True, False]
    # Nothing was received: nothing is read.
    assert not divided(readings_of([NAN] * 3, limits=NO_LIMITS)).moves.unread.any()


def test_default_rates_stay_until_safe_limits_are_due() -> None:
    before = DivisionMemory(groups=("g", "h"), default_rates=np.full((2, 4), 9.0))
    assert divided(readings_of(), before).memory.default_rates is before.default_rates
    safe = np.full((1, 2, 4), 60.0)
    made = divided(readings_of(safe_limits=safe), before)
    assert made.memory.default_rates[:, 0].tolist() == [20.0, 30.0]
    assert made.keep_defaults is None
    # Those of other groups are no rates of these.
    others = divided(readings_of(), before._replace(groups=("g", "i")))
    assert np.isnan(others.memory.default_rates).all()
    assert divided(readings_of(job_gone=True)).keep_defaults == {"g", "h"}


def test_limits_are_in_force_once_all_rates_are_and_until_the_job_is_gone() -> None:
    begun = divided(readings_of())
    assert not begun.memory.in_force.since_ms
    held = divided(readings_of([100.0, 5.0, INF]), begun.memory).memory
    assert held.in_force.since_ms["g"].tolist() == [7.0, -INF]
    gone = divided(readings_of([100.0, 5.0, INF], job_gone=True), held)
    assert not gone.memory.in_force.since_ms


@given(
    limits=st.lists(st.sampled_from([NAN, INF, 1.0, 7.5, 100.0, 1e6]), min_size=8, max_size=8),
    rates=st.lists(st.sampled_from([INF, 1.0, 60.0, 1e4]), min_size=12, max_size=12),
    usage=st.lists(st.sampled_from([NAN, 0.0, 3.0, 90.0, 1e5]), min_size=12, max_size=12),
    ceiling=st.sampled_from([INF, 2.0, 70.0]),
    job_gone=st.booleans(),
)
def test_writes_end(
    limits: list[float], rates: list[float], usage: list[float], ceiling: float, job_gone: bool
) -> None:
    used, in_force = np.array(usage).reshape(3, 4), np.array(rates).reshape(3, 4)
    readings = readings_of(
        limits=np.array(limits).reshape(2, 4),
        usage=used,
        saturated=used > 50.0,
        other_rates=np.full((3, 4), ceiling),
        job_gone=job_gone,
        limited_by_cluster={"g"},
    )
    memory = DivisionMemory()
    for _ in range(_MOST_STEPS):
        standing = readings.rates._replace(in_force=in_force, after_writes=in_force)
        found = divided(readings._replace(rates=standing), memory)
        if not len(found.moves.topic):
            break
        in_force, memory = in_force.copy(), found.memory
        for topic, kind, written in zip(*found.writes[:3], strict=True):
            in_force[topic, 2 * kind : 2 * kind + 2] = written
    assert not len(found.moves.topic)
    assert not found.moves.unread.any()
