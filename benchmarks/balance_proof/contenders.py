"""The contenders: the stock brokers alone, and our collector, job and executor beside them; each
with the modular and with the extensible load manager.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.program import ROOT, Program
from tests.servers.pulsar_cluster import MANAGERS, PulsarCluster

_NAMESPACE: Final = "public/quotaplane"
_READY_WITHIN_S: Final = 600.0


@dataclass(frozen=True)
class Contender:
    """A way to balance a cluster, with its settings of the brokers and its programs."""

    name: str
    title: str
    broker_settings: Mapping[str, str]
    control: Callable[[PulsarCluster, Path], AbstractContextManager[Callable[[], None]]]
    """In control from its beginning to its end; the function is called when the cluster's policies
    have changed."""


@contextmanager
def _nothing(cluster: PulsarCluster, folder: Path) -> Iterator[Callable[[], None]]:
    yield lambda: None


@contextmanager
def _ours(cluster: PulsarCluster, folder: Path) -> Iterator[Callable[[], None]]:
    rest = cluster.rest()
    rest.create_namespace(_NAMESPACE)
    for topic in ("load-reports", "balance-plans", "limits"):
        rest.create_topic(f"persistent://{_NAMESPACE}/{topic}")
    programs = _OurPrograms(our_settings(cluster, folder), folder)
    try:
        # Spark's first batches take longest; a job that runs has them behind it.
        programs.start().wait_for("decided=1", _READY_WITHIN_S)
        yield programs.follow_policies
        programs.check()
    finally:
        programs.stop()


class _OurPrograms:
    """Collector, job and executor, which take the cluster's policies from their settings."""

    def __init__(self, settings: dict[str, Any], folder: Path) -> None:
        self._settings, self._folder = settings, folder
        self._conf = folder / "balance.yaml"
        self._command = [sys.executable, "-m", "quotaplane", "balance"]
        self._running: dict[str, Program] = {}
        self._starts = 0

    def start(self) -> Program:
        """Start all, and return the job when it is ready."""
        self._conf.write_text(yaml.safe_dump(self._settings))
        conf = ["--conf", str(self._conf)]
        self._starts += 1
        self._start("collector", [*self._command, "collect", *conf])
        self._start("job", [str(ROOT / "spark-submit.sh"), "balance", *conf])
        self._running["job"].wait_for("ready", _READY_WITHIN_S)
        self._start("executor", [*self._command, "execute", "--auto", *conf])
        return self._running["job"]

    def _start(self, name: str, command: list[str]) -> None:
        self._running[name] = Program(command, self._folder / f"{name}-{self._starts}.log")

    def follow_policies(self) -> None:
        """Put the cluster's policies into the settings and start again, as the pages say."""
        print_policies = [*self._command, "collect", "--policies", "--conf", str(self._conf)]
        printed = subprocess.run(
            print_policies, cwd=ROOT, check=True, capture_output=True, text=True,
            env=os.environ | {"PYTHONPATH": str(ROOT / "pipelines")},
        ).stdout  # fmt: skip
        policies = yaml.safe_load(printed)["balance"]["policies"]
        balance = self._settings["balance"]
        balance["policies"] = {**OUR_BALANCE["policies"], **policies}
        self.stop()
        self.start()

    def check(self) -> None:
        for program in self._running.values():
            program.check()

    def stop(self) -> None:
        for name in reversed([*self._running]):
            self._running.pop(name).stop()


OUR_BALANCE: Final[Mapping[str, Any]] = {
    "mode": "auto",
    "round_interval_s": 10.0,
    "options": {
        # All brokers are on one machine and report its processors: only bytes tell them apart.
        "resources": [],
        # As the brokers measure every 5 s instead of every 60 s.
        "sample_period_s": 5.0,
    },
    "policies": {"excluded_namespaces": [_NAMESPACE]},
    "collect": {"interval_s": 2.0},
}
"""Our settings that differ from their defaults."""

STOCK_SETTINGS: Final[Mapping[str, str]] = {
    "loadBalancerSheddingEnabled": "true",
    "loadBalancerAutoBundleSplitEnabled": "true",
    "loadBalancerLoadSheddingStrategy": (
        "org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder"
    ),
    "minUnloadMessage": "10",
    "minUnloadMessageThroughput": "10000",
    "loadBalancerNamespaceBundleMaxMsgRate": "1000",
}
"""Stock's settings that differ from the shipped ``broker.conf``."""

EXTENSIBLE_SETTINGS: Final[Mapping[str, str]] = {
    **MANAGERS["extensible"],
    "loadBalancerSheddingEnabled": "true",
    "loadBalancerAutoBundleSplitEnabled": "true",
    "loadBalancerLoadSheddingStrategy": (
        "org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder"
    ),
    "loadBalancerNamespaceBundleMaxMsgRate": "1000",
}
"""The same with the extensible load manager."""


def our_settings(cluster: PulsarCluster, folder: Path) -> dict[str, Any]:
    """Settings of our three programs."""
    return {
        "transport": {
            "kind": "pulsar",
            "service_url": cluster.service_url,
            "admin_url": cluster.admin_urls[0],
            "limits_topic": f"persistent://{_NAMESPACE}/limits",
        },
        "balance": dict(OUR_BALANCE),
        "history": {"path": str(folder / "history")},
        "checkpoint": str(folder / "checkpoint"),
    }


STOCK: Final = Contender("stock", "Stock Pulsar", STOCK_SETTINGS, _nothing)
STOCK_EXTENSIBLE: Final = Contender(
    "stock-extensible", "Stock Pulsar, extensible", EXTENSIBLE_SETTINGS, _nothing
)
OURS: Final = Contender("ours", "quotaplane", {}, _ours)
OURS_EXTENSIBLE: Final = Contender(
    "ours-extensible", "quotaplane, extensible", MANAGERS["extensible"], _ours
)
CONTENDERS: Final = (STOCK, STOCK_EXTENSIBLE, OURS, OURS_EXTENSIBLE)
