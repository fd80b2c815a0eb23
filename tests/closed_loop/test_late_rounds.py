"""A job that was away, or whose rounds are slow, and brokers that hold each limit for a lease."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from quotaplane.model import DIMENSIONS
from quotaplane.settings import Settings
from tests.closed_loop.conftest import Loop, settings_with

QUOTA, GROUPS = 100.0, tuple(f"g{number:02d}" for number in range(24))
KILLED_S, AWAY_S, FIRST_ROUND_S = 203, 81, 10  # after learning mode
BACK_S = KILLED_S + AWAY_S + FIRST_ROUND_S
BOTH = pytest.mark.parametrize("transition", ["fast", "strict"])


def run(settings: Settings, has_round: Callable[[int], bool], seconds: int) -> Loop:
    """Run two brokers, one of which wants most of each quota, so that a safe limit would show."""
    wants = {group: {"a": [(0.0, 150.0)], "b": [(0.0, 10.0)]} for group in GROUPS}
    quotas = {group: {DIMENSIONS[0]: QUOTA} for group in GROUPS}
    return Loop(wants, quotas, settings=settings, has_round=has_round).run(seconds)


def limits(loop: Loop) -> np.ndarray:
    """(seconds, groups, brokers) in force at the brokers, by their own leases."""
    return np.stack([loop.series("limit", group) for group in GROUPS], axis=1)


@pytest.mark.nightly
@BOTH
@pytest.mark.parametrize("every_s", [1, 5])
def test_no_lease_ends_while_the_job_is_killed_and_started_again(
    transition: str, every_s: int
) -> None:
    """The lease is 120 s; the job is away for 81 s, and its first round takes 10 s."""
    found = settings_with(
        limits={"transition": transition, "lease_s": 120.0}, reports={"interval_s": every_s}
    )

    def has_round(number: int) -> bool:
        return not KILLED_S <= number * every_s < BACK_S

    loop = run(found, has_round, (BACK_S + 150) // every_s)
    in_force = np.repeat(limits(loop), every_s, axis=0)
    last_s = KILLED_S + every_s  # brokers have the limits of the last round
    before = in_force[last_s]
    assert before[:, 0] == pytest.approx(QUOTA - before[:, 1])
    assert (before[:, 1] < 30.0).all()
    assert (in_force[last_s : BACK_S + 1] == before).all()
    assert (np.abs(in_force[BACK_S:, :, 1] - before[:, 1]) < 10.0).all(), "no safe limit: 50"


@pytest.mark.nightly
@BOTH
@pytest.mark.parametrize(("shortest_s", "longest_s"), [(3, 8), (20, 20)])
def test_no_lease_ends_and_limits_move_while_rounds_are_slow(
    transition: str, shortest_s: int, longest_s: int
) -> None:
    settings: dict[str, Any] = {"limits": {"transition": transition, "lease_s": 120.0}}
    random = np.random.default_rng(1)
    rounds = set(np.cumsum(random.integers(shortest_s, longest_s + 1, 400)).tolist())
    loop = run(settings_with(**settings), rounds.__contains__, 600)
    in_force = limits(loop)[200:]
    assert (in_force[:, :, 1] < 30.0).all(), "no safe limit: 50"
    assert (in_force[:, :, 0] > 70.0).all()
    letters = [(row["reason"], row["detail"]) for row in (*loop.rejected, *loop.letters)]
    assert [reason for reason, _ in letters if reason == "stale"] == []
