"""``quotaplane groups import kafka`` and ``export kafka`` on a real Kafka, with its own tool."""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import pytest
from kafka import KafkaAdminClient
from kafka.protocol.admin import AlterClientQuotasRequest

from quotaplane.cli.main import main
from quotaplane.settings import History, KafkaTransport
from quotaplane.transport.kafka_quotas import describe_quotas
from tests.histories import make_history
from tests.job import write_conf
from tests.servers.jvm import SHORT_LIVED
from tests.servers.kafka_server import KafkaServer, kafka_jars
from tests.servers.tools import java

pytestmark = pytest.mark.nightly

PRODUCE, CONSUME = "producer_byte_rate", "consumer_byte_rate"
REQUEST, MUTATE = "request_percentage", "controller_mutation_rate"

NAMED: Final[list[tuple[dict[str, str | None], dict[str, float]]]] = [
    ({"user": "CN=jürgen, O='x'"}, {PRODUCE: 1e6, CONSUME: 2e6, REQUEST: 33.3, MUTATE: 0.5}),
    ({"user": "-a b", "client-id": "<default>"}, {PRODUCE: 7.0}),
    ({"client-id": "new\nline\x1b[31m$(x)"}, {CONSUME: 5.0}),
]
DEFAULTS: Final[list[tuple[dict[str, str | None], dict[str, float]]]] = [
    ({"user": None}, {PRODUCE: 10.0}),
    ({"user": "bob", "client-id": None}, {REQUEST: 12.5}),
    ({"ip": "127.0.0.1"}, {"connection_creation_rate": 1000.0}),
]


def alter(server: KafkaServer, entity: Mapping[str, str | None], **numbers: float | None) -> None:
    """Set numbers of an entity; None takes one away."""
    entry = AlterClientQuotasRequest.EntryData
    ops = [
        entry.OpData(key=key, value=value or 0.0, remove=value is None)
        for key, value in numbers.items()
    ]
    parts = [entry.EntityData(entity_type=kind, entity_name=n) for kind, n in entity.items()]
    request = AlterClientQuotasRequest(entries=[entry(entity=parts, ops=ops)], validate_only=False)
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
    try:
        (answer,) = admin._manager.run(admin._manager.send, request).entries
        assert answer.error_code == 0, answer.error_message
    finally:
        admin.close()


def wait_for_entities(transport: dict[str, Any], count: int) -> None:
    """Brokers answer with what they have read of the controllers' log so far."""
    settings = KafkaTransport.model_validate(transport)
    deadline = time.monotonic() + 20
    while len(describe_quotas(settings).entries) != count:
        assert time.monotonic() < deadline


def test_from_kafka_and_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topics = {"kind": "kafka", "report_topics": ["reports"], "limits_topic": "limits"}
    with KafkaServer(tmp_path / "kafka", secure=True) as server:
        transport = topics | server.login()
        conf = write_conf(tmp_path, transport)
        history = History(path=str(tmp_path / "history"))
        make_history(history)

        def run(*words: str) -> str:
            assert main(["groups", *words]) == 0
            return capsys.readouterr().out

        def imported(*options: str) -> dict[str, dict[str, Any]]:
            words = ("import", "kafka", "--conf", str(conf), "--json", *options)
            return {json.dumps(one["entity"]): one for one in json.loads(run(*words))}

        def by_tool(*words: str, shell: str = "") -> str:
            folder = tmp_path / "bin"
            folder.mkdir(exist_ok=True)
            tool = folder / "kafka-configs.sh"
            command = [java(), "-Xmx128m", *SHORT_LIVED.split(), "-cp", f"{kafka_jars()}/*"]
            command.append("kafka.admin.ConfigCommand")
            tool.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n')
            tool.chmod(0o755)
            text = shell or shlex.join(["kafka-configs.sh", *words])
            text = f"PATH={folder}:$PATH\n{text.replace('HOST:9092', server.bootstrap_servers)}"
            done = subprocess.run(["bash", "-e", "-c", text], capture_output=True, timeout=120)
            assert done.returncode == 0, done.stderr.decode()
            return done.stdout.decode()

        for entity, numbers in NAMED + DEFAULTS:
            alter(server, entity, **numbers)
        wait_for_entities(transport, len(NAMED + DEFAULTS))
        assert {one["brokers"] for one in imported().values()} == {1}

        first = imported("--brokers", "3", "--apply")
        assert {key: one["kafka"] for key, one in first.items()} == {
            json.dumps(entity): numbers for entity, numbers in NAMED + DEFAULTS[:2]
        }
        made = [one for one in first.values() if one["state"] == "made now"]
        assert len(made) == len(NAMED)
        assert first[json.dumps(NAMED[0][0])]["quotas"] == {
            "publish_bytes_per_s": 3_000_000,
            "dispatch_bytes_per_s": 6_000_000,
            "request_ms_per_s": 999,
            "controller_mutations_per_s": 0.5,
        }

        # The tool prints the same, but for a name with a line break.
        described = tmp_path / "described.txt"
        place = ("--bootstrap-server", server.bootstrap_servers, "--describe", "--entity-type")
        described.write_text(by_tool(*place, "users"), encoding="utf-8")
        of_file = ("--history", history.path, "--brokers", "3", "--file", str(described), "--json")
        for one in json.loads(run("import", "kafka", *of_file)):
            assert one["kafka"] == first[json.dumps(one["entity"])]["kafka"]

        for entity, numbers in NAMED:
            alter(server, entity, **dict.fromkeys(numbers))
        wait_for_entities(transport, len(DEFAULTS))
        by_tool(shell=run("export", "kafka", "--brokers", "3", "--history", history.path))
        wait_for_entities(transport, len(NAMED + DEFAULTS))
        second = imported("--brokers", "3")
        assert {key: one["kafka"] for key, one in second.items()} == {
            key: one["kafka"] for key, one in first.items()
        }
        assert {second[json.dumps(entity)]["state"] for entity, _ in NAMED} == {"there already"}
