"""The enforcer's clock is wrong, or is set while it runs: leases, and what it prints."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.enforce.agent.limits_listener import LimitsListener
from quotaplane.enforce.agent.quota_table import QuotaTable
from quotaplane.settings import parse_settings
from quotaplane.transport.base import Polled, Portion
from quotaplane.wire.limits import encode_limits
from tests.unit.enforce.enforce_cluster import EPOCH, history_in

T0 = 1_790_000_000_000
LEASE_S = 120
HOUR_S = 3600
HELD, SAFE = 20.0, 5.0


class Rig:
    """A listener; real time begins at T0, its wall clock and the job's are off by so much."""

    def __init__(self, folder: Path, off_s: float = 0.0) -> None:
        history = history_in(folder)
        self.real_s, self.off_s, self.job_off_s, self.seq = 0.0, off_s, 0.0, 0
        self.lines: list[str] = []
        self.waiting: list[bytes] = []
        settings = parse_settings(
            {
                "transport": {"kind": "delta", "path": "x"},
                "history": {"path": history.path},
                "checkpoint": "c",
            }
        )
        table = QuotaTable(history, Conditions(self.lines.append))
        link: Any = self
        self.listener = LimitsListener(
            link,
            table,
            settings,
            Conditions(self.lines.append),
            lambda: T0 + (self.real_s + self.off_s) * 1000.0,
            lambda: self.real_s * 1000.0,
        )
        self.listener.received.expect(["b"], ["g"])
        asyncio.run(self.listener.listen())

    def poll_limits(self) -> Portion:
        took, self.waiting = self.waiting, []
        return Portion([Polled("b", value, "limits@0") for value in took], False, True)

    def round(self, *, publishes: bool = True) -> None:
        """Five seconds pass, and a limit is published; it is received half a second later."""
        self.seq += 1
        if publishes:
            value = encode_limits(
                broker="b",
                shard=0,
                epoch=EPOCH,
                seq=self.seq,
                issued_at_ms=T0 + round((self.real_s + self.job_off_s) * 1000),
                lease_ms=LEASE_S * 1000,
                groups=["g"],
                limits=np.array([[HELD]]),
                safe_limits=np.array([[SAFE]]),
            )
            self.waiting.append(value)
        self.real_s += 0.5
        asyncio.run(self.listener.listen())
        self.real_s += 4.5

    def rounds(self, seconds: int, *, publishes: bool = True) -> None:
        for _ in range(seconds // 5):
            self.round(publishes=publishes)

    def limit(self) -> float:
        one = np.zeros(1, np.int64)
        in_force = self.listener.received.in_force(("b",), ("g",), one, one, self.real_s * 1000.0)
        return float(in_force[0, 0])


@pytest.mark.parametrize("off_s", [-30, -1, 0, 1, 30])
def test_small_differences_end_no_lease(tmp_path: Path, off_s: int) -> None:
    rig = Rig(tmp_path, off_s)
    rig.rounds(60)
    assert rig.limit() == HELD
    rig.rounds(LEASE_S + 5, publishes=False)
    assert rig.limit() == SAFE


def test_an_hour_ahead_means_safe_limits_and_a_line(tmp_path: Path) -> None:
    rig = Rig(tmp_path, HOUR_S)
    rig.rounds(60)
    assert rig.limit() == SAFE
    assert rig.listener.clock.age_s == HOUR_S + 0.5
    (line,) = rig.lines
    assert line.startswith(
        "clock of limits: limits arrive 3600 s after the quota job issued them: this host's clock "
        "is ahead of that of the job's host, or messages wait in the limits topic. Limits end so "
        "much too early"
    )
    rig.off_s = 0.0  # it is put right
    rig.rounds(60)
    assert rig.limit() == HELD
    assert rig.lines[1].startswith("this host's clock was set back by 3600 s")
    assert rig.lines[2] == "clock of limits: over after 0 s"


def test_an_hour_behind_means_that_limits_are_refused_and_a_line(tmp_path: Path) -> None:
    rig = Rig(tmp_path, -HOUR_S)
    rig.rounds(60)
    assert np.isnan(rig.limit())
    assert any("synchronise the clocks" in line for line in rig.lines)
    assert any(
        "limits arrive 3600 s before the quota job issued them: this host's clock" in line
        for line in rig.lines
    )


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
def test_a_step_neither_ends_nor_extends_the_leases_that_run(tmp_path: Path, step_s: int) -> None:
    """After a lease without a usable limit the safe one applies, whichever way it was set."""
    rig = Rig(tmp_path)
    rig.rounds(60)
    rig.off_s = step_s
    rig.rounds(LEASE_S - 10)
    assert rig.limit() == HELD
    rig.rounds(15)
    assert rig.limit() == SAFE
    assert rig.lines[0].startswith("this host's clock was set")
    assert rig.listener.clock.steps == 1
    rig.off_s = 0
    rig.rounds(10)
    assert rig.limit() == HELD


def test_a_job_whose_clock_is_put_right_goes_on_to_count(tmp_path: Path) -> None:
    """Its newest limits were issued before earlier ones."""
    rig = Rig(tmp_path, 20)
    rig.job_off_s = 45.0
    rig.rounds(30)
    rig.job_off_s = 0.0
    rig.rounds(30)
    assert rig.limit() == HELD
    assert rig.listener.received.issued_at_ms == T0 + 55_000
    arrived_ms = rig.listener.arrived_ms
    assert arrived_ms == 55_500.0
    rig.rounds(LEASE_S + 5, publishes=False)
    assert rig.limit() == SAFE
    assert rig.listener.arrived_ms == arrived_ms  # the job is gone since then


def test_a_message_that_waited_for_the_start_shows_no_clock(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.listener.caught_up = False
    rig.job_off_s = -HOUR_S
    rig.round()
    assert (rig.listener.clock.age_s, rig.lines) == (None, [])
