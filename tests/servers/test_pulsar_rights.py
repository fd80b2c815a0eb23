"""The rights of docs/operate/pulsar.md, as it writes them, and ``allowed_brokers: cluster``."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pulsar
import pytest

from quotaplane.agents.conditions import Conditions
from quotaplane.cli.main import main
from quotaplane.client.agent import BrokerClient
from quotaplane.errors import ClusterError
from quotaplane.settings import Settings, parse_settings
from quotaplane.streams.listed_brokers import listed_by
from quotaplane.transport import open_broker_link
from quotaplane.wire.limits import decode_limits
from quotaplane.wire.reports import encode_stock_report
from tests.contract.rigs import limits_of
from tests.job import RunningJob, put_quotas, report_of, write_conf
from tests.servers.page_commands import commands_of, with_name
from tests.servers.pulsar_admin import pulsar_admin
from tests.servers.pulsar_clients import quiet_client
from tests.servers.pulsar_security import ADMIN
from tests.servers.pulsar_server import PulsarServer
from tests.servers.rights_cases import (
    NAMES_FROM_TOPICS,
    PER_BROKER,
    client_with,
    is_limited,
    known_brokers,
    refused,
)
from tests.servers.test_quota_pulsar import REPORTS_EVERY_S
from tests.waiting import meanwhile

pytestmark = pytest.mark.nightly  # each command of the page starts a JVM
OF_BROKER = "persistent://public/reports/of-{broker}"
LIMITS = "persistent://public/quotaplane/limits"
USAGE = "non-persistent://pulsar/system/resource-usage"
INVENTED = "pulsar://10.9.9.9:6650"


@pytest.fixture(scope="module")
def server(
    secure_pulsar_server: PulsarServer, tmp_path_factory: pytest.TempPathFactory
) -> PulsarServer:
    """A server with the topics and the rights of the page; broker-2 is not set up yet."""
    transport = transport_of(secure_pulsar_server, ADMIN)
    folder = tmp_path_factory.mktemp("setup")
    conf = str(write_conf(folder, transport, reports={"interval_s": REPORTS_EVERY_S}))
    assert main(["setup", "pulsar", "--conf", conf, "--job-role", "quotaplane", "--apply"]) == 0
    for words in commands_of("pulsar.md", PER_BROKER):
        run_as_admin(secure_pulsar_server, words)
    return secure_pulsar_server


def run_as_admin(server: PulsarServer, words: list[str]) -> None:
    """Run a command of the page."""
    assert words[0] == "pulsar-admin"
    pulsar_admin(server.admin_url, server.token(), *words[1:])


def transport_of(server: PulsarServer, role: str, **more: Any) -> dict[str, Any]:
    """The settings of a program with a role of its own."""
    urls = server.tls(token=server.token(role))
    return {"kind": "pulsar", "limits_topic": LIMITS, "timeout_s": 10, **urls, **more}


def client_of(server: PulsarServer, broker: str) -> BrokerClient:
    return client_with(transport_of(server, broker, report_topics=[OF_BROKER]), broker)


@contextmanager
def pulsar_client(server: PulsarServer, role: str) -> Iterator[pulsar.Client]:
    """Pulsar's own client, as somebody would use it who does not keep to the rules."""
    client = quiet_client(
        server.service_url,
        authentication=pulsar.AuthenticationToken(server.token(role)),
        operation_timeout_seconds=10,
    )
    try:
        yield client
    finally:
        with suppress(pulsar.PulsarException):  # messages that are throttled may still wait
            client.close()


def test_a_role_may_write_to_its_own_topic_only(server: PulsarServer) -> None:
    with pulsar_client(server, "broker-1") as client:
        client.create_producer(OF_BROKER.format(broker="broker-1")).send(b"x")
        server.rest.create_topic(OF_BROKER.format(broker="broker-7"))
        for topic in (
            OF_BROKER.format(broker="broker-7"),
            OF_BROKER.format(broker="broker-9"),  # which does not exist
            LIMITS,
            USAGE,
        ):
            with pytest.raises(pulsar.PulsarException):
                client.create_producer(topic)
    # The job's role reads reports, and writes none.
    with pulsar_client(server, "quotaplane") as client:
        for topic in (OF_BROKER.format(broker="broker-1"), USAGE):
            with pytest.raises(pulsar.PulsarException):
                client.create_producer(topic)
            client.create_reader(topic, pulsar.MessageId.earliest).close()


