"""The quota job with its executors as pods, beside doubles of Kubernetes' API server and nodes."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from quotaplane.settings import Settings
from quotaplane.transport import open_broker_link
from quotaplane.wire.limits import decode_limits
from tests.job import RunningJob, put_quotas, report_of, write_conf
from tests.servers.chart_tools import NAME, Rendered, render
from tests.servers.kubernetes_double import KubernetesDouble
from tests.spark.fixtures import ROOT
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly

DRIVER: Final = f"{NAME}-quota-0"


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[KubernetesDouble]:
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    monkeypatch.setenv("QUOTAPLANE_EXECUTORS", "installed")
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


class Brokers:
    """Three brokers that want 80 each of a quota of 90, over tables as topics."""

    def __init__(self, settings: Settings) -> None:
        self.limits: dict[str, float] = {}
        self.heard: dict[str, float] = {}
        self._link, self._sent = open_broker_link(settings.transport), 0

    def fair_after(self, moment_s: float) -> bool:
        """Report and listen; whether limits that came after the moment are the fair shares."""
        self._sent += 1
        now_ms, own = int(time.time() * 1000), {"sequence": self._sent, "window_ms": 5000}
        used = {broker: min(80.0, self.limits.get(broker, 80.0)) for broker in "abc"}
        reports = [(each, report_of(each, used[each], **own), now_ms) for each in used]
        self._link.send_reports(reports)
        time.sleep(1.0)
        for message in self._link.poll_limits().messages:
            self.limits[message.key] = float(decode_limits(message.value).limits[0, 0])
            self.heard[message.key] = time.monotonic()
        fair = self.limits == dict.fromkeys(used, pytest.approx(30.0, rel=0.1))
        return fair and min(self.heard.values()) > moment_s


def test_executors_are_pods_and_a_killed_one_is_replaced(
    cluster: KubernetesDouble, tmp_path: Path
) -> None:
    transport = {"kind": "delta", "path": str(tmp_path / "job/topics")}
    rendered = render({"settings": {"transport": transport}, "quota": {"executors": 2}})
    conf = write_conf(
        tmp_path / "job",
        transport,
        reports={"interval_s": 5.0},
        brokers={"stale_after_intervals": 60, "expire_after_intervals": 60},
        limits={"lease_s": 120},
    )
    with RunningJob(conf, *options_of(rendered, cluster, tmp_path)) as job:
        put_quotas(job.settings, g=90.0)
        brokers = Brokers(job.settings)
        job.wait_until(lambda: brokers.fair_after(0.0), within_s=250)
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
        shipped = {file.name for file in (tmp_path / "pods").rglob("*")}
        assert "quotaplane.zip" not in shipped, "the image has it"

        killed = min(before)
        os.kill(cluster.pid(killed), signal.SIGKILL)
        killed_at_s = time.monotonic()
        job.wait_until(lambda: killed not in cluster.executors(), within_s=100)
        job.wait_until(lambda: brokers.fair_after(killed_at_s), within_s=200)
        took_s = max(brokers.heard.values()) - killed_at_s
        print(f"limits {took_s:.1f} s after an executor was killed")
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
