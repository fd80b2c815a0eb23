"""What the throttle job counts of a round for its status line."""

from __future__ import annotations

import pyarrow as pa
import pytest

from quotaplane.metrics.exposition import registry_of
from quotaplane.streams.status import JobStatus
from quotaplane.streams.throttle.job import COUNTERS, GAUGES, status_update
from tests.unit.metrics_cases import scraped


def test_the_status_has_what_was_decided_and_what_was_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("time.time", lambda: 102.5)
    decisions = pa.table(
        {
            "requested_at_ms": [99_000, 100_000, 98_000],
            "admitted": [True, False, True],
            "throttle_ms": [0.0, 0.0, 20.0],
        }
    )
    rejected = pa.table({"reason": ["bad_units", "no_id", "bad_units"]})
    status = JobStatus(COUNTERS, GAUGES, lambda: 0.0)
    status.round_began(0)
    status.add(status_update({"decisions": decisions, "rejected_events": rejected}))
    status.round_ended()
    found = scraped(registry_of("throttle", status.readings))
    names = ("requests", "requests_refused", "requests_delayed", "dead_letters")
    assert [found[f"quotaplane_{name}_total"][()] for name in names] == [3, 1, 1, 3]
    assert found["quotaplane_rejected_total"][("bad_units",)] == 2
    assert found["quotaplane_lag_seconds"] == {(): 2.5}
    assert status.period().startswith(
        "rounds=1 events=3 refused=1 delayed=1 rejected=3 (bad_units=2 no_id=1) lag_s=2.5 backlog=-"
    )


def test_a_round_without_events_changes_nothing_but_the_number_of_rounds() -> None:
    status = JobStatus(COUNTERS, GAUGES, lambda: 0.0)
    status.round_began(0)
    status.add(status_update({}))
    status.round_ended()
    assert status.total().endswith("rounds=1 events=0 refused=0 delayed=0 rejected=0")
