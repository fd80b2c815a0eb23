"""docs/start/from-topic-rates.md from its first command to its last, on three stock brokers."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.servers.pulsar_clients import publishing
from tests.servers.pulsar_cluster import PulsarCluster
from tests.servers.pulsar_rest import PulsarRest, publish_rate
from tests.servers.pulsar_roles import pulsar_home
from tests.spark.test_day_one import started
from tests.unit.repo.documented_commands import FROM_TOPIC_RATES, Command, Sandbox, commands_in
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly  # each pulsar-admin starts a JVM

NAMESPACE, GROUP = "acme/orders", "acme::orders"
BUSY = f"persistent://{NAMESPACE}/eu"
RATE, QUOTA, LOWER = 100, 230, 150
MEASURED_S = 4.0


class Orders:
    """The namespace in the cluster."""

    def __init__(self, cluster: PulsarCluster) -> None:
        self.rest: PulsarRest = cluster.rest()

    def policies(self) -> dict[str, Any]:
        found: dict[str, Any] = self.rest.call("GET", f"namespaces/{NAMESPACE}")
        return found

    def namespace_rate(self) -> dict[str, int] | None:
        rates: dict[str, Any] = self.policies()["publishMaxMessageRate"]
        return next(iter(rates.values()), None)

    def topic_rate(self, topic: str) -> int | None:
        rate = self.rest.call("GET", f"persistent/{NAMESPACE}/{topic}/publishRate")
        return rate and rate["publishThrottlingRateInMsg"]

    def busy_per_s(self) -> float:
        """How much the busy topic takes, over some seconds."""
        return self.rest.per_s(BUSY, MEASURED_S)


def settle(sandbox: Sandbox, cluster: PulsarCluster) -> None:
    """The page's settings for this cluster, its namespaces, ``pulsar-admin`` on the path."""
    path = sandbox.folder / "conf" / "pulsar.yaml"
    conf = yaml.safe_load(path.read_text("utf-8"))
    urls = {"service_url": cluster.service_url, "admin_url": cluster.admin_urls[0]}
    conf["transport"] |= urls
    conf |= {"shards": 1, "reports": {"interval_s": 2.0}}
    path.write_text(yaml.safe_dump(conf), "utf-8")
    client = sandbox.folder / "client.conf"
    client.write_text(f"webServiceUrl={cluster.admin_urls[0]}\n")
    admin = sandbox.folder / "bin" / "pulsar-admin"
    admin.write_text(
        f"#!/bin/sh\nPULSAR_CLIENT_CONF={client} PULSAR_MEM=-Xmx128m "
        f'exec {pulsar_home()}/bin/pulsar-admin "$@"\n'
    )
    admin.chmod(0o755)
    rest = cluster.rest()
    rest.create_tenant("acme")
    rest.create_namespace("acme/audit")
    rest.create_topic("persistent://acme/audit/all")
    rest.create_namespace(NAMESPACE, bundles=4)
    for topic in ("eu", "us", "returns"):
        rest.create_topic(f"persistent://{NAMESPACE}/{topic}")
    rest.call("POST", f"namespaces/{NAMESPACE}/publishRate", publish_rate(RATE))
    rest.call("POST", f"persistent/{NAMESPACE}/returns/publishRate", publish_rate(30))


def answer(sandbox: Sandbox, *words: str) -> str:
    """The output of one of our commands."""
    command = ["quotaplane", *words, "--conf", "conf/pulsar.yaml"]
    return subprocess.run(
        command, **sandbox.place, capture_output=True, text=True, check=True
    ).stdout


def limits(sandbox: Sandbox) -> list[dict[str, Any]]:
    """The limits in force of the group."""
    found: list[dict[str, Any]] = json.loads(answer(sandbox, "limits", GROUP, "--json"))
    return found


def set_in(policies: dict[str, Any]) -> dict[str, Any]:
    """The policies that are set: Pulsar leaves empty ones behind."""
    return {name: policy for name, policy in policies.items() if policy}


def without_usage(command: Command) -> Command:
    """The command with an output in which the usage may be any."""
    shown = re.sub(r"(?<=230 )( +)[\d.]+(?=  topics)", "...", command.output or "")
    assert "..." in shown
    return command._replace(output=shown)


def test_from_topic_rates(tmp_path: Path) -> None:
    sandbox, log = Sandbox(tmp_path / "repository"), tmp_path / "up.log"
    commands = iter(commands_in(FROM_TOPIC_RATES))

    def run_until(begin: str) -> Command:
        for command in commands:
            if command.text.startswith(begin):
                return command
            sandbox.run(command)
        raise AssertionError(f"{FROM_TOPIC_RATES}: no command begins with {begin!r}")

    with ExitStack() as stack:
        cluster = stack.enter_context(PulsarCluster(tmp_path / "cluster", report_interval_s=2))
        settle(sandbox, cluster)
        orders = Orders(cluster)

        def until(done: Callable[[], object]) -> None:
            wait_until(done, 400.0, said=log.read_text)

        stack.enter_context(started(sandbox, run_until("quotaplane up ").text, log))
        until(lambda: re.search(r"^quota +\| .*: ready: ", log.read_text(), re.M))
        for topic, per_s in {BUSY: 300, BUSY.replace("/eu", "/us"): 4}.items():
            load = publishing(cluster.service_url, topic, per_s=per_s, in_flight=100)
            stack.enter_context(load)
        until(lambda: 0.8 * RATE < orders.busy_per_s() < 1.2 * RATE)

        # Nothing changes until --apply.
        before = orders.policies()
        sandbox.run(without_usage(run_until("quotaplane groups import")))
        assert orders.policies() == before
        assert orders.rest.call("GET", "resourcegroups") == []

        apply = run_until("quotaplane groups import")
        sandbox.run(apply)
        assert orders.policies()["resource_group_name"] == GROUP
        assert orders.namespace_rate() == before["publishMaxMessageRate"]["quotaplane"]
        status = run_until("quotaplane status")
        until(lambda: limits(sandbox))
        sandbox.run(status)

        # The rates are gone: the busy topic has what the others leave.
        removals = [run_until("pulsar-admin namespaces remove-publish-rate"), next(commands)]
        for command in removals:
            sandbox.run(command)
        until(lambda: 0.75 * QUOTA < orders.busy_per_s() < 1.1 * QUOTA)

        lower = run_until("pulsar-admin resourcegroups update")
        sandbox.run(lower)
        until(lambda: 0.7 * LOWER < orders.busy_per_s() < 1.1 * LOWER)

        # Back again: all is as it was, and the topic held to its rate.
        back = list(commands)
        printed = (sandbox.folder / "acme-orders.txt").read_text("utf-8").splitlines()
        for command in (*removals, *back):
            assert command.text in printed, printed
        for command in back:
            sandbox.run(command)
        until(lambda: orders.topic_rate("eu") is None)
        until(lambda: 0.8 * RATE < orders.busy_per_s() < 1.2 * RATE)
        until(lambda: set_in(orders.policies()) == set_in(before))
        assert orders.topic_rate("returns") == 30
        # Also the copy of the quota that was taken over.
        until(lambda: orders.rest.call("GET", "resourcegroups") == [])
        assert GROUP not in answer(sandbox, "groups", "list")
