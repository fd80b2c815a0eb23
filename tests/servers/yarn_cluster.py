"""A YARN cluster with HDFS on loopback: Hadoop's own mini cluster, in one JVM.

Its jars are fetched from Maven once (49 MB, kept in the user's cache); the rest is in PySpark's.

    with YarnCluster(Path("/some/empty/folder")) as cluster:
        ... cluster.hdfs, cluster.environment, cluster.options ...
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final, NamedTuple

from tests.servers.jvm import SHORT_LIVED
from tests.servers.tools import LoggedProcess, fetched_once, ivy_retrieve, kill_all, processes_below
from tests.waiting import wait_until

JARS: Final = Path(__file__).parents[2] / "deploy" / "yarn-cluster-jars.xml"
HADOOP: Final = re.findall(r'minicluster" rev="(\S+?)"', JARS.read_text())[0]
"""Its version."""
_MAIN: Final = Path(__file__).with_name("YarnCluster.java")
_READY: Final = re.compile(r"^serves (\S+)$", re.MULTILINE)
_OPENED: Final = ("java.lang", "java.util", "java.io", "java.net", "java.nio", "sun.nio.ch")


class YarnCluster(LoggedProcess):
    """Use as a context manager.

    Args:
        folder: a new folder.
        launcher: the launcher's variables (``./spark-submit.sh --env``), for Java and SPARK_HOME.
        nodes: number of node managers, each with 4 GB to give away.
    """

    def __init__(self, folder: Path, launcher: Mapping[str, str], nodes: int = 2) -> None:
        self.folder = folder
        self.hdfs = ""
        """URI of the HDFS, without a path."""
        self._spark_home = launcher["SPARK_HOME"]
        self._classes = f"{yarn_jars()}/*:{self._spark_home}/jars/*"
        opened = [f"--add-opens=java.base/{name}=ALL-UNNAMED" for name in _OPENED]
        self._java = f"{launcher['JAVA_HOME']}/bin/java"
        command = [self._java, "-Xmx512m", *SHORT_LIVED.split(), *opened, "-cp", self._classes]
        command += [str(_MAIN), str(folder / "cluster"), str(nodes)]
        folder.mkdir(parents=True, exist_ok=True)
        env = {**os.environ, "JAVA_HOME": launcher["JAVA_HOME"]}
        super().__init__("YARN", folder / "cluster.log", command, env=env, cwd=folder)

    def start(self) -> None:
        """Start and wait until it serves."""
        super().start(stdin=subprocess.PIPE)
        self.hdfs = self.wait_until(lambda: _READY.search(self.said()))[1]

    def command(self, text: str) -> None:
        """Have it do what ``YarnCluster.java`` lists, and wait until it is done."""
        assert self._process is not None
        assert self._process.stdin is not None
        before = self.said().count(f"done: {text}\n")
        self._process.stdin.write(f"{text}\n".encode())
        self._process.stdin.flush()
        wait_until(lambda: self.said().count(f"done: {text}\n") > before, process=self._process)

    @property
    def environment(self) -> dict[str, str]:
        """Variables that programs need to find it."""
        conf = str(self.folder / "cluster" / "conf")
        return {"HADOOP_CONF_DIR": conf, "YARN_CONF_DIR": conf, "SPARK_LOCAL_IP": "127.0.0.1"}

    @property
    def options(self) -> dict[str, str]:
        """Spark's options for a small application that is protected and stays on loopback."""
        protected = ("authenticate", "network.crypto.enabled", "io.encryption.enabled")
        return {
            **{f"spark.{name}": "true" for name in protected},
            "spark.ui.enabled": "false",
            "spark.yarn.jars": f"local:{self._spark_home}/jars/*",
            "spark.yarn.appMasterEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.executorEnv.SPARK_LOCAL_IP": "127.0.0.1",
            "spark.executor.memory": "600m",
            "spark.executor.instances": "2",
            "spark.driver.memory": "900m",
            "spark.yarn.am.memory": "400m",
            "spark.yarn.maxAppAttempts": "4",
        }

    def containers(self, *, master: bool) -> list[Container]:
        """Those that run: application masters, or executors."""
        folders = processes_below(self.folder)
        ours = [Container(each) for each in folders if each.name.startswith("container_")]
        return sorted(each for each in ours if each.is_master == master)

    def printed(self, name: str = "stdout") -> str:
        """Output of application masters, oldest first."""
        files = self.logs(f"container_*_000001/{name}")
        return "".join(file.read_text(errors="replace") for file in files)

    def logs(self, name: str) -> list[Path]:
        """Files in the folders of containers' logs, oldest first."""
        found = self.folder.glob(f"cluster/data/*/yarn-*/*-logDir-*/application_*/{name}")
        return sorted(found, key=lambda file: file.stat().st_mtime)

    def application(self, *words: str) -> str:
        """Output of ``yarn application``."""
        return self._tool("org.apache.hadoop.yarn.client.cli.ApplicationCLI", "application", *words)

    def modes(self, path: str) -> dict[str, str]:
        """Rights of all files and folders below a path of the HDFS, such as -rw-r--r--."""
        lines = self._tool("org.apache.hadoop.fs.FsShell", "-ls", "-R", path).splitlines()
        return {line.split()[-1]: line.split()[0] for line in lines if line.startswith(("-", "d"))}

    def _tool(self, program: str, *words: str) -> str:
        conf = self.environment["HADOOP_CONF_DIR"]
        command = [self._java, *SHORT_LIVED.split(), "-cp", f"{conf}:{self._classes}", program]
        done = subprocess.run([*command, *words], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


def yarn_jars() -> Path:
    """Return the folder of the mini cluster's jars, fetched at the first call on this machine.

    Raises:
        RuntimeError: they could not be fetched; the message is the resolver's.
    """

    def fetch(jars: Path) -> None:
        ivy_retrieve(JARS, ["jar", "bundle"], f"{jars}/[artifact]-[revision].[ext]")

    return fetched_once("yarn-cluster", JARS, fetch)


class Container(NamedTuple):
    """The folder in which YARN runs a container."""

    folder: Path

    @property
    def node(self) -> int:
        """Index of its node manager."""
        found = re.search(r"-nm-(\d+)_", str(self.folder))
        assert found is not None
        return int(found[1])

    @property
    def application(self) -> str:
        """The id of its application."""
        _, time, number, *_ = self.folder.name.split("_")
        return f"application_{time}_{number}"

    @property
    def is_master(self) -> bool:
        """Whether it is an application master: the driver in cluster mode."""
        return self.folder.name.endswith("_000001")

    def pids(self) -> list[int]:
        """Its processes."""
        return processes_below(self.folder.parent).get(self.folder, [])

    def kill(self) -> None:
        """SIGKILL to all its processes, as if its machine lost power."""
        kill_all(self.pids())
