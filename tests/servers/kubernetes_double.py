"""Doubles of a Kubernetes cluster: an API server that keeps what it is given, and a kubelet.

The kubelet runs each pod as a process of this machine, with the pod's variables; nothing checks
rights, and there are no images. Jars: about 1 MB, fetched once, beside Spark's.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from tests.servers.tools import LoggedProcess, end, fetched_once, free_ports, ivy_retrieve
from tests.spark.fixtures import ROOT, launcher_environment

JARS: Final = ROOT / "deploy/kubernetes-double-jars.xml"
SOURCE: Final = Path(__file__).with_name("KubernetesDouble.java")
_ADDRESS: Final = "127.0.0.1"


class KubernetesDouble:
    """Use as a context manager; ``url`` is what ``--master k8s://`` takes.

    Args:
        folder: an empty folder for the logs and for what pods write.
        namespace: of the pods.
        command: the words of each executor's process, in place of its image's program.
    """

    def __init__(self, folder: Path, namespace: str, command: Sequence[str]) -> None:
        (port,) = free_ports(1)
        self.url = f"http://{_ADDRESS}:{port}"
        self._folder, self._command = folder, command
        self._pods = f"{self.url}/api/v1/namespaces/{namespace}/pods"
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self._over = threading.Event()
        self._kubelet = threading.Thread(target=self._run_pods, daemon=True)
        environment = launcher_environment()
        jars = fetched_once("kubernetes-double", JARS, _fetch)
        classes = f"{jars}/*:{environment['SPARK_HOME']}/jars/*"
        java = f"{environment['JAVA_HOME']}/bin/java"
        self._server = LoggedProcess(
            "the double of Kubernetes",
            folder / "server.log",
            [java, "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", classes, str(SOURCE), str(port)],
        )

    def __enter__(self) -> KubernetesDouble:
        self._server.start()
        self._server.wait_until(lambda: "\nready" in self._server.said())
        self._kubelet.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._kubelet.join(30)
        for process in self._running.values():
            end(process)
        self._server.stop()

    def add(self, pod: dict[str, Any]) -> None:
        """Add a pod that the kubelet leaves alone, such as the driver's."""
        self._ask("POST", "", pod)

    def executors(self) -> dict[str, dict[str, Any]]:
        """The pods of executors that there are, by name."""
        pods = self._ask("GET", f"?labelSelector={quote('spark-role=executor')}")["items"]
        return {pod["metadata"]["name"]: pod for pod in pods}

    def rights_used(self) -> set[tuple[str, str]]:
        """The rights that Spark's requests needed: verbs and resources."""
        pattern = r"^request (?!Python)\S+ (\w+) /api/v1/namespaces/[^/]+/(\w+)(/\S+)?(\?\S*)?$"
        found = set()
        for method, resource, name, query in re.findall(pattern, self._server.said(), re.M):
            verb = {"POST": "create", "PUT": "update"}.get(method, method.lower())
            if method == "GET" and not name:
                verb = "watch" if "watch=true" in query else "list"
            elif method == "DELETE" and not name:
                verb = "deletecollection"
            found.add((verb, resource))
        return found

    def pid(self, name: str) -> int:
        """The id of a pod's process."""
        return self._running[name].pid

    def _ask(self, method: str, path: str, body: object = None) -> Any:
        request = urllib.request.Request(
            self._pods + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/merge-patch+json"},
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            return json.load(answer)

    def _run_pods(self) -> None:
        while not self._over.wait(0.2):
            wanted = self.executors()
            for name, pod in wanted.items():
                if name not in self._running:
                    self._running[name] = self._start(name, pod)
                    self._say(name, "Running", {"running": {}})
                elif (code := self._running[name].poll()) is not None and _phase(pod) == "Running":
                    phase = "Failed" if code else "Succeeded"
                    code = code if code >= 0 else 128 - code
                    self._say(name, phase, {"terminated": {"exitCode": code}})
            for name in self._running.keys() - wanted.keys():
                end(self._running.pop(name))

    def _start(self, name: str, pod: dict[str, Any]) -> subprocess.Popen[bytes]:
        (container,) = pod["spec"]["containers"]
        folder = self._folder / name
        folder.mkdir()
        variables = {each["name"]: each.get("value", _ADDRESS) for each in container["env"]}
        variables |= {"SPARK_LOCAL_DIRS": str(folder), "SPARK_LOCAL_IP": _ADDRESS}
        with (folder / "log").open("wb") as log:
            return subprocess.Popen(
                [*self._command, *container["args"]],
                env={"PATH": os.environ["PATH"], "HOME": str(folder), **variables},
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _say(self, name: str, phase: str, state: dict[str, Any]) -> None:
        status = {
            "phase": phase,
            "podIP": _ADDRESS,
            "containerStatuses": [{"name": "executor", "state": state}],
        }
        try:
            self._ask("PATCH", f"/{name}/status", {"status": status})
        except OSError:  # it was deleted meanwhile
            return


def _phase(pod: dict[str, Any]) -> str:
    return str(pod.get("status", {}).get("phase", ""))


def _fetch(folder: Path) -> None:
    ivy_retrieve(JARS, ["jar", "bundle"], f"{folder}/[artifact]-[revision].[ext]")
