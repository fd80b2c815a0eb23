"""The real job while its host's clock is set by an hour, forward and back."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from quotaplane.client.agent import BrokerClient
from quotaplane.transport import open_broker_link
from tests.job import RunningJob, put_quotas, write_conf
from tests.wall_clock import WallClock, needs_compiler

HOUR_S = 3600


@pytest.mark.nightly
@needs_compiler
def test_the_job_goes_on_within_seconds_after_each_step(tmp_path: Path) -> None:
    clock = WallClock(tmp_path)
    conf = write_conf(
        tmp_path / "job",
        trigger={"interval_s": 1.0},
        reports={"interval_s": 1.0},
        limits={"lease_s": 20.0},
        shards=1,
    )
    with RunningJob(conf, variables=clock.variables) as job:
        put_quotas(job.settings, g=100.0)
        link = open_broker_link(job.settings.transport, limits_from="earliest")
        broker = BrokerClient(
            link,
            "b",
            now_ms=lambda: time.time_ns() // 1_000_000,
            steady_ms=lambda: time.monotonic() * 1000.0,
            groups=["g"],
        )

        def reports_until(done: Callable[[], object], within_s: float = 120.0) -> float:
            """The broker, whose clock is right, reports every second; how long it took."""
            begun_s = time.monotonic()

            def go_on() -> object:
                broker.use("g", publish_messages=10.0)
                broker.report()
                broker.poll()
                time.sleep(0.9)
                return done()

            job.wait_until(go_on, within_s)
            return time.monotonic() - begun_s

        def prints(text: str, times: int = 1) -> Callable[[], bool]:
            return lambda: sum(text in line for line in job.printed()) >= times

        def more_rounds(number: int = 3) -> Callable[[], bool]:
            before = job.rounds()
            return lambda: job.rounds() >= before + number

        def is_limited() -> bool:
            return bool(np.isfinite(broker.limit("g")["publish_messages"]))

        reports_until(lambda: is_limited() and job.rounds() >= 3, within_s=300.0)
        took_s = []
        steps = itertools.pairwise([0, HOUR_S, 0, -HOUR_S, 0])
        for number, (before, after) in enumerate(steps, start=1):
            clock.set_by_s(after)
            where = "forward" if after > before else "back"
            reports_until(prints(f"this host's clock was set {where} by 3600 s", (number + 1) // 2))
            took_s.append(reports_until(more_rounds()))
            if after > 0:
                reports_until(prints("3600"))
                reports_until(prints("this host's clock is ahead, or"))
            elif after < 0:
                reports_until(prints("this host's clock is behind, or"))
            else:
                if before < 0:  # after a step back the query is new, and knows of no warning
                    reports_until(prints("time of reports: over after"))
                reports_until(is_limited)
        print("seconds until three more rounds after each step:", [round(s, 1) for s in took_s])
        assert job.process.poll() is None
