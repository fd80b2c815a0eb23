"""A job whose rounds are slow: what it says, and which clocks it names. One clock, given times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.model import Round
from quotaplane.quota.state import ShardState
from quotaplane.round_counts import RoundCounts
from quotaplane.streams.quota.finisher import QuotaFinisher
from quotaplane.streams.quota.report_watch import Arrivals, ReportWatch
from quotaplane.streams.shard_program import Batch
from tests.unit.agents.condition_cases import Printed
from tests.unit.streams.shard_cases import PROGRAM, packed, usage_report

T0 = 1_000_000_000
LEASE_MS = 120_000
STEP = replace(PROGRAM.step, stale_after_ms=10_000.0, expire_after_ms=15_000.0, lease_ms=LEASE_MS)
JOB = replace(PROGRAM, step=STEP)


def payload(made: Sequence[tuple[str, int]], now_ms: int) -> list[bytes]:
    """Reports of brokers, published at these times, as the round at ``now_ms`` gets them."""
    values = [usage_report(name, sequence=at_ms, window_ms=5000) for name, at_ms in made]
    return packed(*values, at_ms=np.array([at_ms for _, at_ms in made]), now_ms=now_ms)


class Job:
    """Brokers that report each ``interval_ms``; rounds that read all, and what is said of them."""

    def __init__(self, interval_ms: int, **behind_ms: int) -> None:
        self.interval_ms, self.behind_ms = interval_ms, behind_ms
        self.watch = ReportWatch(interval_ms / 1000)
        self.state, self.now_ms, self.made_ms, self.seq = ShardState(), T0, T0, 0
        self.heard, self.lines = Printed(), list[tuple[str, str]]()
        self.used = self.made = 0

    def rounds(self, count: int, took_ms: int) -> Job:
        """Rounds one behind the other, of this length."""
        for _ in range(count):
            made = []
            while self.made_ms < self.now_ms:
                made += [(name, self.made_ms - off) for name, off in self.behind_ms.items()]
                self.made_ms += self.interval_ms
            arrived = {"reports": payload(made, self.now_ms)} if made else {}
            self.state, outputs = JOB.run(self.state, arrived, Batch(0, self.seq, self.now_ms))
            counts = RoundCounts()
            for output in outputs:
                if output.kind == "counts":
                    counts = RoundCounts.from_bytes(output.payload)
            self.heard.now_s = began_s = self.now_ms / 1000
            self.watch.clocks.note(began_s, counts.old_reports_s)
            arrivals = Arrivals(counts.reports)
            self.watch.round_ended(began_s, arrivals, self.heard.conditions, took_ms / 1000)
            self.lines += self.heard.lines()
            self.used, self.made = self.used + counts.reports, self.made + len(made)
            self.seq, self.now_ms = self.seq + 1, self.now_ms + took_ms
        return self


@pytest.mark.parametrize("round_ms", [1_000, 8_000])
@pytest.mark.parametrize("behind_s", [19, 60])
def test_a_clock_that_is_behind_is_named_in_slow_rounds_too(round_ms: int, behind_s: int) -> None:
    job = Job(5_000, a=0, b=behind_s * 1000).rounds(30, round_ms)
    ((name, off_s),) = job.watch.clocks.wrong().items()
    assert name == "b"
    assert off_s == pytest.approx(behind_s, abs=1.0)
    assert job.used == job.made
    (line,) = [text for _, text in job.lines if "clock" in text]
    assert line.startswith(f"wrong clocks: the clock of b is {behind_s}") or behind_s - off_s < -0.5
    assert "behind this host's" in line
    job.rounds(20, 1_000)
    slow = [kind for kind, text in job.lines if "clock" not in text]
    assert slow == (["warning", "recovered"] if round_ms > 5_000 else [])


@pytest.mark.nightly
def test_rounds_are_called_slow_again_after_ten_minutes_only() -> None:
    job = Job(5_000, a=0).rounds(160, 8_000)  # 21 minutes
    assert [kind for kind, _ in job.lines] == ["warning"] * 3
    assert "longer than reports.interval_s (5 s)" in job.lines[0][1]


def read(finisher: QuotaFinisher, **counts: Any) -> Arrivals:
    """The arrivals that the finisher counts in a round with these counts."""
    finisher.begin()
    packed = {"counts": [RoundCounts(shard=0, **counts).to_bytes()]}
    finisher.finish(Round(1, 1, T0), packed)
    return finisher._arrivals


def test_old_reports_are_no_evidence_after_a_round_that_did_not_read_all() -> None:
    finisher = QuotaFinisher(
        ReportWatch(5.0), lambda seq: {}, interval_s=5.0, lease_s=120.0, most_per_batch=100
    )
    old = {"b": 60.0}
    assert read(finisher, reports=40, old_reports_s=old).ages_s == old
    assert read(finisher, reports=95, old_reports_s=old).ages_s == old
    assert read(finisher, reports=95, old_reports_s=old).ages_s == {}
    assert read(finisher, reports=40, old_reports_s=old).ages_s == {}
    assert read(finisher, reports=40, old_reports_s=old).ages_s == old


def test_the_newest_report_of_each_broker_is_judged_and_not_the_enforcers() -> None:
    state, _ = JOB.run(ShardState(), {"reports": payload([("a", T0)], T0)}, Batch(0, 0, T0))
    now_ms = T0 + 20_000
    made = [("a", T0 - 11_000), ("b", T0 - 11_000), ("a", now_ms), ("c", T0 - 9_000)]
    _, outputs = JOB.run(state, {"reports": payload(made, now_ms)}, Batch(0, 1, now_ms))
    (counts,) = [RoundCounts.from_bytes(each.payload) for each in outputs if each.kind == "counts"]
    assert counts.old_reports_s == {"b": 31.0}
    times = [T0 - 11_000, now_ms]
    headers = pa.table({"broker": ["b", "b"], "published_at_ms": times, "observed": [True, False]})
    assert JOB._old_reports_s(state, headers, Round(1, 1, now_ms)) == {}
    headers = headers.slice(0, 1)
    assert JOB._old_reports_s(state, headers, Round(1, 1, now_ms)) == {}
