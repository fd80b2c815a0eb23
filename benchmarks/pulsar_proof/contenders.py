"""Who is in control: the brokers' own calculator, or our job and our enforcer beside them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from benchmarks.program import Program
from benchmarks.pulsar_proof.scenarios import REPORT_INTERVAL_S, Scenario
from tests.servers.pulsar_cluster import PulsarCluster

_IN_CONTROL_WITHIN_S: Final = 240.0
_LIMITS_TOPIC: Final = "persistent://public/quotaplane/limits"


@dataclass(frozen=True)
class Contender:
    """Who is judged, and what has to run for that."""

    name: str
    title: str
    control: Callable[[PulsarCluster, Sequence[Scenario], Path], Any]
    """A context manager: in control from its beginning to its end."""


@contextmanager
def _stock(cluster: PulsarCluster, scenes: Sequence[Scenario], folder: Path) -> Iterator[None]:
    """The transport is on, and the groups are attached: nothing else to start."""
    yield


@contextmanager
def _ours(cluster: PulsarCluster, scenes: Sequence[Scenario], folder: Path) -> Iterator[None]:
    cluster.rest().create_namespace("public/quotaplane")
    cluster.rest().create_topic(_LIMITS_TOPIC)
    conf = folder / "pulsar.yaml"
    conf.write_text(yaml.safe_dump(_settings(cluster, scenes, folder)))
    quotaplane = str(Path(sys.executable).with_name("quotaplane"))
    # The table must know that they have no publish quota: docs/pulsar-groups.md, New groups.
    unlimited = ["--publish-messages-per-s", "unlimited", "--publish-bytes-per-s", "unlimited"]
    for scene in scenes:
        if scene.dispatch:
            put = [quotaplane, "groups", "put", scene.name, *unlimited, "--init"]
            subprocess.run([*put, "--conf", str(conf)], check=True, stdout=subprocess.DEVNULL)
    job = ["./spark-submit.sh", "quota", "--conf", str(conf)]
    enforcer = [quotaplane, "enforce", "pulsar", "--conf", str(conf)]
    running = [Program(job, folder / "job.log"), Program(enforcer, folder / "enforcer.log")]
    try:
        deadline = time.monotonic() + _IN_CONTROL_WITHIN_S
        while not _taken_over(cluster, scenes):
            for program in running:
                program.check()
            if time.monotonic() > deadline:
                raise TimeoutError("our enforcer did not take the groups over; see its log")
            time.sleep(0.5)
        yield
        for program in running:
            program.check()
    finally:
        for program in reversed(running):
            program.stop()


STOCK: Final = Contender("stock", "Stock Pulsar's calculator", _stock)
OURS: Final = Contender("ours", "quotaplane", _ours)
CONTENDERS: Final = (STOCK, OURS)


def _settings(
    cluster: PulsarCluster, scenes: Sequence[Scenario], folder: Path
) -> dict[str, object]:
    tenants = {tenant_of(scene): scene.name for scene in scenes if scene.tenant}
    return {
        "transport": {
            "kind": "pulsar",
            "service_url": cluster.service_urls[0],
            "admin_url": cluster.admin_urls[0],
            "limits_topic": _LIMITS_TOPIC,
        },
        "cluster": {"poll_interval_s": 1.0, "tenants": tenants},
        "enforce": {},
        "reports": {"interval_s": float(REPORT_INTERVAL_S)},
        "history": {"path": str(folder / "history")},
        "checkpoint": str(folder / "checkpoint"),
    }


def tenant_of(scene: Scenario) -> str:
    return f"tenant-of-{scene.name}" if scene.tenant else "public"


def _taken_over(cluster: PulsarCluster, scenes: Sequence[Scenario]) -> bool:
    """Whether the brokers' own calculator has nothing to enforce any more, in any group."""
    groups = (cluster.rest().call("GET", f"resourcegroups/{scene.name}") for scene in scenes)
    return all(group["publishRateInMsgs"] == -1 for group in groups)
