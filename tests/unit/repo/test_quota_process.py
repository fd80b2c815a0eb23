"""The job's process without Spark, which benchmarks run: it has all that the job's own has."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.soak_day.quota_process import QuotaProcess, Reported
from quotaplane.settings import load_settings
from quotaplane.wire.reports import encode_report
from tests.job import history_table, put_quotas, write_conf
from tests.unit.history.history_cases import NOON_MS

LEASE_S = 30.0


def report(sequence: int, published_at_ms: int) -> Reported:
    usage = np.array([[float(sequence), np.nan]])
    value = encode_report(
        broker="b", started_at_ms=1, sequence=sequence, window_ms=1000, groups=["g"], usage=usage
    )
    return Reported("b", value, published_at_ms)


def test_it_limits_goes_on_after_a_kill_and_records_what_a_round_leaves_out(tmp_path: Path) -> None:
    transport = {"kind": "delta", "path": str(tmp_path / "topics")}
    conf = write_conf(tmp_path, transport, shards=1, limits={"lease_s": LEASE_S})
    settings = load_settings(conf)
    put_quotas(settings, g=100.0)
    process = QuotaProcess(settings, tmp_path)
    late_ms = NOON_MS - int(2 * LEASE_S * 1000)
    for seq in range(4):
        if seq == 2:
            process = QuotaProcess(settings, tmp_path)
        now_ms = NOON_MS + 1000 * seq
        reports = [report(10 + seq, now_ms - 100)]
        if seq in (0, 3):
            reports.append(report(1 + seq, late_ms + seq))
        done = process.run(seq, now_ms, reports)
        assert done.metrics > 0
    rows = history_table(settings, "usage").to_pylist()
    used = {row["publish_messages_per_s"]: row["counted"] for row in rows}
    assert used == {10: True, 11: True, 12: True, 13: True, 1: False, 4: False}
    assert history_table(settings, "left_out").num_rows == 2
    assert history_table(settings, "rejected_reports").num_rows == 0
