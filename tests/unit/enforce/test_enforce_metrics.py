"""The enforcer's metrics: from limits that arrive to rates that are written, or not."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from itertools import count
from pathlib import Path

import pytest

from quotaplane.cli.agent_process import LatestReadings
from quotaplane.cli.main import main
from quotaplane.enforce.agent.enforcer_status import EnforcerStatus
from quotaplane.metrics.exposition import registry_of
from quotaplane.metrics.readings import Readings
from tests.unit.enforce.enforce_cluster import NAMESPACE, FakePulsar, Running
from tests.unit.metrics.metrics_cases import Series, scraped
from tests.unit.pulsar_admin.cluster_cases import Answer
from tests.unit.repo.pages import ROOT


@pytest.fixture
def cluster(busy: FakePulsar) -> FakePulsar:
    return busy


def series(running: Running) -> Series:
    found = scraped(registry_of("enforcer", running.enforcer.readings))
    prefix = "quotaplane_enforcer_"
    return {name.removeprefix(prefix): found[name] for name in found if name.startswith(prefix)}


async def test_limits_that_are_enforced_and_writes_that_fail(cluster: FakePulsar) -> None:
    write = f"POST persistent/{NAMESPACE}/b/publishRate"
    cluster.answers[write] = Answer(500, {"reason": "upset"})
    begun_ms = int(time.time() * 1000)
    cluster.limit(300.0)
    async with cluster.enforcing() as running:
        assert series(running)["rate_writes_total"][("written",)] == 0
        await running.until(lambda: running.enforcer.status().failed >= 2)
        del cluster.answers[write]
        await running.until(lambda: len(cluster.rates) == 3)
        await running.ticks(3)
        found = series(running)
        failed = found["failures_total"][("writing rates",)]
        assert failed >= 2
        written = running.enforcer.status().written
        results = {"removed": 0, "given_back": 0, "vanished": 0, "failed": failed}
        assert found["rate_writes_total"] == {
            ("written",): written,
            **{(result,): count for result, count in results.items()},
        }
        single = ("brokers", "groups", "topics", "rates_in_force", "waiting_writes")
        assert [found[name][()] for name in single] == [1, 1, 3, 3, 0]
        assert found["take_over"] == {(): 0}
        assert (found["limits_in_force"], found["ended_limits"]) == ({(): 1}, {(): 0})
        issued_s = found["limits_timestamp_seconds"][()]
        assert begun_ms <= round(issued_s * 1000) <= time.time() * 1000
        assert found["least_lease_end_timestamp_seconds"][()] == issued_s + 120
        assert found["alive_timestamp_seconds"] == {(): running.now_ms / 1000}
        running.now_ms += 121_000
        found = series(running)
        assert (found["limits_in_force"], found["ended_limits"]) == ({(): 0}, {(): 1})
        assert "least_lease_end_timestamp_seconds" not in found


def test_the_page_explains_each_key_of_the_status_line() -> None:
    text = (ROOT / "docs/explain/enforcer.md").read_text().partition("\n## What it prints\n")[2]
    first_cells = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    keys = re.findall(r"`(\w+)`", " ".join(first_cells))
    assert sorted(keys) == sorted(EnforcerStatus._fields)


async def test_numbers_are_read_every_second_by_the_enforcer_itself() -> None:
    latest, calls = LatestReadings(), count(1)
    assert scraped(registry_of("enforcer", latest))["quotaplane_enforcer_rate_reads_total"]
    following = asyncio.create_task(latest.follow(lambda: Readings({"topics": {(): next(calls)}})))
    await asyncio.sleep(2.5)
    following.cancel()
    found = scraped(registry_of("enforcer", latest))
    assert found["quotaplane_enforcer_topics"] == {(): 3}


def test_a_port_that_is_taken_is_one_line(
    cluster: FakePulsar, capsys: pytest.CaptureFixture[str]
) -> None:
    conf = Path(cluster.conf())
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        settings = json.loads(conf.read_text()) | {"metrics": {"enforcer_port": port}}
        conf.write_text(json.dumps(settings))
        assert main(["enforce", "pulsar", "--conf", str(conf)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err == (
        f"quotaplane: error: metrics.enforcer_port: can't serve metrics at 127.0.0.1, port {port}:"
        " Address already in use; choose another port, or null for none\n"
    )
