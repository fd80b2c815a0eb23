"""The agent of docs/reference/integrate.md runs as written, and obeys the quota job's decisions."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deltalake import DeltaTable

from benchmarks.soak_day.quota_process import QuotaProcess, Reported
from quotaplane.client.agent import BrokerClient
from quotaplane.groups.attachments import part_of
from quotaplane.model import RATE_COLUMNS
from quotaplane.settings import Settings, load_settings
from quotaplane.transport import open_broker_link, open_transport
from quotaplane.transport.base import Message
from quotaplane.wire.attachments import AttachmentsMessage, encode_attachments
from quotaplane.wire.reports import decode
from tests.job import history_table, put_quotas, write_conf
from tests.unit.repo.pages import ROOT

PAGE = ROOT / "docs/reference/integrate.md"
GROUP, QUOTA, WANTED = "orders", 100.0, 300.0
PATIENCE_S = 120.0


def blocks() -> list[str]:
    """The page's blocks of Python: the agent, and what it asks about attachments."""
    _, *found = PAGE.read_text("utf-8").split("```python\n")
    return [block.partition("```")[0] for block in found]


class Job:
    """The quota job's process between the two topics, without Spark: a round a call."""

    def __init__(self, settings: Settings, folder: Path) -> None:
        self.settings = settings
        self.entries: list[dict[str, Any]] = []
        """Entries that were reported of the group, report by report."""
        self._transport = open_transport(settings.transport)
        self._transport.check()
        self._reports = DeltaTable(f"{settings.transport.path}/reports")
        put_quotas(settings, **{GROUP: QUOTA})
        self._process = QuotaProcess(settings, folder)
        self._seq = 0

    def round(self) -> None:
        """Read what is new among the reports, decide, and publish limits."""
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
        reports = [Reported("", row["value"], row["published_at_ms"]) for row in new]
        self._transport.publish(self._process.run(self._seq, now_ms, reports).messages)
        self._seq += 1


SIGNING = {"keys": {"a": "0123456789abcdef0123456789abcdef"}, "sign_with": "a"}


@pytest.mark.parametrize(("transition", "signing"), [("fast", SIGNING), ("strict", None)])
def test_the_agent_keeps_to_the_limits_of_the_real_job(
    tmp_path: Path, transition: str, signing: dict[str, Any] | None
) -> None:
    conf = write_conf(
        tmp_path,
        {"kind": "delta", "path": str(tmp_path / "topics")},
        reports={"interval_s": 0.3},
        # Under strict nothing is issued before a lease and the time to be stale are over.
        brokers={"stale_after_intervals": 20, "expire_after_intervals": 100},
        trigger={"interval_s": 0.3},
        limits={"transition": transition, "lease_s": 3, "refresh_rounds": 2, "signing": signing},
    )
    script = tmp_path / "agent.py"
    script.write_text(blocks()[0])
    job = Job(load_settings(conf), tmp_path)
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
    assert last["applied_epoch"] == history_table(job.settings, "rounds")["epoch"][0].as_py()
    assert 0.0 < last[used] <= QUOTA
    assert last[used] / (last[used] + last[refused]) == pytest.approx(QUOTA / WANTED)


def test_an_agent_asks_who_belongs_to_which_group(tmp_path: Path) -> None:
    settings = load_settings(write_conf(tmp_path))
    transport = open_transport(settings.transport)
    transport.check()
    names = ("user=alice,client=app-1", "topic=orders-")
    for part, name, group in zip(map(part_of, names), names, ("batch", "orders"), strict=True):
        message = AttachmentsMessage(part, 1, 1, 0, (name,), (group,))
        transport.publish_attachments([Message(str(part), encode_attachments(message))])
    given: dict[str, Any] = {
        "settings": settings,
        "BrokerClient": BrokerClient,
        "link": open_broker_link(settings.transport),
        "broker": "b1",
        "clock_ms": lambda: 0,
        "keys": None,
    }
    exec(blocks()[1], given)
    client: BrokerClient = given["client"]
    assert {*client.groups} == {"batch", "orders"}
    assert client.group_of(user="alice", client="app-1") == "batch"
    assert client.group_of(namespace="acme/orders", topic="orders-eu") == "orders"
