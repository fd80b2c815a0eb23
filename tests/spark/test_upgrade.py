"""A job of an earlier version is gone on with: its checkpoint, its history, its topics.

``job_before_one_mechanism.tar.gz`` was made by the commit before the jobs became two programs on
one stream mechanism: brokers a and b want 80 each of group g, which has 100; entity a, which has 10
a second and a hard law, took 15 at once.
"""

from __future__ import annotations

import json
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyspark.sql import SparkSession

from quotaplane.history.table_upgrade import upgrade
from quotaplane.model import RATE_COLUMNS
from quotaplane.registry.change_feed import group_changes
from quotaplane.registry.table import put_groups
from quotaplane.settings import History, Settings, parse_settings
from quotaplane.streams.job import JobSpec, StreamJob, prepare
from quotaplane.streams.quota.job import QuotaSpec
from quotaplane.streams.throttle.job import ThrottleSpec, topics_of
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import Topics
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.report_own import encode_report
from tests.contract.rigs import limits_of
from tests.job import history_table

MADE_AT = "/tmp/earlier-job"
TOOK_AT_MS = 1_700_000_000_000


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    with tarfile.open(Path(__file__).with_name("job_before_one_mechanism.tar.gz")) as archive:
        archive.extractall(tmp_path, filter="data")
    # Spark notes the places of its schema files as absolute paths.
    for file in tmp_path.glob("checkpoint*/state/0/_metadata/v2/[0-9]*"):
        file.write_text(file.read_text("utf-8").replace(MADE_AT, str(tmp_path)), "utf-8")
        file.with_name(f".{file.name}.crc").unlink(missing_ok=True)
    upgraded = upgrade(History(path=str(tmp_path / "history")), print)
    assert upgraded[0] == "resource_groups"
    assert {"usage", "limits", "rounds", "decisions"} <= {*upgraded}
    return parse_settings(
        {
            "transport": {"kind": "delta", "path": str(tmp_path / "topics")},
            "history": {"path": str(tmp_path / "history")},
            "checkpoint": str(tmp_path / "checkpoint"),
            "shards": 1,
            "trigger": {"interval_s": 3600},
            "reports": {"interval_s": 3600},
            "limits": {"lease_s": 4e6},
            "brokers": {"stale_after_intervals": 1e6, "expire_after_intervals": 2e6},
        }
    )


def answers(
    spark: SparkSession,
    spec: Callable[[Settings], JobSpec],
    settings: Settings,
    topics: Topics | None,
    *messages: tuple[str, bytes],
) -> tuple[int, list[bytes]]:
    """The epoch of a job that goes on, and what it publishes of one more batch."""
    link = open_broker_link(settings.transport, limits_from="latest", topics=topics)
    limits_of(link)
    now_ms = int(time.time() * 1000)
    link.send_reports([(key, value, now_ms) for key, value in messages])
    job = StreamJob(spark, spec(settings), prepare(spec(settings)))
    found: list[bytes] = []
    deadline = time.monotonic() + 120
    while not found and time.monotonic() < deadline:
        assert not job.wait(timeout_s=0.2)
        found = [value for _, value in limits_of(link)]
    job.stop()
    return job.epoch, found


def test_the_quota_job_knows_its_brokers_and_their_reports(
    spark: SparkSession, settings: Settings
) -> None:
    note = json.loads(Path(settings.checkpoint, "quotaplane.json").read_text("utf-8"))
    report = {"started_at_ms": 1, "window_ms": 1000, "groups": ["g"]}
    usage = np.array([[80.0, 1.0, 1.0, 1.0]])
    again = encode_report(broker="b", sequence=2, usage=usage, **report)
    more = encode_report(broker="c", sequence=1, usage=usage, **report)
    quotas = np.array([[120.0, *[np.nan] * (len(RATE_COLUMNS) - 1)]])
    put_groups(settings.history, ["g"], quotas, "ann")
    epoch, found = answers(spark, QuotaSpec, settings, None, ("b", again), ("c", more))
    limits = {each.broker: float(each.limits[0, 0]) for each in map(decode_limits, found)}
    assert epoch == note["epoch"]
    assert limits == {name: pytest.approx(40) for name in "abc"}
    changes = [
        (each["by"], each["to"][RATE_COLUMNS[0]]) for each in group_changes(settings.history)
    ]
    assert changes[-1] == ("ann", 120.0)
    assert 100.0 in [rate for _, rate in changes[:-1]]
    rounds = sorted(history_table(settings, "rounds").to_pylist(), key=lambda row: row["seq"])
    assert [(row["seq"], row["epoch"], row["duplicates"]) for row in rounds] == [
        (0, epoch, 0),
        (1, epoch, 0),
        (2, epoch, 1),
    ]


def test_the_throttle_job_knows_what_entities_took(spark: SparkSession, settings: Settings) -> None:
    event: dict[str, Any] = {"entity": "a", "units": 1.0, "at_ms": TOOK_AT_MS + 100, "id": "2"}
    _, (answer,) = answers(
        spark,
        ThrottleSpec,
        settings,
        topics_of(settings.throttle),
        ("a", json.dumps(event).encode()),
    )
    decision = json.loads(answer)
    assert (decision["id"], decision["admitted"], decision["balance"]) == ("2", False, -4.0)
