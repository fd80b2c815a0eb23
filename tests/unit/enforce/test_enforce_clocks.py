"""The enforcer's clock is wrong, or is set while it runs: leases, and what it prints."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.unit.enforce.enforce_cluster import HELD as HELD_RATES
from tests.unit.enforce.enforce_cluster import FakePulsar
from tests.unit.enforce.listener_rig import LEASE_S, T0, ListenerRig, message

HOUR_S = 3600
HELD, SAFE = 20.0, 5.0


class Rig(ListenerRig):
    """The clock of the job's host is off by ``job_off_s``."""

    job_off_s = 0.0

    async def rounds(self, seconds: int = 5, *, publishes: bool = True) -> None:
        """Every five seconds a limit is published; it is received half a second later."""
        if not self.real_s:
            await self.listener.listen()
        for _ in range(seconds // 5):
            at_ms = T0 + round((self.real_s + self.job_off_s) * 1000)
            safe = np.array([[SAFE]])
            self.real_s += 0.5
            sent = message("b", HELD, seq=int(self.real_s), issued_at_ms=at_ms, safe_limits=safe)
            await self.hears(*[sent] * publishes)
            self.real_s += 4.5


@pytest.mark.parametrize("off_s", [-30, -1, 0, 1, 30])
async def test_small_differences_end_no_lease(tmp_path: Path, off_s: int) -> None:
    rig = Rig(tmp_path, off_s=off_s)
    await rig.rounds(60)
    assert rig.limit() == HELD
    await rig.rounds(LEASE_S + 5, publishes=False)
    assert rig.limit() == SAFE


async def test_an_hour_ahead_means_safe_limits_and_a_line(tmp_path: Path) -> None:
    rig = Rig(tmp_path, off_s=HOUR_S)
    await rig.rounds(60)
    assert rig.limit() == SAFE
    assert rig.listener.clock.age_s == HOUR_S + 0.5
    (line,) = rig.lines
    assert line.startswith(
        "clock of limits: limits arrive 3600 s after the quota job issued them: this host's clock "
        "is ahead of that of the job's host, or messages wait in the limits topic. Limits end so "
        "much too early"
    )
    rig.off_s = 0.0  # it is put right
    await rig.rounds(60)
    assert rig.limit() == HELD
    assert rig.lines[1].startswith("this host's clock was set back by 3600 s")
    assert rig.lines[2] == "clock of limits: over after 0 s"


async def test_an_hour_behind_means_that_limits_are_refused_and_a_line(tmp_path: Path) -> None:
    rig = Rig(tmp_path, off_s=-HOUR_S)
    await rig.rounds(60)
    assert np.isnan(rig.limit())
    assert any("synchronise the clocks" in line for line in rig.lines)
    early = "limits arrive 3600 s before the quota job issued them: this host's clock"
    assert any(early in line for line in rig.lines)


@pytest.mark.parametrize("step_s", [-HOUR_S, HOUR_S])
async def test_a_step_neither_ends_nor_extends_leases(tmp_path: Path, step_s: int) -> None:
    """After a lease without a usable limit the safe one applies, whichever way it was set."""
    rig = Rig(tmp_path)
    await rig.rounds(60)
    rig.off_s = step_s
    await rig.rounds(LEASE_S - 10)
    assert rig.limit() == HELD
    await rig.rounds(15)
    assert rig.limit() == SAFE
    assert rig.lines[0].startswith("this host's clock was set")
    assert rig.listener.clock.steps == 1
    rig.off_s = 0
    await rig.rounds(10)
    assert rig.limit() == HELD


async def test_leases_of_a_running_enforcer_end_by_the_steady_clock(busy: FakePulsar) -> None:
    busy.limit(300.0, safe=60.0)
    async with busy.enforcing() as running:
        await running.until(lambda: busy.published() == HELD_RATES)
        running.set_by_ms += HOUR_S * 1000
        await running.until(lambda: running.enforcer.status().clock_steps == 1)
        await running.ticks()
        assert busy.published() == HELD_RATES
        running.now_ms += LEASE_S * 1000 + 1
        await running.until(lambda: busy.published() == {"a": 60, "b": 2, "c": 2})


async def test_a_job_whose_clock_is_put_right_goes_on_to_count(tmp_path: Path) -> None:
    """Its newest limits were issued before earlier ones."""
    rig = Rig(tmp_path, off_s=20)
    rig.job_off_s = 45.0
    await rig.rounds(30)
    rig.job_off_s = 0.0
    await rig.rounds(30)
    assert rig.limit() == HELD
    assert rig.listener.received.issued_at_ms == T0 + 55_000
    arrived_ms = rig.listener.arrived_ms
    assert arrived_ms == 55_500.0
    await rig.rounds(LEASE_S + 5, publishes=False)
    assert rig.limit() == SAFE
    assert rig.listener.arrived_ms == arrived_ms  # the job is gone since then


async def test_a_message_that_waited_for_the_start_shows_no_clock(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.opened_with = 2
    rig.job_off_s = -HOUR_S
    await rig.rounds()
    assert (rig.listener.clock.age_s, rig.lines) == (None, [])
