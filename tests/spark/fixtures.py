"""One Spark session for every test that needs one, set up by the launcher as jobs are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from quotaplane.streams.session import build_session
from tests.servers.jvm import SHORT_LIVED

ROOT = Path(__file__).parents[2]
JVM_OPTIONS: Final = (
    f"{SHORT_LIVED} -Xmn600m -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
)
"""JVM options of Spark's driver in tests, with its usual heap of 2 GB.

Verifying its classes takes a seventh of a start's time, and collecting garbage from a heap that
grows step by step takes a tenth of a test's.
"""


def launcher_environment() -> dict[str, str]:
    """The variables that jobs get: where Java, the jars and Spark's settings are."""
    command = [ROOT / "spark-submit.sh", "--env"]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    return dict(line.split("=", 1) for line in answer.stdout.splitlines())


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session: conf/spark-defaults.conf and the launcher's jars, without the UI."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in launcher_environment().items():
            patch.setenv(name, value)
        options = f"--driver-java-options '{JVM_OPTIONS}' {os.environ['PYSPARK_SUBMIT_ARGS']}"
        patch.setenv("PYSPARK_SUBMIT_ARGS", options)
        # whoever runs pytest in another environment than .venv gets workers of that one
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.delenv("SPARK_HOME")
        # functions of test modules are sent by name
        patch.setenv("PYTHONPATH", f"{ROOT / 'pipelines'}{os.pathsep}{ROOT}")
        session = build_session(
            "quotaplane-tests",
            {
                "spark.ui.enabled": "false",
                "spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse")),
            },
            log_level="error",
        )
        yield session
        session.stop()
