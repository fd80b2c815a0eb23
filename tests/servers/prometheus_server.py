"""A real Prometheus on loopback, and promtool, from Debian's package.

The package is fetched once with ``apt-get download`` and unpacked in the user's cache (20 MB);
nothing is installed.
"""

from __future__ import annotations

import json
import subprocess
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.servers.tools import LoggedProcess, fetched_once, free_ports, run

DEPLOYED: Final = Path(__file__).parents[2] / "deploy" / "prometheus"


def prometheus_folder() -> Path:
    """The folder with the programs ``prometheus`` and ``promtool``."""
    return fetched_once("prometheus", DEPLOYED / "debian-packages.txt", _fetch) / "usr" / "bin"


def _fetch(folder: Path) -> None:
    """Unpack the packages in ``folder``."""
    scratch = folder.parent / "packages"
    scratch.mkdir()
    names = (DEPLOYED / "debian-packages.txt").read_text("utf-8").split()
    try:
        _download(names, scratch)
    except RuntimeError:
        # The machine has no list of packages, as in a fresh container: fetch one beside it.
        state, cache = scratch / "state", scratch / "cache"
        for place in (state / "lists" / "partial", cache / "archives" / "partial"):
            place.mkdir(parents=True)
        options = ["-o", f"Dir::State={state}", "-o", f"Dir::Cache={cache}"]
        options += ["-o", "Dir::State::status=/var/lib/dpkg/status"]
        run("updating apt's lists", ["apt-get", *options, "update"])
        _download(names, scratch, *options)
    for package in scratch.glob("*.deb"):
        run(f"unpacking {package.name}", ["dpkg", "-x", str(package), str(folder)])


def _download(names: list[str], folder: Path, *options: str) -> None:
    command = ["apt-get", "-o", "APT::Sandbox::User=root", *options, "download", *names]
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    if done.returncode != 0:
        raise RuntimeError(f"apt-get download failed:\n{done.stdout}{done.stderr}")


def promtool(*arguments: str, stdin: str | None = None, cwd: Path = DEPLOYED) -> str:
    """Run promtool in the folder of the deployed files; returns its output.

    Raises:
        AssertionError: it found something; the message has its output.
    """
    command = [str(prometheus_folder() / "promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, input=stdin, cwd=cwd)
    assert done.returncode == 0, f"promtool {arguments}:\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


class PrometheusServer(LoggedProcess):
    """A Prometheus with the deployed configuration and rules.

    ``targets``: by the name of a scrape job, ``host:port``; jobs without one are left out.
    """

    def __init__(self, folder: Path, targets: Mapping[str, str]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        conf = yaml.safe_load((DEPLOYED / "prometheus.yml").read_text("utf-8"))
        conf["global"] = {"scrape_interval": "1s", "evaluation_interval": "1s"}
        conf["rule_files"] = [str(DEPLOYED / name) for name in conf["rule_files"]]
        conf["scrape_configs"] = [
            {**job, "static_configs": [{"targets": [targets[job["job_name"]]]}]}
            for job in conf["scrape_configs"]
            if job["job_name"] in targets
        ]
        self._conf = folder / "prometheus.yml"
        self._conf.write_text(yaml.safe_dump(conf), encoding="utf-8")
        (port,) = free_ports(1)
        self._address = f"127.0.0.1:{port}"
        command = [
            str(prometheus_folder() / "prometheus"),
            f"--config.file={self._conf}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address={self._address}",
        ]
        super().__init__("Prometheus", folder / "server.log", command)

    def start(self) -> None:
        """Start, and wait until it serves."""
        super().start()
        self.wait_until(self._is_ready)

    def _is_ready(self) -> bool:
        try:
            urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=5).close()
        except OSError:
            return False
        return True

    def api(self, path: str, **parameters: str) -> Any:
        """The data of an answer of its HTTP API; it is asked as Grafana asks."""
        query = f"?{urllib.parse.urlencode(parameters)}" if parameters else ""
        with urllib.request.urlopen(f"http://{self._address}/api/v1/{path}{query}") as answer:
            body = json.load(answer)
        assert body["status"] == "success", body
        return body["data"]

    def value(self, expr: str) -> float | None:
        """The value of an expression that has at most one series; None: it has none."""
        result = self.api("query", query=expr)["result"]
        assert len(result) <= 1, result
        return float(result[0]["value"][1]) if result else None

    def firing(self) -> set[str]:
        """The names of the alerts that fire."""
        alerts = self.api("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}
