"""Commands, writers and a killed job on a second object store, which is none of S3Proxy's code."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake.fs import DeltaStorageHandler

from quotaplane.cli.main import main
from quotaplane.history.store import open_table, storage_options
from quotaplane.settings import load_settings
from tests.job import RunningJob, environment, put_quotas
from tests.servers.reporting_brokers import SECTIONS, ReportingBrokers
from tests.servers.seaweedfs import SeaweedFS
from tests.servers.stores import conf_on, ran, rows_of
from tests.servers.test_s3_writers import WRITER

pytestmark = [pytest.mark.slow, pytest.mark.nightly]

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SeaweedFS]:
    with SeaweedFS(tmp_path_factory.mktemp("second")) as running:
        yield running


def test_commands_on_a_second_store(second: SeaweedFS, tmp_path: Path, capsys: Capture) -> None:
    conf = conf_on(second, tmp_path)

    ran(capsys, conf, "groups", "put", "g", "--publish-messages-per-s", "90", "--init")
    assert "g" in ran(capsys, conf, "groups", "list")
    assert "broken" not in ran(capsys, conf, "doctor")
    history = load_settings(conf).history
    name = open_table(history, "resource_groups").file_uris()[0].rpartition("/")[2]
    table = DeltaStorageHandler(f"{history.path}/resource_groups", storage_options(history))
    table.delete_file(name)
    told = ran(capsys, conf, "doctor", code=10)
    assert name in told
    assert "is missing" in told
    wrong = conf_on(second, tmp_path / "wrong", keys={"AWS_SECRET_ACCESS_KEY": "wrong"})
    (line,) = ran(capsys, wrong, "groups", "list", code=4).splitlines()
    assert "history.storage_options" in line


def test_two_writers_lose_nothing(second: SeaweedFS, tmp_path: Path) -> None:
    conf = conf_on(second, tmp_path)
    assert main(["groups", "put", "first", "--init", "--conf", str(conf)]) == 0
    command = [sys.executable, "-c", WRITER.replace("range(100)", "range(20)")]
    writers = [
        subprocess.Popen([*command, name, str(conf)], env=environment(), stdout=subprocess.DEVNULL)
        for name in ("v", "w")
    ]
    assert [writer.wait(200) for writer in writers] == [0, 0]
    assert len(rows_of(load_settings(conf).history, "resource_groups", "resource_group")) == 41


def test_a_killed_job_goes_on(second: SeaweedFS, tmp_path: Path, connector: str) -> None:
    conf = conf_on(second, tmp_path, **SECTIONS)
    settings = load_settings(conf)
    put_quotas(settings, g=90.0)
    with ReportingBrokers(settings, a=80.0, b=80.0, c=80.0) as brokers:
        with RunningJob(conf, "--jars", connector) as job:
            job.wait_until(lambda: brokers.share(30.0))
            job.kill()
        with RunningJob(conf, "--jars", connector) as job:
            outage = brokers.through(lambda: None, job.wait_until)
            print(f"killed: {outage.tally}")
            assert outage.tally.exact, outage.tally
