"""A Spark standalone cluster on loopback: a master and two workers, from PySpark's own jars.

Its processes authenticate each other and encrypt what they exchange.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.servers.jvm import SHORT_LIVED
from tests.servers.tools import LoggedProcess, kill_all, parent_of, processes_below

_MASTER_READY: Final = re.compile(r"Starting Spark master at (spark://\S+)")
_WORKER_READY: Final = re.compile(r"Successfully registered with master")


class SparkStandalone:
    """Use as a context manager; ``url`` is what ``--master`` takes, ``options_file`` what
    ``--properties-file`` takes.

    Args:
        folder: an empty folder for the logs and for what the workers are sent.
        environment: the launcher's (``./spark-submit.sh --env``), for Java and SPARK_HOME.
        workers: how many, each with one core to give away.
        memory: that each has to give away, in Java's notation.
    """

    def __init__(
        self,
        folder: Path,
        environment: Mapping[str, str],
        workers: int = 2,
        *,
        memory: str = "1g",
    ) -> None:
        self.url = ""
        self.work = folder / "work"
        self._folder = folder
        self._workers, self._memory = workers, memory
        self._processes: list[LoggedProcess] = []
        # Workers get nothing of this checkout or of .venv but Spark, like workers on another
        # machine. SPARK_CONF_DIR has only what protects the cluster; all else is Spark's own.
        lines = ["spark.authenticate true", "spark.network.crypto.enabled true"]
        lines += [f"spark.authenticate.secret {secrets.token_hex(32)}"]
        self._write_options(folder / "spark-defaults.conf", lines)
        self.options_file = folder / "job-options.conf"
        self._write_options(self.options_file, [*lines, "spark.io.encryption.enabled true"])
        self._environment = {
            "PATH": "/usr/local/bin:/usr/bin:/bin",
            "HOME": os.environ.get("HOME", "/"),
            "JAVA_HOME": environment["JAVA_HOME"],
            "SPARK_HOME": environment["SPARK_HOME"],
            "SPARK_CONF_DIR": str(folder),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SHORT_LIVED,
            # don't take a slow worker on a busy machine for dead
            "SPARK_MASTER_OPTS": "-Dspark.worker.timeout=600",
        }

    @staticmethod
    def _write_options(file: Path, lines: list[str]) -> None:
        file.touch(mode=0o600)
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")

    def __enter__(self) -> SparkStandalone:
        try:
            ready = self._start("master", _MASTER_READY, "--port", "0", "--webui-port", "0")
            self.url = ready.group(1)
            size = ("--cores", "1", "--memory", self._memory, "--work-dir", str(self.work))
            for number in range(self._workers):
                self._start(f"worker{number}", _WORKER_READY, *size, "--webui-port", "0", self.url)
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def kill_executor(self) -> None:
        """SIGKILL to the processes of an executor of the application that runs."""
        kill_all(processes_below(self.work).popitem()[1])

    def kill_worker(self) -> None:
        """SIGKILL to a worker and its executor, as if its machine lost power; it stays away."""
        worker = self._processes.pop()
        executors = processes_below(self.work).values()
        (lost,) = (pids for pids in executors if worker.pid in map(parent_of, pids))
        worker.kill()
        kill_all(lost)

    @property
    def workers(self) -> list[int]:
        """The processes of the workers, which start the executors."""
        return [process.pid for process in self._processes[1:]]

    def _start(self, name: str, ready: re.Pattern[str], *options: str) -> re.Match[str]:
        role = "master.Master" if name == "master" else "worker.Worker"
        program = f"{self._environment['SPARK_HOME']}/bin/spark-class"
        process = LoggedProcess(
            f"Spark's {name}",
            self._folder / f"{name}.log",
            [program, f"org.apache.spark.deploy.{role}", "--host", "127.0.0.1", *options],
            env=self._environment,
            cwd=self._folder,
        )
        process.start()
        self._processes.append(process)
        return process.wait_until(lambda: ready.search(process.said()))

    def _stop(self) -> None:
        for process in reversed(self._processes):
            process.stop()
