"""The access rules of docs/kafka.md, as it writes them: who may report, and in whose name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError

from quotaplane.client.agent import BrokerClient
from quotaplane.errors import TransportError
from quotaplane.settings import parse_settings
from quotaplane.transport import open_broker_link
from quotaplane.transport.base import BrokerLink
from quotaplane.wire.reports import encode_report
from tests.job import RunningJob, history_table, put_quotas, write_conf
from tests.servers.kafka_commands import run_kafka
from tests.servers.kafka_server import SASL_PASSWORD, KafkaServer
from tests.servers.page_commands import commands_of, with_name

USERS = ("quotaplane", "broker-1", "broker-2", "tenant")
PER_BROKER = "A topic per broker"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A server with the topics and the rules of the page; broker-2 is not set up yet."""
    folder = tmp_path_factory.mktemp("kafka")
    with KafkaServer(folder, secure=True, access_rules=True, users=USERS) as server:
        for section in ("Topics", PER_BROKER, "Access rules"):
            for words in commands_of("kafka.md", section):
                run_kafka(server, words)
        yield server


def transport_of(server: KafkaServer, user: str) -> dict[str, Any]:
    """The settings of a program that logs in as ``user``."""
    assert server.certificates is not None
    return {
        "kind": "kafka",
        "bootstrap_servers": server.bootstrap("SASL_SSL"),
        "report_topics": ["quotaplane-reports.{broker}"],
        "limits_topic": "quotaplane-limits",
        "connect_timeout_s": 10,
        "publish_timeout_s": 10,
        "security": {
            "protocol": "SASL_SSL",
            "ca_file": str(server.certificates.authority),
            "sasl_mechanism": "PLAIN",
            "username": user,
            "password": SASL_PASSWORD,
        },
    }


def link_of(server: KafkaServer, user: str) -> BrokerLink:
    settings = parse_settings(
        {"transport": transport_of(server, user), "history": {"path": "h"}, "checkpoint": "c"}
    )
    return open_broker_link(settings.transport, limits_from="earliest")


def client_of(server: KafkaServer, broker: str) -> BrokerClient:
    link = link_of(server, broker)
    return BrokerClient(link, broker, now_ms=lambda: int(time.time() * 1000), groups=["g"])


def report(broker: str) -> bytes:
    used = np.array([[10.0, np.nan, np.nan, np.nan]])
    now_ms = int(time.time() * 1000)
    return encode_report(
        broker=broker, started_at_ms=now_ms, sequence=1, window_ms=1000, groups=["g"], usage=used
    )


def producer_of(server: KafkaServer, user: str) -> KafkaProducer:
    return KafkaProducer(**_login(server, user), max_block_ms=5000, retries=0)


def _login(server: KafkaServer, user: str) -> dict[str, Any]:
    assert server.certificates is not None
    return {
        "bootstrap_servers": server.bootstrap("SASL_SSL"),
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(server.certificates.authority),
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": user,
        "sasl_plain_password": SASL_PASSWORD,
    }


def test_a_broker_may_write_to_its_own_topic_only(server: KafkaServer) -> None:
    link = link_of(server, "broker-1")
    link.send_reports([("broker-1", b"", int(time.time() * 1000))])
    link.close()
    producer = producer_of(server, "broker-1")
    server.create_topic("quotaplane-reports.broker-7")
    for topic in (
        "quotaplane-reports.broker-7",
        "quotaplane-reports.broker-8",
        "quotaplane-limits",
    ):
        with pytest.raises(KafkaError):
            producer.send(topic, b"").get(20)
    producer.close()
    admin = KafkaAdminClient(**_login(server, "broker-1"))
    with pytest.raises(KafkaError, match="Authorization"):
        admin.create_topics({"quotaplane-reports.broker-9": {}})
    admin.close()


@pytest.mark.parametrize("user", ["tenant", "broker-2"])
def test_who_has_no_right_is_told_in_one_line(server: KafkaServer, user: str) -> None:
    with pytest.raises(TransportError) as caught:
        link_of(server, user).send_reports([(user, b"", 0)])
    assert "\n" not in str(caught.value)
    assert SASL_PASSWORD not in str(caught.value)


@pytest.mark.soak
def test_the_job_uses_rightful_reports_only(server: KafkaServer, tmp_path: Path) -> None:
    conf = write_conf(
        tmp_path,
        transport_of(server, "quotaplane"),
        reports={"interval_s": 1.0, "broker_from": "topic"},
        limits={"lease_s": 20.0},
        trigger={"interval_s": 0.5},
        shards=1,
    )
    with RunningJob(conf) as job:
        put_quotas(job.settings, g=100.0)
        first = client_of(server, "broker-1")

        def is_limited(client: BrokerClient) -> bool:
            client.use("g", publish_messages=10.0)
            client.report()
            client.poll()
            time.sleep(0.5)
            return bool(np.isfinite(client.limit("g")["publish_messages"]))

        job.wait_until(lambda: is_limited(first))

        # A name that another has, and one that nobody has: both are refused, with their sender.
        producer = producer_of(server, "broker-1")
        for name in ("broker-2", "broker-9"):
            producer.send("quotaplane-reports.broker-1", report(name)).get(20)
        producer.close()

        def refused() -> list[str]:
            return history_table(job.settings, "rejected_reports")["reason"].to_pylist()

        job.wait_until(lambda: refused().count("other_broker") == 2)

        # A new broker is set up as the page says, and is used without a restart.
        commands = commands_of("kafka.md", PER_BROKER)[:2] + commands_of("kafka.md", "Access rules")
        for words in with_name(commands, "broker-1", "broker-2"):
            run_kafka(server, words)
        second = client_of(server, "broker-2")
        job.wait_until(lambda: is_limited(first) and is_limited(second))
        brokers = history_table(job.settings, "brokers")["broker"].to_pylist()
        assert {*brokers} == {"broker-1", "broker-2"}
        assert not [line for line in job.printed() if "ACCESS REFUSED" in line]
