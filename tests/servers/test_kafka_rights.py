"""The access rules of docs/operate/kafka.md as written: who may report, and in whose name."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.errors import KafkaError

from quotaplane.client.agent import BrokerClient
from quotaplane.errors import TransportError
from quotaplane.groups.attachable import PARTS
from quotaplane.settings import KafkaTransport
from quotaplane.transport import open_attachments_link
from quotaplane.transport.base import BrokerLink
from quotaplane.transport.kafka_options import client_options
from quotaplane.transport.kafka_quotas import describe_quotas
from tests.job import RunningJob, put_quotas, report_of, write_conf
from tests.servers.kafka_commands import run_kafka
from tests.servers.kafka_server import SASL_PASSWORD, KafkaServer
from tests.servers.page_commands import commands_of, with_name
from tests.servers.rights_cases import (
    NAMES_FROM_TOPICS,
    PER_BROKER,
    client_with,
    is_limited,
    known_brokers,
    link_with,
    refused,
)

pytestmark = pytest.mark.nightly

USERS = ("quotaplane", "broker-1", "broker-2", "tenant")


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
    return {
        "kind": "kafka",
        "report_topics": ["quotaplane-reports.{broker}"],
        "limits_topic": "quotaplane-limits",
        "attachments_topic": "quotaplane-attachments",
        "timeout_s": 10,
        **server.login(user),
    }


def link_of(server: KafkaServer, user: str) -> BrokerLink:
    return link_with(transport_of(server, user))


def client_of(server: KafkaServer, broker: str) -> BrokerClient:
    return client_with(transport_of(server, broker), broker)


def options_of(server: KafkaServer, user: str) -> dict[str, Any]:
    """Options of Kafka's own clients, as somebody would use them who does not keep to the rules."""
    return client_options(KafkaTransport.model_validate(transport_of(server, user)))


def producer_of(server: KafkaServer, user: str) -> KafkaProducer:
    return KafkaProducer(**options_of(server, user), max_block_ms=5000, retries=0)


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
        "quotaplane-attachments",
    ):
        with pytest.raises(KafkaError):
            producer.send(topic, b"").get(20)
    producer.close()
    admin = KafkaAdminClient(**options_of(server, "broker-1"))
    with pytest.raises(KafkaError, match="Authorization"):
        admin.create_topics({"quotaplane-reports.broker-9": {}})
    admin.close()


@pytest.mark.parametrize("user", ["tenant", "broker-2"])
def test_who_has_no_right_is_told_in_one_line(server: KafkaServer, user: str) -> None:
    with pytest.raises(TransportError) as caught:
        link_of(server, user).send_reports([(user, b"", 0)])
    assert "\n" not in str(caught.value)
    assert SASL_PASSWORD not in str(caught.value)


def test_quotas_are_read_with_the_right_of_the_page(server: KafkaServer) -> None:
    settings = KafkaTransport.model_validate(transport_of(server, "quotaplane"))
    with pytest.raises(TransportError, match="its quotas can't be read"):
        describe_quotas(settings)
    commands = commands_of("kafka.md", "From Kafka's own quotas")
    (words,) = (words for words in commands if words[0] == "kafka-acls.sh")
    run_kafka(server, words)
    deadline = time.monotonic() + 20
    while True:
        try:
            assert describe_quotas(settings).brokers == 1
            return
        except TransportError:  # the broker has not read the rule yet
            assert time.monotonic() < deadline


def test_the_job_uses_rightful_reports_only(server: KafkaServer, tmp_path: Path) -> None:
    conf = write_conf(tmp_path, transport_of(server, "quotaplane"), **NAMES_FROM_TOPICS)
    with RunningJob(conf) as job:
        put_quotas(job.settings, g=100.0)
        first = client_of(server, "broker-1")
        job.wait_until(lambda: is_limited(first))
        settings = KafkaTransport.model_validate(transport_of(server, "broker-1"))
        with closing(open_attachments_link(settings)) as attachments:
            job.wait_until(lambda: len(attachments.poll_limits().messages) == PARTS)
        assert not [line for line in job.printed() if "cleanup.policy" in line]

        # A name that another has, and one that nobody has: both are refused, with their sender.
        producer = producer_of(server, "broker-1")
        for name in ("broker-2", "broker-9"):
            forged = report_of(name, 10.0, started_at_ms=int(time.time() * 1000))
            producer.send("quotaplane-reports.broker-1", forged).get(20)
        producer.close()
        job.wait_until(lambda: refused(job).count("other_broker") == 2)

        # A new broker is set up as the page says, and is used without a restart.
        commands = commands_of("kafka.md", PER_BROKER)[:2] + commands_of("kafka.md", "Access rules")
        for words in with_name(commands, "broker-1", "broker-2"):
            run_kafka(server, words)
        second = client_of(server, "broker-2")
        job.wait_until(lambda: is_limited(first) and is_limited(second))
        assert known_brokers(job) == {"broker-1", "broker-2"}
        assert not [line for line in job.printed() if "access refused" in line]
