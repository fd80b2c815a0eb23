"""Both contenders: the stock brokers alone, and our collector, job and executor beside them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.program import ROOT, Program
from tests.servers.pulsar_cluster import PulsarCluster

_NAMESPACE: Final = "public/quotaplane"
_READY_WITHIN_S: Final = 240.0


@dataclass(frozen=True)
class Contender:
    """A way to balance a cluster, with its settings of the brokers and its programs."""

    name: str
    title: str
    broker_settings: Mapping[str, str]
    control: Callable[[PulsarCluster, Path], Any]
    """A context manager: in control from its beginning to its end."""


@contextmanager
def _nothing(cluster: PulsarCluster, folder: Path) -> Iterator[None]:
    yield


@contextmanager
def _ours(cluster: PulsarCluster, folder: Path) -> Iterator[None]:
    rest = cluster.rest()
    rest.create_namespace(_NAMESPACE)
    for topic in ("load-reports", "balance-plans", "limits"):
        rest.create_topic(f"persistent://{_NAMESPACE}/{topic}")
    conf = folder / "balance.yaml"
    conf.write_text(yaml.safe_dump(our_settings(cluster, folder)))
    command = [sys.executable, "-m", "quotaplane", "balance"]
    running = [
        Program([*command, "collect", "--conf", str(conf)], folder / "collector.log"),
        Program(
            [str(ROOT / "spark-submit.sh"), "balance", "--conf", str(conf)], folder / "job.log"
        ),
    ]
    try:
        running[1].wait_for("ready", _READY_WITHIN_S)
        execute = [*command, "execute", "--auto", "--conf", str(conf)]
        running.append(Program(execute, folder / "executor.log"))
        # Spark's first batches take longest; a job that runs has them behind it.
        running[1].wait_for("decided=1", _READY_WITHIN_S)
        yield
        for program in running:
            program.check()
    finally:
        for program in reversed(running):
            program.stop()


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


def our_settings(cluster: PulsarCluster, folder: Path) -> dict[str, object]:
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
OURS: Final = Contender("ours", "quotaplane", {}, _ours)
CONTENDERS: Final = (STOCK, OURS)
