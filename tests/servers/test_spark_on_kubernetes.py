"""The quota job with its executors as pods, beside doubles of Kubernetes' API server and nodes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from quotaplane.settings import load_settings
from tests.job import RunningJob, put_quotas, write_conf
from tests.servers.chart_tools import NAME, Rendered, render
from tests.servers.kubernetes_double import KubernetesDouble
from tests.servers.outages import Outages
from tests.servers.reporting_brokers import SECTIONS, ReportingBrokers
from tests.spark.fixtures import ROOT
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly

DRIVER: Final = f"{NAME}-quota-0"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesDouble]:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.delenv("PYTHONPATH", raising=False)
    folder = tmp_path / "pods"
    folder.mkdir()
    with KubernetesDouble(folder, NAME, [str(ROOT / "deploy/executor.sh")]) as running:
        running.add({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": DRIVER}, "spec": {}})
        yield running


def options_of(rendered: Rendered, cluster: KubernetesDouble, folder: Path) -> list[str]:
    """The options that the chart gives the job, with this cluster's addresses and folders."""
    (container,) = rendered.of("StatefulSet", "quota")["spec"]["template"]["spec"]["containers"]
    words = container["args"][container["args"].index("--master") :]
    file = folder / "spark.conf"
    text = rendered.of("ConfigMap", "settings")["data"]["spark.conf"]
    file.write_text(text.replace("/opt/quotaplane", str(ROOT)), encoding="utf-8")
    places = {
        "https://kubernetes.default.svc": cluster.url,
        "/etc/quotaplane/spark.conf": str(file),
        "$(POD_IP)": "127.0.0.1",
        "$(POD_NAME)": DRIVER,
    }
    for there, here in places.items():
        assert any(there in word for word in words), there
        words = [word.replace(there, here) for word in words]
    return [*words, "--executor-memory", "600m"]


def test_executors_are_pods_and_a_killed_one_is_replaced(
    cluster: KubernetesDouble, outages: Outages, tmp_path: Path
) -> None:
    transport = {"kind": "delta", "path": str(tmp_path / "job/topics")}
    rendered = render({"settings": {"transport": transport}, "quota": {"executors": 2}})
    conf = write_conf(tmp_path / "job", transport, **SECTIONS)
    settings = load_settings(conf)
    put_quotas(settings, g=90.0)
    brokers = ReportingBrokers(settings, a=80.0, b=80.0, c=80.0)
    with RunningJob(conf, *options_of(rendered, cluster, tmp_path)) as job, brokers:
        job.wait_until(lambda: brokers.share(30.0), within_s=250)
        before = cluster.executors()
        assert len(before) == 2
        for pod in before.values():
            (container,) = pod["spec"]["containers"]
            assert container["command"] == ["tini", "--", "/opt/quotaplane/deploy/executor.sh"]
            assert container["securityContext"]["readOnlyRootFilesystem"] is True
            assert pod["metadata"]["labels"]["app.kubernetes.io/component"] == "executor"
            assert pod["metadata"]["ownerReferences"][0]["name"] == DRIVER
            mounts = {each["mountPath"] for each in container["volumeMounts"]}
            assert {"/var/lib/quotaplane", "/tmp"} <= mounts

        killed = min(before)

        def kill() -> None:
            os.kill(cluster.pid(killed), signal.SIGKILL)
            job.wait_until(lambda: killed not in cluster.executors(), within_s=100)

        outage = brokers.through(kill, job.wait_until)
        part = "Spark on Kubernetes (a double of its API), client mode"
        outages.note(
            part, "an executor's pod killed", outage, versions="Fabric8's API server 7.1.0"
        )
        job.wait_until(lambda: len(cluster.executors()) == 2, within_s=100)
        job.stop()
    # Executors end by themselves; Kubernetes deletes their pods with the driver's, which owns them.
    pods = cluster.executors
    wait_until(lambda: all(pod["status"]["phase"] != "Running" for pod in pods().values()), 60)

    rules = rendered.of("Role", "driver")["rules"]
    granted = {(verb, each["resources"][0]) for each in rules for verb in each["verbs"]}
    # At its end Spark deletes all of these with its label, of which it has made none. A refusal is
    # a line in its log; the right would be one to delete the history's volume.
    in_vain = {("deletecollection", kind) for kind in ("services", "persistentvolumeclaims")}
    assert not in_vain & granted
    assert {("create", "pods")} <= cluster.rights_used() <= granted | in_vain
    print(f"rights used: {sorted(cluster.rights_used())}")
