"""A history, and the job's checkpoint, on an object store that speaks S3."""

from __future__ import annotations

import json
import re
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from quotaplane.cli.main import main
from quotaplane.history.store import open_table
from quotaplane.settings import load_settings
from tests.job import RunningJob, put_quotas
from tests.servers.outages import Outages
from tests.servers.proxy import NetFault, Proxies
from tests.servers.reporting_brokers import SECTIONS, Outage, ReportingBrokers
from tests.servers.s3_proxy import VERSION as S3PROXY
from tests.servers.s3_proxy import S3Proxy
from tests.servers.stores import conf_on, ran
from tests.servers.tools import free_ports

pytestmark = pytest.mark.slow

OUTAGE_S = 20.0
Capture = pytest.CaptureFixture[str]


def test_commands_on_a_store(store: S3Proxy, tmp_path: Path, capsys: Capture) -> None:
    conf = conf_on(store, tmp_path)

    ran(capsys, conf, "groups", "put", "g", "--publish-messages-per-s", "90", "--init")
    assert "g" in ran(capsys, conf, "groups", "list")
    main(["status", "--conf", str(conf)])
    assert json.loads(capsys.readouterr().out)["history"] == f"{store.place(tmp_path.name)}/history"
    assert "broken" not in ran(capsys, conf, "doctor")

    file = open_table(load_settings(conf).history, "resource_groups").file_uris()[0]
    bytes_of = store.objects / file.removeprefix("s3://bucket/")
    content = bytes_of.read_bytes()
    bytes_of.unlink()
    told = ran(capsys, conf, "doctor", code=10)
    assert bytes_of.name in told
    assert "is missing" in told
    bytes_of.write_bytes(content)

    wrong = conf_on(store, tmp_path / "wrong", keys={"AWS_SECRET_ACCESS_KEY": "wrong"})
    (line,) = ran(capsys, wrong, "groups", "list", code=4).splitlines()
    assert "history.storage_options" in line
    (nobody,) = free_ports(1)
    away = conf_on(store, tmp_path / "away", nobody)
    (line,) = ran(capsys, away, "groups", "list", code=4).splitlines()
    assert "history at s3://bucket/away/history" in line


@pytest.mark.nightly
def test_a_job_on_a_store_survives_its_own_death_and_an_outage(
    store: S3Proxy, tmp_path: Path, connector: str, outages: Outages
) -> None:
    def note(harm: str, outage: Outage) -> None:
        versions = f"S3Proxy {S3PROXY}"
        outages.note("object store with history and checkpoint", harm, outage, versions=versions)

    (port,) = free_ports(1)
    conf = conf_on(store, tmp_path, port, **SECTIONS)
    settings = load_settings(conf)
    with ExitStack() as held:
        proxy = held.enter_context(Proxies()).open(port, store.port)
        put_quotas(settings, g=90.0)
        brokers = held.enter_context(ReportingBrokers(settings, a=80.0, b=80.0, c=80.0))
        job = held.enter_context(RunningJob(conf, "--jars", connector))

        def slow() -> None:
            proxy.set(NetFault("delay", delay_s=0.1))
            since_s = time.monotonic()
            job.wait_until(lambda: brokers.heard_since(since_s, 3))
            proxy.clear()

        def away() -> None:
            proxy.set(NetFault("cut"))
            time.sleep(OUTAGE_S)
            assert any(" store: " in line for line in job.printed())
            assert any(re.search(r"conditions=\d+ \(.*store", line) for line in job.printed())
            proxy.clear()

        def restart() -> None:
            job.kill()
            held.enter_context(RunningJob(conf, "--jars", connector))

        job.wait_until(lambda: brokers.share(30.0))
        note("0.1 s of delay on each request", brokers.through(slow, job.wait_until))
        note("the store away for 20 s", brokers.through(away, job.wait_until))
        assert any("recovered: store: over" in line for line in job.printed())
        note("the job killed, and started again", brokers.through(restart))


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
