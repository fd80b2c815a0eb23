"""The agent of docs/reference/integrate.md runs as written, and obeys the quota job's decisions."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import yaml
from deltalake import DeltaTable

from quotaplane.arrow import unpack
from quotaplane.model import RATE_COLUMNS, group_id
from quotaplane.quota.state import ShardState
from quotaplane.settings import Settings, parse_settings
from quotaplane.streams.quota.program import quota_program
from quotaplane.streams.shard_program import Batch
from quotaplane.transport import open_transport
from quotaplane.transport.base import Message
from quotaplane.wire.reports import decode
from quotaplane.wire.shard_inputs import pack_groups, pack_reports
from quotaplane.wire.signatures import SigningKeys
from tests.unit.repo.pages import ROOT

PAGE = ROOT / "docs/reference/integrate.md"
GROUP, QUOTA, WANTED = "orders", 100.0, 300.0
PATIENCE_S = 120.0


def agent() -> str:
    """The page's only block of Python."""
    _, block = PAGE.read_text("utf-8").split("```python\n")
    return block.partition("```")[0]


class Job:
    """The quota job's program between the two topics, without Spark: a round a call."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.entries: list[dict[str, Any]] = []
        """What was reported of the group, report by report."""
        self._transport = open_transport(settings.transport)
        self._transport.check()
        self._reports = DeltaTable(f"{settings.transport.path}/reports")
        self._program = quota_program(settings, epoch=1)
        keys = SigningKeys.of(settings.limits.signing)
        self._sign = bytes if keys is None else keys.sign
        self._state, self._seq = ShardState(), 0
        row = {"group": GROUP, "group_id": group_id(GROUP), "deleted": False, "version": 1}
        quota = pa.Table.from_pylist([{**row, RATE_COLUMNS[0]: QUOTA}])
        self._groups = [payload for _, payload in pack_groups(quota, 1)]

    def round(self) -> None:
        """Read what is new among the reports, decide, and publish limits."""
        self._seq += 1
        now_ms = time.time_ns() // 1_000_000
        self._reports.update_incremental()
        rows = self._reports.to_pyarrow_table().sort_by("published_at_ms").to_pylist()
        new = rows[len(self.entries) :]
        found = decode(
            [row["value"] for row in new],
            np.array([row["published_at_ms"] for row in new], np.int64),
            [row["append_id"] for row in new],
            now_ms=now_ms,
            reports=self.settings.reports,
        )
        assert found.rejected.num_rows == 0
        headers = found.headers.to_pylist()
        self.entries += [{**headers[row["report"]], **row} for row in found.entries.to_pylist()]
        arrived = {"reports": [payload for _, payload in pack_reports(found, 1)] if new else []}
        self._state, outputs = self._program.run(
            self._state, {**arrived, "groups": self._groups}, Batch(0, self._seq, now_ms)
        )
        self._groups = []
        sent = [
            Message(row["broker"], self._sign(row["value"]))
            for output in outputs
            if output.kind == "messages"
            for row in unpack(output.payload)[0].to_pylist()
        ]
        self._transport.publish(sent)


def test_the_agent_has_about_thirty_lines() -> None:
    assert len([line for line in agent().splitlines() if line.strip()]) <= 36


SIGNING = {"keys": {"a": "0123456789abcdef0123456789abcdef"}, "sign_with": "a"}


@pytest.mark.parametrize(("transition", "signing"), [("fast", SIGNING), ("strict", None)])
def test_the_agent_keeps_to_the_limits_of_the_real_job(
    tmp_path: Path, transition: str, signing: dict[str, Any] | None
) -> None:
    given = {
        "transport": {"kind": "delta", "path": str(tmp_path / "topics")},
        "history": {"path": str(tmp_path / "history")},
        "checkpoint": str(tmp_path / "checkpoint"),
        "reports": {"interval_s": 0.3},
        # Under strict nothing is issued before a lease and the time to be stale are over.
        "brokers": {"stale_after_intervals": 20, "expire_after_intervals": 100},
        "trigger": {"interval_s": 0.3},
        "limits": {"transition": transition, "lease_s": 3, "refresh_rounds": 2, "signing": signing},
    }
    conf, script = tmp_path / "settings.yaml", tmp_path / "agent.py"
    conf.write_text(yaml.safe_dump(given))
    script.write_text(agent())
    job = Job(parse_settings(given))
    command = [sys.executable, str(script), str(conf), "broker-1", GROUP, str(WANTED)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            deadline = time.monotonic() + PATIENCE_S
            while not any(entry["applied_seq"] >= 0 for entry in job.entries[:-2]):
                assert process.poll() is None, process.stderr and process.stderr.read()
                assert time.monotonic() < deadline
                job.round()
                time.sleep(0.1)
        finally:
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, errors) == (0, "")

    first, last = job.entries[0], job.entries[-1]
    assert (first["broker"], first["sequence"], first["applied_epoch"]) == ("broker-1", 1, -1)
    used, refused = RATE_COLUMNS[0], f"throttled_{RATE_COLUMNS[0]}"
    # Before its first limit a broker is free, or under strict has nothing.
    idle, busy = (refused, used) if transition == "fast" else (used, refused)
    assert first[idle] == 0.0 < first[busy] <= WANTED
    assert last["applied_epoch"] == 1
    assert 0.0 < last[used] <= QUOTA
    assert last[used] / (last[used] + last[refused]) == pytest.approx(QUOTA / WANTED)
