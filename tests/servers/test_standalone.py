"""The launcher ships the package and its environment to a Spark standalone cluster."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.servers.spark_standalone import SparkStandalone
from tests.spark.fixtures import ROOT, launcher_environment

PROBE = Path(__file__).with_name("standalone_probe.py")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkStandalone]:
    with SparkStandalone(tmp_path_factory.mktemp("standalone"), launcher_environment()) as running:
        yield running


def test_executors_use_what_was_shipped(cluster: SparkStandalone, tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    answer = subprocess.run(
        [
            ROOT / "spark-submit.sh",
            PROBE,
            *("--master", cluster.url, "--executor-memory", "600m", "--driver-memory", "600m"),
            *("--spark-conf", "spark.ui.enabled=false"),
        ],
        env=environment | {"SPARK_LOCAL_IP": "127.0.0.1"},
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
        here = Path(row["cwd"])
        assert Path(row["package"]) == here / "quotaplane.zip" / "quotaplane" / "__init__.py"
        assert Path(row["daemon"]).is_relative_to(here / "quotaplane.zip")
        assert Path(row["prefix"]).resolve() == (here / "environment").resolve()
        assert Path(row["library"]).is_relative_to(here / "environment")
