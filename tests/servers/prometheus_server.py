"""A real Prometheus on loopback, and promtool, from Debian's package.

The package is fetched once with ``apt-get download`` and unpacked in the user's cache (20 MB);
nothing is installed.
"""

from __future__ import annotations

import json
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from tests.servers.tools import end, fetched_once, free_ports, run

DEPLOYED: Final = Path(__file__).parents[2] / "deploy" / "prometheus"
_READY_WITHIN_S: Final = 60.0


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


class PrometheusServer:
    """A Prometheus with the deployed configuration and rules; a context manager.

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
        self._folder = folder
        (port,) = free_ports(1)
        self._address = f"127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> PrometheusServer:
        log = self._folder / "server.log"
        with log.open("wb") as out:
            self._process = subprocess.Popen(
                [
                    str(prometheus_folder() / "prometheus"),
                    f"--config.file={self._conf}",
                    f"--storage.tsdb.path={self._folder / 'data'}",
                    f"--web.listen-address={self._address}",
                ],
                stdout=out,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
        deadline = time.monotonic() + _READY_WITHIN_S
        while True:
            try:
                urllib.request.urlopen(f"http://{self._address}/-/ready", timeout=5).close()
                return self
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    end(self._process)
                    text = log.read_text(errors="replace")[-4000:]
                    raise RuntimeError(f"Prometheus did not start:\n{text}") from None
                time.sleep(0.1)

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            end(self._process)

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
