"""The image and the chart's pods, run by podman beside a real Kafka."""

from __future__ import annotations

import os
import signal
import urllib.request
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from quotaplane.settings import load_settings
from tests.job import write_conf
from tests.servers.chart_tools import NAME, render
from tests.servers.kafka_server import VERSION, KafkaServer
from tests.servers.outages import Outages
from tests.servers.podman import IMAGE, Podman, as_pod, missing
from tests.servers.reporting_brokers import SECTIONS, ReportingBrokers
from tests.servers.tools import free_ports
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(missing()), reason=f"podman can't run here without {missing()}"),
]

LIMITS_KEY: Final = uuid.uuid4().hex * 2
JOB: Final = "quotaplane-quota-0"
CONTAINER: Final = f"{JOB}-quota"
SETTINGS: Final = "/etc/quotaplane/settings.yaml"


@pytest.fixture(scope="module")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with Podman(tmp_path_factory.mktemp("podman")) as podman:
        podman.make_image()
        yield podman


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
    podman: Podman,
    kafka_server: KafkaServer,
    outages: Outages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mark = uuid.uuid4().hex[:8]
    reports = kafka_server.create_topic(f"reports-{mark}", partitions=1)
    limits = kafka_server.create_topic(f"limits-{mark}", partitions=1)
    (port,) = free_ports(1)
    transport = {
        "kind": "kafka",
        "bootstrap_servers": kafka_server.bootstrap_servers,
        "report_topics": [reports],
        "limits_topic": limits,
    }
    signing = {"sign_with": "k1", "keys": {"k1": "${LIMITS_KEY}"}}
    sections = {**SECTIONS, "limits": {**SECTIONS["limits"], "signing": signing}}
    values: dict[str, Any] = {
        "settings": {
            "transport": transport,
            **sections,
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
    # This process reads the history where podman keeps the volume.
    volume = podman("volume", "inspect", f"{NAME}-data", "--format", "{{.Mountpoint}}").strip()
    monkeypatch.setenv("LIMITS_KEY", LIMITS_KEY)
    there = load_settings(
        write_conf(tmp_path, transport, **sections, history={"path": f"{volume}/history"})
    )
    with ReportingBrokers(there, "tenant/ns", a=80.0, b=80.0, c=80.0) as brokers:
        wait_until(lambda: brokers.share(30.0))
        with pytest.raises(RuntimeError, match="Read-only file system"):
            podman("exec", CONTAINER, "touch", "/opt/quotaplane/new")
        assert podman("exec", CONTAINER, "id", "--user").strip() == "10001"

        for program, words in {"job": "the job", "jvm": "the job's JVM"}.items():
            pid = processes_of(podman)[program]
            outage = brokers.through(lambda pid=pid: os.kill(pid, signal.SIGKILL))  # type: ignore[misc]
            versions = f"{podman('--version').strip()}, Kafka {VERSION}"
            part = "a pod of the chart, played by podman"
            outages.note(part, f"{words} killed", outage, versions=versions)
        assert podman.state(CONTAINER, "RestartCount") == "2"
        assert brokers.share(30.0)

        podman("stop", "--time", "120", CONTAINER)
        assert podman.state(CONTAINER, "State.ExitCode") == "0"
        said = podman.said(CONTAINER)
        assert "ended: stopped by SIGTERM" in said
        assert said.count("created the tables") == 1