def test_only_a_superuser_may_read_the_clusters_list(server: PulsarServer) -> None:
    def settings_of(role: str) -> Settings:
        transport = transport_of(server, role)
        return parse_settings({"transport": transport, "history": {"path": "h"}, "checkpoint": "c"})

    with listed_by(settings_of(ADMIN), "cluster", Conditions(print)) as newest:
        assert newest is not None
        assert newest().names == {server.service_url}, "as in stock usage reports"
    with (
        pytest.raises(ClusterError, match=r"brokers: 401 .*what its role may do"),
        listed_by(settings_of("quotaplane"), "cluster", Conditions(print)),
    ):
        pass


def test_the_job_uses_rightful_reports_only(server: PulsarServer, tmp_path: Path) -> None:
    conf = write_conf(
        tmp_path,
        transport_of(server, "quotaplane", report_topics=[OF_BROKER]),
        **NAMES_FROM_TOPICS,
    )
    with RunningJob(conf) as job:
        put_quotas(job.settings, g=100.0)
        first = client_of(server, "broker-1")
        job.wait_until(lambda: is_limited(first))
        with pulsar_client(server, "broker-1") as client:
            producer = client.create_producer(OF_BROKER.format(broker="broker-1"))
            for name in ("broker-2", "broker-9"):
                now_ms = int(time.time() * 1000)
                forged = report_of(name, 10.0, started_at_ms=now_ms)
                producer.send(forged, partition_key=name, event_timestamp=now_ms)
        job.wait_until(lambda: refused(job).count("other_broker") == 2)

        # A new broker is set up as the page says, and is used without a restart.
        commands = [
            each for each in commands_of("pulsar.md", PER_BROKER) if "broker-1" in str(each)
        ]
        for words in with_name(commands, "broker-1", "broker-2"):
            run_as_admin(server, words)
        second = client_of(server, "broker-2")
        job.wait_until(lambda: is_limited(first) and is_limited(second))
        assert known_brokers(job) == {"broker-1", "broker-2"}
        assert not [line for line in job.printed() if "access refused" in line]


def test_only_brokers_of_the_clusters_list_are_used(server: PulsarServer, tmp_path: Path) -> None:
    """A stock broker reports by itself; who may write to its topic invents another one."""
    rest = server.rest
    group = rest.put_group("of-acme", publish_messages_per_s=100)
    rest.create_tenant("acme")
    rest.attach(rest.create_namespace("acme/orders"), group)
    conf = write_conf(
        tmp_path,
        transport_of(server, ADMIN),
        reports={"interval_s": 2.0, "allowed_brokers": "cluster"},
        limits={"lease_s": 40.0},
        trigger={"interval_s": 0.5},
        shards=1,
    )

    def publish(over: threading.Event) -> None:
        with pulsar_client(server, ADMIN) as client:
            producer = client.create_producer("persistent://acme/orders/topic")
            while not over.wait(0.02):
                producer.send_async(b"x" * 100, lambda *_: None)

    def invent(over: threading.Event) -> None:
        with pulsar_client(server, ADMIN) as client:
            producer = client.create_producer(USAGE)
            while not over.wait(1.0):
                producer.send(encode_stock_report(INVENTED, [group], np.full((1, 4), 9e6)))

    with meanwhile(publish, invent), RunningJob(conf) as job:
        put_quotas(job.settings, **{group: 100.0})
        link = open_broker_link(job.settings.transport, limits_from="earliest")
        limits: dict[str, float] = {}

        def limit_of_the_broker() -> float:
            for _, value in limits_of(link):
                update = decode_limits(value)
                for name, limit in zip(update.groups, update.limits.tolist(), strict=True):
                    if name == group:
                        limits[update.broker] = limit[0]
            return limits.get(server.service_url, 0.0)

        job.wait_until(lambda: limit_of_the_broker() > 0)
        job.wait_until(lambda: refused(job).count("broker_not_allowed") >= 3)
        rounds = job.rounds()
        job.wait_until(lambda: job.rounds() > rounds + 10)
        assert limit_of_the_broker() == 100.0, "all of the quota is the real broker's"
        assert INVENTED not in limits
        assert known_brokers(job) == {server.service_url}
        link.close()
