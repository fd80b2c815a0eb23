"""A history, and the job's checkpoint, on an object store that speaks S3."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from quotaplane.cli.main import main
from quotaplane.history.store import open_table
from quotaplane.settings import load_settings
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import BrokerLink
from tests.job import RunningJob, put_quotas, report_of
from tests.servers.proxy import NetFault, Proxies
from tests.servers.s3_proxy import S3Proxy
from tests.servers.stores import LEASE_S, conf_on, rows_of
from tests.servers.tools import free_ports
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

OUTAGE_S = 20.0
Capture = pytest.CaptureFixture[str]


def test_commands_on_a_store(store: S3Proxy, tmp_path: Path, capsys: Capture) -> None:
    conf = conf_on(store, tmp_path)

    def ran(*words: str, code: int = 0, with_conf: Path = conf) -> str:
        assert main([*words, "--conf", str(with_conf)]) == code
        out, err = capsys.readouterr()
        return out + err

    ran("groups", "put", "g", "--publish-messages-per-s", "90", "--init")
    assert "g" in ran("groups", "list")
    main(["status", "--conf", str(conf)])
    assert json.loads(capsys.readouterr().out)["history"] == f"{store.place(tmp_path.name)}/history"
    assert "broken" not in ran("doctor")

    file = open_table(load_settings(conf).history, "resource_groups").file_uris()[0]
    bytes_of = store.objects / file.removeprefix("s3://bucket/")
    content = bytes_of.read_bytes()
    bytes_of.unlink()
    told = ran("doctor", code=10)
    assert bytes_of.name in told
    assert "is missing" in told
    bytes_of.write_bytes(content)

    wrong = conf_on(store, tmp_path / "wrong", keys={"AWS_SECRET_ACCESS_KEY": "wrong"})
    (line,) = ran("groups", "list", code=4, with_conf=wrong).splitlines()
    assert "history.storage_options" in line
    (nobody,) = free_ports(1)
    away = conf_on(store, tmp_path / "away", nobody)
    (line,) = ran("groups", "list", code=4, with_conf=away).splitlines()
    assert "history at s3://bucket/away/history" in line


class Agents:
    """Three brokers that report each second, and note when limits come."""

    def __init__(self, link: BrokerLink) -> None:
        self._link, self._sequence = link, 0
        self.came_s: list[float] = []

    def turn(self, done: Callable[[], object]) -> object:
        """Report, and look for limits, once; then what ``done()`` gives."""
        self._sequence += 1
        reports = [
            (name, report_of(name, 80.0, sequence=self._sequence), time.time_ns() // 1_000_000)
            for name in ("b1", "b2", "b3")
        ]
        self._link.send_reports(reports)
        if self._link.poll_limits().messages:
            self.came_s.append(time.monotonic())
        return done()

    def until(self, job: RunningJob, done: Callable[[], object], within_s: float = 240.0) -> None:
        """Turns, one a second, until ``done()``."""
        wait_until(
            lambda: self.turn(done),
            within_s,
            process=job.process,
            said=job.last_words,
            every_s=1.0,
        )

    def longest_gap_s(self) -> float:
        return max(later - earlier for earlier, later in pairwise(self.came_s))


@pytest.mark.nightly
def test_a_job_on_a_store_survives_its_own_death_and_an_outage(
    store: S3Proxy, tmp_path: Path, connector: str
) -> None:
    (port,) = free_ports(1)
    conf = conf_on(store, tmp_path, port)
    with Proxies() as proxies:
        proxy = proxies.open(port, store.port)
        settings = load_settings(conf)
        put_quotas(settings, g=90.0)
        agents = Agents(open_broker_link(settings.transport, limits_from="earliest"))
        with RunningJob(conf, "--jars", connector) as job:
            agents.until(job, lambda: len(agents.came_s) > 3)
            proxy.set(NetFault("delay", delay_s=0.1))
            agents.until(job, lambda: len(agents.came_s) > 5)
            slow_gap_s = agents.longest_gap_s()
            proxy.clear()
            settled = len(agents.came_s)
            agents.until(job, lambda: len(agents.came_s) > settled + 3)
            agents.came_s = agents.came_s[-1:]
            proxy.set(NetFault("cut"))
            away_s = time.monotonic()
            agents.until(job, lambda: time.monotonic() - away_s > OUTAGE_S)
            assert any(" store: " in line for line in job.printed())
            assert any(re.search(r"conditions=\d+ \(.*store", line) for line in job.printed())
            proxy.clear()
            back = len(agents.came_s)
            agents.until(job, lambda: len(agents.came_s) > back + 1)
            assert any("recovered: store: over" in line for line in job.printed())
            gap_s = agents.longest_gap_s()
        # killed: what ran is run again
        agents.came_s = agents.came_s[-1:]
        with RunningJob(conf, "--jars", connector) as job:
            killed = len(agents.came_s)
            agents.until(job, lambda: len(agents.came_s) > killed + 1)
            job.stop()
    history = load_settings(conf_on(store, tmp_path)).history
    seqs = [row["seq"] for row in rows_of(history, "rounds", "epoch", "seq")]
    assert len(seqs) == len(set(seqs))
    gaps_s = {"slow": slow_gap_s, "away": gap_s, "killed": agents.longest_gap_s()}
    print(json.dumps(gaps_s))
    assert max(gaps_s.values()) < LEASE_S


@pytest.mark.nightly
def test_neither_keys_nor_secrets_are_on_a_command_line_or_in_the_log(
    store: S3Proxy, tmp_path: Path, connector: str
) -> None:
    conf = conf_on(store, tmp_path)
    put_quotas(load_settings(conf), g=90.0)
    secret = yaml.safe_load(conf.read_text("utf-8"))["history"]["storage_options"]
    with RunningJob(conf, "--jars", connector) as job:
        job.wait_until(lambda: any(" ready: " in line for line in job.printed()))
        lines = [
            words.read_bytes()
            for words in Path("/proc").glob("[0-9]*/cmdline")
            if words.parent.name != "self"
        ]
        assert lines
        assert not any(secret["AWS_SECRET_ACCESS_KEY"].encode() in line for line in lines)
        assert secret["AWS_SECRET_ACCESS_KEY"] not in job.spark_log.read_text("utf-8")
        job.stop()
