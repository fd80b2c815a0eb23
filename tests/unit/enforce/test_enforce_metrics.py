"""The enforcer's metrics: from limits that arrive to rates that are written, or not."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from quotaplane.cli.agent_process import LatestReadings
from quotaplane.cli.main import main
from quotaplane.enforce.agent.enforcer_status import EnforcerStatus
from quotaplane.metrics.exposition import registry_of
from quotaplane.metrics.readings import Readings
from tests.unit.enforce.enforce_cluster import (
    NAMESPACE,
    FakePulsar,
    Link,
    Running,
    enforcing,
    settings_for,
    with_a_busy_topic,
)
from tests.unit.metrics.metrics_cases import Series, scraped
from tests.unit.pulsar_admin.cluster_cases import Answer
from tests.unit.repo.pages import ROOT
from tests.virtual_loop import run_virtually


@pytest.fixture
def cluster() -> Iterator[FakePulsar]:
    with with_a_busy_topic() as fake:
        yield fake


def series(running: Running) -> Series:
    found = scraped(registry_of("enforcer", running.enforcer.readings))
    prefix = "quotaplane_enforcer_"
    return {
        name.removeprefix(prefix): values
        for name, values in found.items()
        if name.startswith(prefix)
    }


def test_limits_that_are_enforced(cluster: FakePulsar, tmp_path: Path) -> None:
    link = Link()
    link.tell("pulsar://b0", 300.0)

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            assert series(running)["rate_writes_total"][("written",)] == 0
            await running.until(lambda: len(cluster.rates) == 3)
            await running.ticks(3)
            found = series(running)
            results = {"written": 3, "removed": 0, "given_back": 0, "vanished": 0, "failed": 0}
            assert found["rate_writes_total"] == {(key,): n for key, n in results.items()}
            single = ("brokers", "groups", "topics", "rates_in_force", "waiting_writes")
            assert [found[name][()] for name in single] == [1, 1, 3, 3, 0]
            assert found["take_over"] == {(): 0}
            assert (found["limits_in_force"], found["ended_limits"]) == ({(): 1}, {(): 0})
            issued_s = found["limits_timestamp_seconds"][()]
            assert issued_s == pytest.approx(time.time(), abs=30)
            assert found["least_lease_end_timestamp_seconds"][()] == issued_s + 120
            assert found["alive_timestamp_seconds"] == {(): running.now_ms / 1000}
            running.now_ms += 121_000
            found = series(running)
            assert (found["limits_in_force"], found["ended_limits"]) == ({(): 0}, {(): 1})
            assert "least_lease_end_timestamp_seconds" not in found

    run_virtually(scene())


def test_writes_that_fail(cluster: FakePulsar, tmp_path: Path) -> None:
    failing = f"POST persistent/{NAMESPACE}/b/publishRate"
    cluster.answers[failing] = Answer(500, {"reason": "upset"})
    link = Link()
    link.tell("pulsar://b0", 300.0)

    async def scene() -> None:
        async with enforcing(cluster, settings_for(cluster, tmp_path), link) as running:
            await running.until(lambda: running.enforcer.status().failed >= 2)
            found = series(running)
            failed = found["rate_writes_total"][("failed",)]
            assert found["failures_total"][("writing rates",)] == failed >= 2
            assert found["waiting_writes"][()] >= 0

    run_virtually(scene())


def test_the_page_explains_each_key_of_the_status_line() -> None:
    text = (ROOT / "docs/explain/enforcer.md").read_text().partition("\n## What it prints\n")[2]
    first_cells = re.findall(r"^\| (`.*?`) \|", text, re.MULTILINE)
    keys = re.findall(r"`(\w+)`", " ".join(first_cells))
    assert sorted(keys) == sorted(EnforcerStatus._fields)


def test_numbers_are_read_every_second_by_the_enforcer_itself() -> None:
    latest, calls = LatestReadings(), 0

    def read() -> Readings:
        nonlocal calls
        calls += 1
        return Readings({"topics": {(): calls}})

    async def scene() -> None:
        following = asyncio.create_task(latest.follow(read))
        await asyncio.sleep(0)
        following.cancel()

    assert scraped(registry_of("enforcer", latest))["quotaplane_enforcer_rate_reads_total"]
    run_virtually(scene())
    found = scraped(registry_of("enforcer", latest))
    assert found["quotaplane_enforcer_topics"] == {(): 1}


def test_a_port_that_is_taken_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        conf = {
            "transport": {
                "kind": "pulsar",
                "service_url": "pulsar://127.0.0.1:1",
                "admin_url": "http://127.0.0.1:1",
                "limits_topic": "persistent://public/default/limits",
            },
            "history": {"path": str(tmp_path / "history")},
            "checkpoint": str(tmp_path / "checkpoint"),
            "metrics": {"enforcer_port": port},
        }
        file = tmp_path / "conf.yaml"
        file.write_text(yaml.safe_dump(conf), encoding="utf-8")
        assert main(["enforce", "pulsar", "--conf", str(file)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        f"quotaplane: error: metrics.enforcer_port: can't serve metrics at 127.0.0.1, port {port}:"
        " Address already in use; choose another port, or null for none\n"
    )
