"""From a fresh stock cluster to control with conf/pulsar.yaml, in which only places are changed."""

from __future__ import annotations

import subprocess
import sys
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from quotaplane.settings import Settings
from tests.job import ROOT, RunningJob
from tests.servers.enforcer_process import EnforcerProcess
from tests.servers.pulsar_clients import publishing
from tests.servers.pulsar_cluster import PulsarCluster
from tests.servers.tools import free_ports
from tests.unit.metrics.metrics_cases import parsed

pytestmark = pytest.mark.nightly

OBSERVED = "persistent://public/quotaplane/observed-usage"


def shipped_conf(cluster: PulsarCluster, folder: Path) -> Path:
    settings: dict[str, Any] = yaml.safe_load((ROOT / "conf" / "pulsar.yaml").read_text())
    # Another broker than the one that owns most topics: requests are redirected.
    settings["transport"] |= {
        "service_url": cluster.service_urls[0],
        "admin_url": cluster.admin_urls[1],
    }
    (settings["metrics"]["job_port"],) = free_ports(1)
    settings["history"]["path"] = str(folder / "history")
    settings["checkpoint"] = str(folder / "checkpoint")
    path = folder / "conf.yaml"
    path.write_text(yaml.safe_dump(settings), encoding="utf-8")
    return path


def observed_pairs(settings: Settings) -> int:
    """The value that a running job shows; 0 before it runs."""
    with suppress(OSError):
        url = f"http://127.0.0.1:{settings.metrics.job_port}/metrics"
        with urllib.request.urlopen(url, timeout=60) as answer:
            found = parsed(answer.read().decode()).get("quotaplane_observed_pairs", {})
        return int(sum(found.values()))
    return 0


def set_up(conf: Path, *options: str) -> tuple[int, list[str]]:
    command = [sys.executable, "-m", "quotaplane", "setup", "pulsar", "--conf", str(conf)]
    done = subprocess.run([*command, *options], capture_output=True, text=True, timeout=120)
    assert not done.stderr
    return done.returncode, done.stdout.splitlines()


def refused(conf: Path) -> str:
    """The line with which the enforcer ends."""
    with EnforcerProcess(conf) as enforcer:
        assert enforcer.process.wait(60) == 3
    return enforcer.errors()


def test_from_a_fresh_cluster_to_observed_usage(tmp_path: Path) -> None:
    with PulsarCluster(tmp_path / "cluster", brokers=2, report_interval_s=5) as cluster:
        conf, rest = shipped_conf(cluster, tmp_path), cluster.rest()
        code, commands = set_up(conf, "--dry-run")
        assert code == 12
        assert f"pulsar-admin topics create {OBSERVED}" in commands
        assert "`quotaplane setup pulsar --apply --conf FILE`" in refused(conf)
        code, made = set_up(conf, "--apply")
        assert code == 0
        assert len(made) == len([line for line in commands if line.startswith("#")])
        assert set_up(conf, "--apply") == set_up(conf) == (0, [])

        group = rest.put_group("of-acme", publish_messages_per_s=60)
        rest.create_tenant("acme")
        namespace = rest.create_namespace("acme/orders", bundles=16)
        rest.attach(namespace, group)
        topics = [cluster.topic_on(broker, namespace) for broker in range(2)]

        def observes(job: RunningJob) -> bool:
            """Whether the job decides by the observations of both brokers."""
            return observed_pairs(job.settings) == len(topics)

        load = publishing(cluster.service_urls[0], *topics, per_s=20)
        with load, EnforcerProcess(conf) as enforcer:
            with RunningJob(conf) as job:
                job.wait_until(lambda: observes(job))
                job.wait_until(lambda: enforcer.status().get("taken_over") == 1)
                job.stop()
            # Reports that the job has not read are gone, as after a time longer than retention.
            rest.call("DELETE", f"{OBSERVED}?force=true")
            assert set_up(conf, "--apply")[0] == 0
            sent = enforcer.status()["usage_reports"]
            enforcer.wait_until(lambda: enforcer.status()["usage_reports"] > sent + 10)
            with RunningJob(conf) as job:
                job.wait_until(lambda: observes(job))
                job.stop()
            enforcer.stop()
        # An enforcer whose topic was forgotten does not let a broker create it.
        settings = yaml.safe_load(conf.read_text())
        other = f"{OBSERVED}-2"
        settings["transport"]["report_topics"].append(other)
        settings["enforce"]["report_topic"] = other
        conf.write_text(yaml.safe_dump(settings))
        assert f"topic {other!r} does not exist" in refused(conf)
