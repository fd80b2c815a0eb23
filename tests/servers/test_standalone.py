"""The launcher ships the package and its environment to a Spark standalone cluster."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from quotaplane.settings import load_settings
from tests.job import RunningJob, put_quotas, write_conf
from tests.servers.jvm import SHORT_LIVED
from tests.servers.outages import Outages
from tests.servers.reporting_brokers import SECTIONS, ReportingBrokers
from tests.servers.spark_standalone import SparkStandalone
from tests.spark.fixtures import ROOT, launcher_environment

pytestmark = pytest.mark.slow

PROBE = Path(__file__).with_name("standalone_probe.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkStandalone]:
    with SparkStandalone(tmp_path_factory.mktemp("standalone"), launcher_environment()) as running:
        yield running


@pytest.fixture(autouse=True)
def loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the driver's address, as executors see it, to loopback."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.delenv("PYTHONPATH", raising=False)


@pytest.mark.nightly
def test_executors_use_what_was_shipped(cluster: SparkStandalone, tmp_path: Path) -> None:
    answer = subprocess.run(
        [
            ROOT / "spark-submit.sh",
            PROBE,
            *("--master", cluster.url, "--properties-file", cluster.options_file),
            *("--executor-memory", "600m", "--driver-memory", "600m"),
            *("--spark-conf", "spark.ui.enabled=false", "--driver-java-options", SHORT_LIVED),
            *("--spark-conf", f"spark.executor.extraJavaOptions={SHORT_LIVED}"),
            # The first task waits for both workers, so that each gets some tasks.
            *("--total-executor-cores", "2"),
            *("--spark-conf", "spark.scheduler.minRegisteredResourcesRatio=1.0"),
            *("--spark-conf", "spark.scheduler.maxRegisteredResourcesWaitingTime=300s"),
        ],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        timeout=600,
    )
    assert answer.returncode == 0
    rows = json.loads(answer.stdout)

    assert len(rows) == 8
    folders = {Path(row["cwd"]) for row in rows}
    assert len(folders) == 2, "both workers took part"
    assert all(folder.is_relative_to(cluster.work) for folder in folders)
    for row in rows:
        folder = Path(row["cwd"])
        assert Path(row["package"]) == folder / "quotaplane.zip" / "quotaplane" / "__init__.py"
        assert Path(row["daemon"]).is_relative_to(folder / "quotaplane.zip")
        assert Path(row["prefix"]).resolve() == (folder / "environment").resolve()
        assert Path(row["library"]).is_relative_to(folder / "environment")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("options", "allowed", "missing"),
    [
        ((), False, ["spark.authenticate=true", "spark.network.crypto.enabled=true"]),
        (("spark.ui.killEnabled=true",), False, ["spark.ui.killEnabled=false"]),
        (("spark.authenticate.secret=wrong",), True, []),
    ],
)
def test_the_cluster_and_the_job_refuse_what_is_not_protected(
    cluster: SparkStandalone,
    tmp_path: Path,
    options: tuple[str, ...],
    allowed: bool,
    missing: list[str],
) -> None:
    """The job refuses to start unprotected; a job that is allowed to does not get in."""
    conf = write_conf(
        tmp_path,
        security={"allow_unprotected_spark": allowed},
    )
    put_quotas(load_settings(conf), **{"tenant/ns": 90.0})
    answer = subprocess.run(
        [
            *(ROOT / "spark-submit.sh", "quota", "--conf", conf, "--master", cluster.url),
            *(("--properties-file", cluster.options_file) if options else ()),
            *(f"--spark-conf={option}" for option in options),
            *("--driver-java-options", SHORT_LIVED, "--spark-conf", "spark.ui.enabled=false"),
        ],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
        timeout=300,
    )
    if missing:
        (line,) = [line for line in answer.stderr.splitlines() if "without protection" in line]
        assert f"Spark master {cluster.url}: " in line
        assert all(option in line for option in missing)
        assert answer.returncode == 2
    else:
        assert answer.returncode not in (0, 2), answer.stderr


@pytest.mark.nightly
def test_the_quota_job_divides_fairly_and_loses_nothing_with_its_workers(
    cluster: SparkStandalone, outages: Outages, tmp_path: Path
) -> None:
    """Three brokers want 80 each of 90: each gets 30; an executor and a worker are killed."""
    conf = write_conf(tmp_path, **SECTIONS)
    options = ("--executor-memory", "600m", "--spark-conf", "spark.ui.enabled=false")
    put_quotas(load_settings(conf), **{"tenant/ns": 90.0})
    brokers = ReportingBrokers(load_settings(conf), "tenant/ns", a=80.0, b=80.0, c=80.0)
    harms = {"an executor killed": cluster.kill_executor, "a worker killed": cluster.kill_worker}
    protected = ("--properties-file", str(cluster.options_file))
    with RunningJob(conf, "--master", cluster.url, *protected, *options) as job, brokers:
        job.wait_until(lambda: brokers.share(30.0), within_s=600)
        for harm, do in harms.items():
            outage = brokers.through(do, job.wait_until)
            outages.note("Spark standalone cluster", harm, outage, versions="two workers")
        job.stop()
    # both executors ran tasks
    logs = [file.read_text("utf-8") for file in cluster.work.glob("app-*/*/stderr")]
    assert sum("Running task" in text for text in logs) >= 2
