"""The pulsar-admin of the stock distribution, unchanged, against ``quotaplane serve``."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest

from quotaplane.registry.change_feed import group_changes
from quotaplane.settings import History
from tests.servers.pulsar_admin import pulsar_admin
from tests.unit.server.server_cases import TOKENS, token
from tests.unit.server.server_process import Process, conf, running


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Process]:
    with running(conf(tmp_path, {"port": 0, **TOKENS})) as server:
        yield server


@pytest.fixture
def admin(server: Process) -> Callable[..., str]:
    """Runs a command as ann, an admin."""
    return partial(pulsar_admin, server.url, token("admin", sub="ann"))


@pytest.mark.nightly  # starts a JVM for each of some twenty commands
def test_groups_and_attachments(admin: Callable[..., str], tmp_path: Path) -> None:
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
    with pytest.raises(RuntimeError, match="'orders' is in use: namespace acme/ns is attached"):
        admin("resourcegroups", "delete", "orders")
    assert admin("namespaces", "remove-resource-group", "acme/ns") == ""
    assert admin("resourcegroups", "delete", "orders") == ""
    with pytest.raises(RuntimeError, match="ResourceGroup does not exist"):
        admin("resourcegroups", "get", "orders")
    changes = group_changes(History(path=str(tmp_path / "history")), "orders")
    assert [change["by"] for change in changes] == ["ann"] * 3


@pytest.mark.nightly  # as above
def test_rates_of_any_size_and_other_fields(server: Process, admin: Callable[..., str]) -> None:
    def call(method: str, path: str, body: Any = None) -> Any:
        headers = {"Authorization": f"Bearer {token('admin')}"}
        url = f"{server.url}/admin/v2/{path}"
        answer = httpx.request(
            method, url, json=body, headers=headers, timeout=60
        ).raise_for_status()
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
    with pytest.raises(RuntimeError, match=r"publishRateInBytes: must be at most 1e\+18"):
        admin("resourcegroups", "update", "-bp", str(2**63 - 1), "orders")
    call("PUT", "namespaces/acme/ns/resourcegroup/orders")
    assert admin("namespaces", "get-resource-group", "acme/ns") == "orders"


def test_roles_are_told_as_pulsar_does(server: Process) -> None:
    mine = token("operator:acme", "viewer", sub="ann")
    refused = "may not do this: the role operator for tenant 'globex' is needed"
    with pytest.raises(RuntimeError, match=refused):
        pulsar_admin(server.url, mine, "resourcegroups", "create", "globex")
    assert pulsar_admin(server.url, mine, "resourcegroups", "create", "acme") == ""
