"""``transition: strict`` after a start without state, whatever ran before and however it ended.

A lease and ``brokers.stale_after_intervals`` intervals after the first round (or after the limits
of earlier jobs have expired, if that is later), limits in force add up to at most the quota. Safe
limits of an earlier ``fast`` job never expire, so a broker that has one counts only once it obeys
this job.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.closed_loop.strict_chaos import NETWORKS, Chaos, totals

LOWERED = {"g": 40.0, "t": 20.0}


def run(chaos: Chaos, seconds: int) -> None:
    for _ in chaos.run(seconds):
        pass


def killed_and_started(chaos: Chaos, rng: np.random.Generator, **limits: Any) -> None:
    """Kill the job and start one without state, at once or later, perhaps with lower quotas."""
    chaos.kill(reports_are_kept=bool(rng.random() < 0.5))
    run(chaos, int(rng.choice([0, 3, 10, 25])))
    if rng.random() < 0.5:
        chaos.quota |= LOWERED
    chaos.start(**limits)


def hold(chaos: Chaos, seconds: int, *, only_obedient: bool = False) -> None:
    """Run, and check the limits in force from the promised time on."""
    quota, most = np.array([chaos.quota["g"], chaos.quota["t"]]), np.zeros(2)
    for in_force in chaos.run(seconds):
        if chaos.now_ms < chaos.promised_from_ms:
            continue
        total = totals(np.where(chaos.obeys_this_job() | (not only_obedient), in_force, 0.0))
        late_s = (chaos.now_ms - chaos.promised_from_ms) / 1000
        assert (total <= quota * (1 + 1e-9)).all(), f"{late_s} s into the promise: {in_force}"
        most = np.maximum(most, total)
    # Limits were given at all.
    assert (most > (0.4 if chaos.loss == 0.0 else 0.0) * quota).all()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [0, 1, 2, 121, 122])
@NETWORKS
def test_after_a_strict_job_without_its_state(network, seed: int) -> None:
    rng = np.random.default_rng([seed, 2])
    chaos = Chaos(seed, brokers=3 + seed % 4, **network)
    chaos.start(lease_s=float(rng.choice([12.0, 30.0])))
    run(chaos, int(rng.integers(10, 35)))
    for _ in range(int(rng.integers(0, 3))):
        killed_and_started(chaos, rng, lease_s=float(rng.choice([12.0, 20.0])))
        run(chaos, int(rng.integers(2, 20)))
    killed_and_started(chaos, rng)
    hold(chaos, seconds=75)


@pytest.mark.nightly
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("safe", [False, True], ids=["no safe limits", "safe limits"])
@NETWORKS
def test_after_a_fast_job(network, safe: bool, seed: int) -> None:
    rng = np.random.default_rng([seed, 4 if safe else 3])
    chaos = Chaos(seed, brokers=3 + seed % 4, **network)
    chaos.start(transition="fast", **({} if safe else {"safe_share": 0.0}))
    run(chaos, int(rng.integers(10, 35)))
    killed_and_started(chaos, rng)
    hold(chaos, seconds=60, only_obedient=safe)
