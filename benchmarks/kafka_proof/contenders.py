"""Contenders in control: Kafka's own client quotas, or our plugin and our job."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import yaml
from confluent_kafka import Consumer, TopicPartition

from benchmarks.kafka_proof.admin import set_client_quotas
from benchmarks.kafka_proof.scenarios import LEASE_S, Scenario
from benchmarks.program import Program
from tests.servers.kafka_cluster import KafkaCluster

BROKERS: Final = 3
WINDOW: Final = {"quota.window.num": "1", "quota.window.size.seconds": "1"}
"""All contenders have this, docs/operate/kafka-plugin.md#windows says why: with two windows use
swings between nothing and twice the limit, with Kafka's default of 11 a cut to a quarter mutes a
client for half a minute."""
_BYTES: Final = 1000.0
_LIMITS, _REPORTS, _ATTACHMENTS = (
    "quotaplane-limits",
    "quotaplane-reports",
    "quotaplane-attachments",
)
_IN_CONTROL_WITHIN_S: Final = 120.0
_REPORT_INTERVAL_S: Final = 1.0


class Control:
    """Limits tenants from ``begin`` to ``end``; by default without a program of its own."""

    milestones: Mapping[str, float] = {}
    """Seconds since its first program was started, by what happened then."""

    def put(self, scenes: Sequence[Scenario]) -> None:
        """Set the quotas of these."""
        raise NotImplementedError

    def begin(self) -> None:
        """Return when quotas are in force; a second call does nothing."""

    def leave(self) -> None:
        """Stop deciding."""

    def come_back(self) -> None:
        """Decide again; returns with the first decision."""

    def check(self) -> None:
        """Raise RuntimeError if a program ended."""

    def end(self) -> None:
        """Stop all programs."""


class _Stock(Control):
    """Kafka's client quotas: the same number on each broker."""

    def __init__(self, cluster: KafkaCluster, folder: Path, *, part: float) -> None:
        self._cluster, self._part = cluster, part

    def put(self, scenes: Sequence[Scenario]) -> None:
        for scene in scenes:
            rates = dict.fromkeys(scene.clients, round(scene.quota * _BYTES * self._part))
            set_client_quotas(self._cluster.bootstrap_servers, scene.dimension, rates)


class _Ours(Control):
    """The plugin is in the brokers; the job is a program of ours."""

    def __init__(self, cluster: KafkaCluster, folder: Path) -> None:
        self._cluster, self._folder = cluster, folder
        self._conf = folder / "kafka.yaml"
        self._conf.write_text(yaml.safe_dump(self._settings()))
        options = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "proof"}
        self._reader = Consumer(options)
        self._job: Program | None = None
        self._starts = 0
        leader = [1]
        for topic in (_LIMITS, _REPORTS):
            configs = {"retention.ms": "3600000", "compression.type": "uncompressed"}
            cluster.create_topic(topic, leader, copies=BROKERS, configs=configs)
        configs = {"cleanup.policy": "compact"}
        cluster.create_topic(_ATTACHMENTS, leader, copies=BROKERS, configs=configs)

    def put(self, scenes: Sequence[Scenario]) -> None:
        groups = [
            {"group": group_of(client), scene.dimension: scene.quota * _BYTES}
            for scene in scenes
            for client in scene.clients
        ]
        file = self._folder / "groups.yaml"
        file.write_text(yaml.safe_dump(groups))
        quotaplane = str(Path(sys.executable).with_name("quotaplane"))
        apply = [quotaplane, "groups", "apply", "-f", str(file), "--conf", str(self._conf)]
        subprocess.run([*apply, "--init"], check=True, stdout=subprocess.DEVNULL)

    def begin(self) -> None:
        if self._job is None:
            begun_s = time.time()
            self.come_back()
            self.milestones = {"the first limits are on their topic": time.time() - begun_s}

    def leave(self) -> None:
        if self._job is not None:
            self._job.stop()
        self._job = None

    def come_back(self) -> None:
        self._starts += 1
        command = ["./spark-submit.sh", "quota", "--conf", str(self._conf)]
        before = self._limits()
        self._job = Program(command, self._folder / f"job-{self._starts}.log")
        deadline = time.monotonic() + _IN_CONTROL_WITHIN_S
        while self._limits() == before:
            self.check()
            if time.monotonic() > deadline:
                raise TimeoutError("the job published no limits; see its log")
            time.sleep(0.05)

    def check(self) -> None:
        if self._job is not None:
            self._job.check()

    def end(self) -> None:
        self.leave()
        self._reader.close()

    def _limits(self) -> int:
        """Messages on the limits topic so far."""
        return int(self._reader.get_watermark_offsets(TopicPartition(_LIMITS, 0), timeout=10.0)[1])

    def _settings(self) -> dict[str, object]:
        return {
            "transport": {
                "kind": "kafka",
                "bootstrap_servers": self._cluster.bootstrap_servers,
                "report_topics": [_REPORTS],
                "limits_topic": _LIMITS,
                "attachments_topic": _ATTACHMENTS,
            },
            "trigger": {"interval_s": 1.0},
            "reports": {"interval_s": _REPORT_INTERVAL_S},
            "limits": {"lease_s": LEASE_S},
            "history": {"path": str(self._folder / "history")},
            "checkpoint": str(self._folder / "checkpoint"),
            "shards": 1,
        }


def group_of(client: str) -> str:
    """The resource group of a client id; its name attaches it."""
    return f"client={client}"


@dataclass(frozen=True)
class Contender:
    """A controller that is judged."""

    name: str
    title: str
    control: Callable[[KafkaCluster, Path], Control]
    plugin: bool = False
    """Its brokers have our plugin."""

    def cluster(self, folder: Path) -> KafkaCluster:
        """Three servers, each a broker and a controller."""
        properties = {"auto.leader.rebalance.enable": "false", **WINDOW}
        jars: list[Path] = []
        if self.plugin:
            from tests.jvm.kafka_plugin import plugin_jar

            jars = [plugin_jar()]
            properties |= _PLUGIN
        return KafkaCluster(
            folder,
            servers=BROKERS,
            heap_mb=512,
            jvm_options="-XX:+UseSerialGC",
            extra_jars=jars,
            properties=properties,
        )


_PLUGIN: Final = {
    "client.quota.callback.class": "io.quotaplane.kafka.MonitoredQuotaCallback",
    "metric.reporters": "io.quotaplane.kafka.QuotaplaneMetricsReporter",
    "quotaplane.bootstrap.servers": "{bootstrap_servers}",
    "quotaplane.limits.topic": _LIMITS,
    "quotaplane.reports.topic": _REPORTS,
    "quotaplane.attachments.topic": _ATTACHMENTS,
    "quotaplane.report.interval.ms": f"{1000 * _REPORT_INTERVAL_S:.0f}",
    "quotaplane.limits.lease.ms": f"{1000 * LEASE_S:.0f}",
}

EACH: Final = Contender("each", "Stock, the quota on each broker", partial(_Stock, part=1.0))
THIRD: Final = Contender("third", "Stock, a third on each", partial(_Stock, part=1.0 / BROKERS))
OURS: Final = Contender("quotaplane", "quotaplane", _Ours, plugin=True)
CONTENDERS: Final = (EACH, THIRD, OURS)
