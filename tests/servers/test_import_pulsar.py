"""``quotaplane groups import pulsar`` on a real Pulsar, over TLS with a token."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pulsar
import pytest

from quotaplane.cli.main import main
from quotaplane.registry.table import get_group
from quotaplane.settings import History
from tests.histories import make_history
from tests.job import write_conf
from tests.servers.pulsar_clients import quiet_client
from tests.servers.pulsar_rest import dispatch_rate, publish_rate
from tests.servers.pulsar_server import PulsarServer

pytestmark = pytest.mark.nightly

UNLIMITED = -1


def test_import(
    secure_pulsar_server: PulsarServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server, rest = secure_pulsar_server, secure_pulsar_server.rest
    tenant = rest.create_tenant(f"acme-{uuid.uuid4().hex[:8]}")
    namespace, group = rest.create_namespace(f"{tenant}/orders"), f"{tenant}::orders"
    rest.create_topic(f"persistent://{namespace}/a topic & more")
    rest.create_topic(f"persistent://{namespace}/returns", partitions=2)
    admin = pulsar.AuthenticationToken(server.token())
    client = quiet_client(server.service_url, authentication=admin)
    client.create_producer(f"non-persistent://{namespace}/fast")
    policies = f"namespaces/{namespace}"
    rest.call("POST", f"{policies}/publishRate", publish_rate(100))
    rest.call("POST", f"{policies}/dispatchRate", dispatch_rate(in_bytes=5000, period_s=2))
    rest.call("POST", f"{policies}/subscriptionDispatchRate", dispatch_rate(in_bytes=99))
    rest.call("POST", f"persistent/{namespace}/returns/publishRate", publish_rate(30))
    topics = {"kind": "pulsar", "limits_topic": "persistent://public/quotaplane/limits"}
    conf = write_conf(tmp_path, topics | server.tls(token=server.token()), cluster={})
    history = History(path=str(tmp_path / "history"))
    make_history(history)

    def run(*options: str) -> dict[str, Any]:
        words = ["groups", "import", "pulsar", "--namespaces", f"{tenant}/*", "--json"]
        assert main([*words, "--conf", str(conf), *options]) == 0
        (answer,) = json.loads(capsys.readouterr().out)
        return dict(answer)

    before = rest.call("GET", policies)
    proposed = run()
    assert (proposed["state"], proposed["group"], proposed["parts"]) == ("proposed", group, 4)
    assert proposed["quotas"] == {
        "publish_messages_per_s": 100 + 2 * 30 + 100,
        "publish_bytes_per_s": None,
        "dispatch_messages_per_s": None,
        "dispatch_bytes_per_s": 4 * 2500,
    }
    assert any("subscription rates stay" in note for note in proposed["notes"])
    assert set(proposed["used"].values()) == {0}
    assert rest.call("GET", policies) == before
    assert group not in rest.call("GET", "resourcegroups")

    assert run("--apply", "--by", "ann")["state"] == "attached now"
    assert rest.call("GET", policies) == {**before, "resource_group_name": group}
    assert rest.call("GET", f"resourcegroups/{group}") == {
        "publishRateInMsgs": 260,
        "publishRateInBytes": UNLIMITED,
        "dispatchRateInMsgs": UNLIMITED,
        "dispatchRateInBytes": 10_000,
    }
    row = get_group(history, group)
    assert (row["publish_messages_per_s"], row["updated_by"]) == (260, "ann")
    assert run("--apply")["state"] == "attached already"
    client.close()
