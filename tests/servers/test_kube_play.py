"""The image and the chart's pods, run by podman beside a real Kafka."""

from __future__ import annotations

import functools
import json
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
from tests.servers.outages import WANTED_WITH_STANDBY_S, Outages
from tests.servers.podman import IMAGE, Podman, as_pod, missing
from tests.servers.reporting_brokers import SECTIONS, Outage, ReportingBrokers
from tests.servers.tools import free_ports
from tests.waiting import wait_until

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(bool(missing()), reason=f"podman can't run here without {missing()}"),
]

LIMITS_KEY: Final = uuid.uuid4().hex * 2
PODS: Final = ("quotaplane-quota-0", "quotaplane-quota-1")
CONTAINER, OTHER = (f"{pod}-quota" for pod in PODS)
SETTINGS: Final = "/etc/quotaplane/settings.yaml"


@pytest.fixture(scope="module")
def podman_with_image(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Podman]:
    with Podman(tmp_path_factory.mktemp("podman")) as podman:
        podman.make_image()
        podman.put_secret("signing", **{"limits-key": LIMITS_KEY})
        yield podman


@pytest.fixture
def podman(podman_with_image: Podman) -> Iterator[Podman]:
    """Podman without pods and volumes of other tests."""
    yield podman_with_image
    podman_with_image.remove_pods()


class Played:
    """The chart's pods of the quota job on a new volume, and brokers beside them.

    Args:
        podman: plays them.
        kafka: has their topics.
        folder: a new one, for the settings of this process.
        ports: of the metrics of each pod, as all have this host's network. Of two pods one stands
            by.
    """

    def __init__(self, podman: Podman, kafka: KafkaServer, folder: Path, ports: list[int]) -> None:
        self._podman, self._folder = podman, folder
        mark = uuid.uuid4().hex[:8]
        self._settings: dict[str, Any] = {
            **SECTIONS,
            "transport": {
                "kind": "kafka",
                "bootstrap_servers": kafka.bootstrap_servers,
                "report_topics": [kafka.create_topic(f"reports-{mark}", partitions=1)],
                "limits_topic": kafka.create_topic(f"limits-{mark}", partitions=1),
            },
        }
        signing = {"sign_with": "k1", "keys": {"k1": "${LIMITS_KEY}"}}
        self._settings["limits"] = {**SECTIONS["limits"], "signing": signing}
        metrics = {"host": "127.0.0.1", "job_port": ports[0]}
        rendered = render(
            {
                "settings": {**self._settings, "metrics": metrics},
                "secrets": {
                    "variables": {"LIMITS_KEY": {"secret": "signing", "key": "limits-key"}}
                },
                "image": {"repository": IMAGE.rpartition(":")[0], "tag": IMAGE.rpartition(":")[2]},
                "quota": {"standby": len(ports) == 2},
            }
        )
        job = rendered.of("StatefulSet", "quota")
        assert job["spec"]["replicas"] == len(ports)
        documents = [rendered.of("PersistentVolumeClaim", "data")]
        for number, port in enumerate(ports):
            own = json.dumps([rendered.of("ConfigMap", "settings"), as_pod(job, number)])
            own = own.replace(f"{NAME}-settings", f"{NAME}-settings-{number}")
            documents += json.loads(own.replace(str(ports[0]), str(port)))
        podman.play(documents)

    def brokers(self) -> ReportingBrokers:
        """Three that want more than their group's quota; the job has made the tables."""
        quota = ("--publish-messages-per-s", "90", "--conf", SETTINGS)
        self._podman("exec", CONTAINER, "quotaplane", "groups", "put", "tenant/ns", *quota)
        # This process reads the history where podman keeps the volume.
        words = ("volume", "inspect", f"{NAME}-data", "--format", "{{.Mountpoint}}")
        history = {"path": f"{self._podman(*words).strip()}/history"}
        settings = load_settings(write_conf(self._folder, **self._settings, history=history))
        return ReportingBrokers(settings, "tenant/ns", a=80.0, b=80.0, c=80.0)

    def note(self, outages: Outages, harm: str, outage: Outage, **more: float) -> None:
        """Note an outage."""
        versions = f"{self._podman('--version').strip()}, Kafka {VERSION}"
        outages.note("the chart's pods, played by podman", harm, outage, versions=versions, **more)


def answers(port: int, path: str) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5).close()
    except OSError:
        return False
    return True


def processes_of(podman: Podman, container: str = CONTAINER) -> dict[str, int]:
    """Process ids, on this host, of the job in its container, and of its JVM."""
    rows = [line.split() for line in podman("top", container, "comm,ppid,hpid").splitlines()[1:]]
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
    monkeypatch.setenv("LIMITS_KEY", LIMITS_KEY)
    (port,) = free_ports(1)
    played = Played(podman, kafka_server, tmp_path, [port])
    wait_until(lambda: answers(port, "/metrics"))
    assert not answers(port, "/readyz")
    wait_until(lambda: answers(port, "/readyz"))
    with played.brokers() as brokers:
        wait_until(lambda: brokers.share(30.0))
        with pytest.raises(RuntimeError, match="Read-only file system"):
            podman("exec", CONTAINER, "touch", "/opt/quotaplane/new")
        assert podman("exec", CONTAINER, "id", "--user").strip() == "10001"

        pids = functools.partial(processes_of, podman)
        outage = brokers.through(lambda: os.kill(pids()["job"], signal.SIGKILL))
        played.note(outages, "the job killed", outage)
        outage = brokers.through(lambda: os.kill(pids()["jvm"], signal.SIGKILL))
        played.note(outages, "the job's JVM killed", outage)
        assert podman.state(CONTAINER, "RestartCount") == "2"
        assert brokers.share(30.0)

        podman("stop", "--time", "120", CONTAINER)
        assert podman.state(CONTAINER, "State.ExitCode") == "0"
        said = podman.said(CONTAINER)
        assert "ended: stopped by SIGTERM" in said
        assert said.count("created the tables") == 1


def test_of_two_pods_one_stands_by_and_takes_over(
    podman: Podman,
    kafka_server: KafkaServer,
    outages: Outages,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LIMITS_KEY", LIMITS_KEY)
    played = Played(podman, kafka_server, tmp_path, free_ports(2))
    said = {name: functools.partial(podman.said, name) for name in (CONTAINER, OTHER)}
    wait_until(lambda: any("quotaplane: ready:" in each() for each in said.values()))
    with played.brokers() as brokers:
        wait_until(lambda: any("standby: warm" in each() for each in said.values()))
        wait_until(lambda: brokers.share(30.0))
        (leader,) = (name for name, each in said.items() if "quotaplane: ready:" in each())
        job = processes_of(podman, leader)["job"]
        outage = brokers.through(lambda: os.kill(job, signal.SIGKILL))
        wanted_s = WANTED_WITH_STANDBY_S
        played.note(outages, "the leader of two killed", outage, wanted_s=wanted_s)
        wait_until(lambda: "standby: warm" in said[leader]())
