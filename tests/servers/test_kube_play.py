"""The image and the chart's pods, run by podman beside a real Kafka."""

from __future__ import annotations

import os
import signal
import threading
import time
import urllib.request
import uuid
from collections.abc import Iterator
from typing import Any, Final

import pytest
from kafka import KafkaConsumer, KafkaProducer

from quotaplane.wire.limits import decode_limits
from quotaplane.wire.signatures import SigningKeys
from tests.job import report_of
from tests.servers.chart_tools import render
from tests.servers.kafka_server import KafkaServer
from tests.servers.podman import IMAGE, Podman, as_pod, missing
from tests.servers.tools import free_ports
from tests.waiting import meanwhile, wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(missing()), reason=f"podman can't run here without {missing()}"),
]

LIMITS_KEY: Final = uuid.uuid4().hex * 2
LEASE_S: Final = 120.0
JOB: Final = "quotaplane-quota-0"
CONTAINER: Final = f"{JOB}-quota"
SETTINGS: Final = "/etc/quotaplane/settings.yaml"
WANTED: Final = {"a": 80.0, "b": 80.0, "c": 80.0}


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with Podman(tmp_path_factory.mktemp("podman")) as podman:
        podman.make_image()
        yield podman


class Brokers:
    """Brokers that want more than their group's quota, and verify each limits message."""

    def __init__(self, server: KafkaServer, reports: str, limits: str) -> None:
        self.limits: dict[str, float] = {}
        self.longest_gap_s = 0.0
        self._heard: dict[str, float] = {}
        self._keys = SigningKeys({"k1": LIMITS_KEY})
        self._reports, self._sent = reports, int(time.time())
        self._producer = KafkaProducer(bootstrap_servers=server.bootstrap_servers)
        self._consumer = KafkaConsumer(
            limits,
            bootstrap_servers=server.bootstrap_servers,
            auto_offset_reset="earliest",
            consumer_timeout_ms=200,
        )

    def run(self, over: threading.Event) -> None:
        """Report once a second, and listen, until it is over."""
        while not over.wait(1.0):
            self._sent += 1
            for broker, wanted in WANTED.items():
                used = min(wanted, self.limits.get(broker, wanted))
                report = report_of(broker, used, group="tenant/ns", sequence=self._sent)
                self._producer.send(self._reports, report, key=broker.encode())
            self._producer.flush()
            for message in self._consumer:
                self._hear(message.value)

    def _hear(self, value: bytes) -> None:
        update, now_s = decode_limits(self._keys.verify(value)), time.monotonic()
        gap_s = now_s - self._heard.get(update.broker, now_s)
        self.longest_gap_s = max(self.longest_gap_s, gap_s)
        self._heard[update.broker] = now_s
        if len(update.limits):
            self.limits[update.broker] = float(update.limits[0, 0])

    def heard_since(self, moment_s: float) -> bool:
        return len(self._heard) == len(WANTED) and min(self._heard.values()) > moment_s


def answers(port: int, path: str) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).close()
    except OSError:
        return False
    return True


def processes_of(podman: Podman) -> dict[str, int]:
    """Process ids, on this host, of the job in its container, and of its JVM."""
    rows = [line.split() for line in podman("top", CONTAINER, "comm,ppid,hpid").splitlines()[1:]]
    # tini has the id 1
    job = [int(pid) for _, parent, pid in rows if parent == "1"]
    jvm = [int(pid) for name, _, pid in rows if name == "java"]
    return {"job": job[0], "jvm": jvm[0]}


def test_the_image_is_small_and_needs_no_rights(podman: Podman) -> None:
    assert int(podman.state(IMAGE, "Size")) < 1.5e9
    alone = ("run", "--rm", "--network=none", "--read-only", "--cap-drop=all")
    assert podman(*alone, IMAGE, "--version").startswith("quotaplane ")
    # with another user, as some clusters choose one
    assert podman(*alone, "--user", "12345:0", IMAGE, "--version").startswith("quotaplane ")


def test_a_killed_job_goes_on_and_a_stopped_one_ends_its_round(
    podman: Podman, kafka_server: KafkaServer
) -> None:
    mark = uuid.uuid4().hex[:8]
    reports = kafka_server.create_topic(f"reports-{mark}", partitions=1)
    limits = kafka_server.create_topic(f"limits-{mark}", partitions=1)
    (port,) = free_ports(1)
    values: dict[str, Any] = {
        "settings": {
            "transport": {
                "kind": "kafka",
                "bootstrap_servers": kafka_server.bootstrap_servers,
                "report_topics": [reports],
                "limits_topic": limits,
            },
            "reports": {"interval_s": 2.0},
            "brokers": {"stale_after_intervals": 60, "expire_after_intervals": 60},
            "limits": {
                "lease_s": LEASE_S,
                "signing": {"sign_with": "k1", "keys": {"k1": "${LIMITS_KEY}"}},
            },
            "metrics": {"host": "127.0.0.1", "job_port": port},
        },
        "secrets": {"variables": {"LIMITS_KEY": {"secret": "signing", "key": "limits-key"}}},
        "image": {"repository": IMAGE.rpartition(":")[0], "tag": IMAGE.rpartition(":")[2]},
        "quota": {"standby": False},
    }
    rendered = render(values)
    podman.put_secret("signing", **{"limits-key": LIMITS_KEY})
    podman.play(
        [
            rendered.of("ConfigMap", "settings"),
            rendered.of("PersistentVolumeClaim", "data"),
            as_pod(rendered.of("StatefulSet", "quota")),
        ]
    )
    wait_until(lambda: answers(port, "/metrics"))
    assert not answers(port, "/readyz")
    wait_until(lambda: answers(port, "/readyz"))
    put = ("groups", "put", "tenant/ns", "--publish-messages-per-s", "90", "--conf", SETTINGS)
    podman("exec", CONTAINER, "quotaplane", *put)
    brokers = Brokers(kafka_server, reports, limits)
    with meanwhile(brokers.run):
        fair = dict.fromkeys(WANTED, pytest.approx(30.0, rel=0.05))
        wait_until(lambda: brokers.limits == fair)
        with pytest.raises(RuntimeError, match="Read-only file system"):
            podman("exec", CONTAINER, "touch", "/opt/quotaplane/new")
        assert podman("exec", CONTAINER, "id", "--user").strip() == "10001"

        for program in ("job", "jvm"):
            killed_at_s = time.monotonic()
            os.kill(processes_of(podman)[program], signal.SIGKILL)
            wait_until(lambda since=killed_at_s: brokers.heard_since(since))  # type: ignore[misc]
        assert podman.state(CONTAINER, "RestartCount") == "2"
        assert brokers.limits == fair
        print(f"longest time without limits: {brokers.longest_gap_s:.1f} s")
        assert brokers.longest_gap_s < LEASE_S

        podman("stop", "--time", "120", CONTAINER)
        assert podman.state(CONTAINER, "State.ExitCode") == "0"
        said = podman.said(CONTAINER)
        assert "ended: stopped by SIGTERM" in said
        assert said.count("created the tables") == 1
