"""The pulsar-admin of the stock distribution, unchanged, against ``quotaplane serve``."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from quotaplane.registry.change_feed import group_changes
from quotaplane.settings import History
from tests.servers.pulsar_roles import pulsar_home
from tests.unit.server.server_cases import TOKENS, token
from tests.unit.server.server_process import Process, conf, running

QUICK = {**os.environ, "PULSAR_EXTRA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
PLUGIN = "org.apache.pulsar.client.impl.auth.AuthenticationToken"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    with running(conf(tmp_path, {"port": 0, **TOKENS})) as server:
        yield server


def pulsar_admin(server: Process, *words: str, roles: tuple[str, ...] = ("admin",)) -> str:
    """Run a command; returns its stdout, or what it says is wrong."""
    auth = ["--auth-plugin", PLUGIN, "--auth-params", f"token:{token(*roles, sub='ann')}"]
    command = [str(pulsar_home() / "bin" / "pulsar-admin"), "--admin-url", server.url, *auth]
    done = subprocess.run(
        [*command, *words], capture_output=True, text=True, timeout=120, check=False, env=QUICK
    )
    if done.returncode == 0:
        return done.stdout.strip()
    return (done.stdout + done.stderr).strip()


@pytest.mark.nightly  # starts a JVM for each of some twenty commands
def test_groups_and_attachments(server: Process, tmp_path: Path) -> None:
    def admin(*words: str) -> str:
        return pulsar_admin(server, *words)

    assert admin("resourcegroups", "create", "-mp", "1000", "-bd", "5000", "orders") == ""
    assert admin("resourcegroups", "create", "acme/batch") == ""
    assert admin("resourcegroups", "list").splitlines() == ["acme/batch", "orders"]
    assert json.loads(admin("resourcegroups", "get", "orders")) == {
        "publishRateInMsgs": 1000,
        "publishRateInBytes": -1,
        "dispatchRateInMsgs": -1,
        "dispatchRateInBytes": 5000,
    }
    # A partial update: the rest stays.
    assert admin("resourcegroups", "update", "-bp", "700", "orders") == ""
    assert json.loads(admin("resourcegroups", "get", "orders"))["publishRateInMsgs"] == 1000
    assert admin("namespaces", "get-resource-group", "acme/ns") == ""
    assert admin("namespaces", "set-resource-group", "acme/ns", "-rgn", "orders") == ""
    assert admin("namespaces", "get-resource-group", "acme/ns") == "orders"
    in_use = admin("resourcegroups", "delete", "orders")
    assert "group 'orders' is in use: namespace acme/ns is attached" in in_use
    assert admin("namespaces", "remove-resource-group", "acme/ns") == ""
    assert admin("resourcegroups", "delete", "orders") == ""
    assert "ResourceGroup does not exist" in admin("resourcegroups", "get", "orders")
    changes = group_changes(History(path=str(tmp_path / "history")), "orders")
    assert [change["by"] for change in changes] == ["ann"] * 3


@pytest.mark.nightly  # as above
def test_rates_of_any_size_and_other_fields(server: Process) -> None:
    def admin(*words: str) -> str:
        return pulsar_admin(server, *words)

    def call(method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {token('admin')}"}
        url = f"{server.url}/admin/v2/{path}"
        answer = httpx.request(method, url, json=body, headers=headers).raise_for_status()
        return answer.json() if answer.content else None

    # PIP-82's spelling, with a field that this client does not know, and more than its int has.
    body = {"PublishRateInmsgs": 2**40, "replicationDispatchRateInMsgs": 400}
    call("PUT", "resourcegroup/orders", body)
    assert json.loads(admin("resourcegroups", "get", "orders")) == {
        "publishRateInMsgs": 2**31 - 1,
        "publishRateInBytes": -1,
        "dispatchRateInMsgs": -1,
        "dispatchRateInBytes": -1,
    }
    # It reads, changes and writes, and what it does not know stays.
    most = str(10**18)
    assert admin("resourcegroups", "update", "-bp", most, "-mp", "2147483647", "orders") == ""
    assert call("GET", "resourcegroup/orders") == {
        "publishRateInMsgs": 2**31 - 1,
        "publishRateInBytes": 10**18,
        "dispatchRateInMsgs": -1,
        "dispatchRateInBytes": -1,
        "replicationDispatchRateInMsgs": 400,
    }
    too_much = admin("resourcegroups", "update", "-bp", str(2**63 - 1), "orders")
    assert "publishRateInBytes: must be at most 1e+18" in too_much
    call("PUT", "namespaces/acme/ns/resourcegroup/orders")
    assert admin("namespaces", "get-resource-group", "acme/ns") == "orders"


def test_roles_are_told_as_pulsar_does(server: Process) -> None:
    refused = pulsar_admin(
        server, "resourcegroups", "create", "globex", roles=("operator:acme", "viewer")
    )
    assert "may not do this: the role operator for tenant 'globex' is needed" in refused
    assert pulsar_admin(server, "resourcegroups", "create", "acme", roles=("operator:acme",)) == ""
