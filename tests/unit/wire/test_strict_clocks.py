"""Under strict: a broker whose reports are too old to issue limits on, beside another one."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from quotaplane.quota.state import ShardState
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.shard_program import Batch
from quotaplane.wire.limits import decode_limits
from tests.unit.streams.shard_cases import (
    group_changes,
    job_settings,
    packed,
    tables,
    usage_report,
)

T0 = 1_790_000_000_000
QUOTA, LEASE_S = 1000.0, 60
LIMITS = {"transition": "strict", "lease_s": float(LEASE_S)}
PROGRAM = quota_program(job_settings(reports={"interval_s": 5.0}, limits=LIMITS), epoch=1)
EXPIRE_S = PROGRAM.step.lease.forgotten_after_ms / 1000
QUOTAS = group_changes("g", rate=QUOTA, dimensions=1)


class Cluster:
    """Two brokers that each want all of the quota; each has a clock that is so much behind."""

    def __init__(self) -> None:
        self.state, self.seq = ShardState(), 0
        self.behind_s = {"a": 0.0, "b": 0.0}
        self.held: dict[str, tuple[float, int, float]] = {}
        """(limit, its round, time of its arrival) of each broker."""
        self.statuses = list[tuple[str, str]]()
        self.recorded = Counter[str]()
        self.old_reports_s: dict[str, float] = {}

    def limit(self, broker: str, at_s: float) -> float:
        """In force at the broker, which has no safe limit."""
        limit, _, arrived_s = self.held.get(broker, (0.0, 0, 0.0))
        return limit if at_s < arrived_s + LEASE_S else 0.0

    def round(self, at_s: float, *names: str) -> None:
        """A round half a second after these brokers reported."""
        payloads = []
        for name in names:
            used, applied = self.limit(name, at_s), self.held.get(name, (0.0, -1, 0.0))[1]
            value = usage_report(
                name,
                sequence=self.seq + 1,
                window_ms=5000,
                usage=np.array([[used, 0, 0, 0]]),
                throttled=np.array([[QUOTA - used, 0, 0, 0]]),
                applied=(1, self.seq - 1) if self.seq else None,
                applied_seqs=np.array([applied]) if self.seq else None,
            )
            made_ms = T0 + round(1000 * (at_s - 0.5 - self.behind_s[name]))
            payloads += packed(value, at_ms=made_ms, now_ms=T0 + round(1000 * at_s))
        arrived = {"reports": payloads} if payloads else {}
        if not self.seq:
            arrived["groups"] = QUOTAS
        batch = Batch(0, self.seq, T0 + round(1000 * at_s))
        self.state, outputs = PROGRAM.run(self.state, arrived, batch)
        found = tables(outputs)
        for counts in found.get("counts", ()):
            self.old_reports_s = counts.get("old_reports_s", {})
        for row in found.get("messages", ()):
            update = decode_limits(row["value"])
            if update.groups:
                self.held[row["broker"]] = (float(update.limits[0][0]), update.seq, at_s)
        self.statuses += [(row["broker"], row["status"]) for row in found.get("brokers", ())]
        self.recorded.update(row["broker"] for row in found.get("usage", ()))
        self.seq += 1
        total = self.limit("a", at_s) + self.limit("b", at_s)
        assert total <= QUOTA * 1.001, "strict"


@pytest.mark.nightly
@pytest.mark.parametrize("behind_s", [11, 100])
@pytest.mark.parametrize("together", [True, False])
def test_the_share_of_a_broker_whose_clock_falls_behind_is_free_after_its_lease(
    behind_s: int, together: bool
) -> None:
    """It goes on to report; with its clock right again it has its share again."""
    cluster = Cluster()

    def run(begin_s: int, end_s: int) -> None:
        for at_s in range(begin_s, end_s, 5):
            if together:
                cluster.round(at_s, "a", "b")
            else:
                cluster.round(at_s, "a")
                cluster.round(at_s + 2, "b")

    run(0, 200)
    halves = pytest.approx([QUOTA / 2] * 2, rel=0.05)
    assert [cluster.limit(name, 200) for name in "ab"] == halves
    cluster.statuses.clear()
    cluster.behind_s["a"] = behind_s
    before = cluster.recorded["a"]
    run(200, 400)
    assert 200 + EXPIRE_S < 300
    assert cluster.limit("b", 400) == pytest.approx(QUOTA, rel=0.05)
    assert cluster.statuses == [("a", "stale"), ("a", "gone")]
    assert cluster.recorded["a"] >= before + 38, "its usage is recorded all the same"
    if together and behind_s > 15:  # from 10 s and a round
        assert cluster.old_reports_s == {"a": pytest.approx(behind_s + 0.5)}
    cluster.behind_s["a"] = 0.0
    run(400, 600)
    assert [cluster.limit(name, 600) for name in "ab"] == halves
    assert cluster.statuses[2:] == [("a", "live")]


@pytest.mark.nightly
def test_a_job_that_works_off_a_backlog_takes_nobody_for_late() -> None:
    """All reports are old then, so that no limit is issued to anybody."""
    cluster = Cluster()
    for at_s in range(0, 200, 5):
        cluster.round(at_s, "a", "b")
    cluster.statuses.clear()
    cluster.behind_s = {"a": 75.0, "b": 80.0}
    for at_s in range(275, 800, 5):
        cluster.round(at_s, "a", "b")
    assert cluster.statuses == []
