"""The plugin while things go wrong, on other versions of Kafka, and with odd names."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

import pytest
from kafka import KafkaAdminClient, KafkaProducer
from kafka.admin import ScramMechanism, UserScramCredentialUpsertion

from benchmarks.kafka_proof.admin import Metadata
from quotaplane.groups.scope import encode
from tests.jvm.kafka_plugin import plugin_jar
from tests.servers.kafka_cluster import KafkaCluster
from tests.servers.kafka_server import OTHER_VERSIONS, KafkaServer
from tests.servers.plugged_kafka import (
    ATTACHMENTS,
    BROKER,
    LIMITS,
    LOAD,
    REPORTS,
    Job,
    Load,
    Reports,
    plugged,
    plugin_properties,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.nightly

LIMIT: Final = 1_000_000.0
COLUMN: Final = "limit_publish_bytes_per_s"
SCRAM: Final = ScramMechanism.SCRAM_SHA_256
PASSWORD: Final = "not a secret"


def begin(server: KafkaServer) -> tuple[Job, Reports]:
    """The topics, and a limit for the group of the client ``limited``, in force."""
    job = Job(server)
    job.create_topics()
    job.attach({"client=limited": "acme"})
    job.limit({"acme": {"publish_bytes": LIMIT}})
    reports = Reports(server)
    reports.wait_for(COLUMN, "acme", LIMIT)
    return job, reports


@pytest.mark.parametrize("windows", ["1", "2", "11"])
def test_a_cut_mutes_nobody_for_long(tmp_path: Path, windows: str) -> None:
    server = plugged(tmp_path)
    server.more_properties({"quota.window.num": windows})
    with server:
        job, reports = begin(server)
        job.limit({"acme": {"publish_bytes": 4 * LIMIT}})
        load = Load(server.bootstrap_servers, "limited")
        load.rate_over(max(int(windows) * 2, 4))
        load.longest_silence_s = 0.0
        job.limit({"acme": {"publish_bytes": LIMIT}})
        rate = load.rate_over(15)
        assert load.longest_silence_s < 5
        # This client also waits by itself, for as long as the broker tells it.
        assert rate == pytest.approx(LIMIT, rel=0.5)
        reports.wait_for(COLUMN, "acme", LIMIT)
        assert reports.all[-1].applied_seq == 4
        load.end()


def test_clocks_that_are_an_hour_apart(tmp_path: Path) -> None:
    """Ahead of the job a broker has the safe limits; behind it limits hold for one lease."""
    with plugged(tmp_path) as server:
        job, reports = Job(server), Reports(server)
        job.create_topics()
        job.attach({"client=limited": "acme"})
        limits = {"acme": {"publish_bytes": LIMIT}}
        job.limit(limits, safe=0.5, ahead_s=-3600)
        reports.wait_for(COLUMN, "acme", LIMIT / 2)
        job.limit(limits, safe=0.5, ahead_s=3600, lease_s=4)
        reports.wait_for(COLUMN, "acme", LIMIT)
        reports.wait_for(COLUMN, "acme", LIMIT / 2)


def test_a_message_that_is_replayed_changes_nothing(tmp_path: Path) -> None:
    with plugged(tmp_path) as server:
        job, reports = begin(server)
        job.attach({"client=other": "marker"})
        recorded = job.limit({"acme": {"publish_bytes": 9 * LIMIT}})
        job.limit({"acme": {"publish_bytes": LIMIT / 2}})
        job.publish(LIMITS, BROKER, recorded)
        job.limit({"marker": {"publish_bytes": LIMIT}})
        reports.wait_for(COLUMN, "marker", LIMIT)
        assert reports.last(COLUMN)["acme"] == LIMIT / 2


def test_ten_thousand_groups(tmp_path: Path) -> None:
    groups = [f"g{number}" for number in range(10_000)]
    with plugged(tmp_path) as server:
        job, reports = begin(server)
        job.attach({f"client=client-{group}": group for group in groups})
        for first in range(0, len(groups), 2000):
            job.limit({g: {"publish_bytes": LIMIT} for g in groups[first : first + 2000]})
        for group in groups[::1111]:
            reports.wait_for(COLUMN, group, LIMIT, within_s=60)
        load = Load(server.bootstrap_servers, f"client-{groups[-1]}")
        load.rate_over(3)
        assert load.rate_over(6) == pytest.approx(LIMIT, rel=0.25)
        load.end()
        reports.read()
        assert max(report.ByteSize() for report in reports.all) < 1_000_000


def test_limits_are_followed_though_the_leader_of_their_topic_is_frozen(tmp_path: Path) -> None:
    properties = {
        **plugin_properties(bootstrap_servers="{bootstrap_servers}"),
        "broker.session.timeout.ms": "2000",
        "broker.heartbeat.interval.ms": "500",
    }
    cluster = KafkaCluster(tmp_path, extra_jars=[plugin_jar()], properties=properties)
    server, frozen, other = cluster.servers
    for each in (frozen, other):
        each.more_properties({"quotaplane.reports.topic": "nowhere"})
    with cluster:
        cluster.create_topic(LIMITS, [2], copies=3)
        for topic in (ATTACHMENTS, REPORTS):
            cluster.create_topic(topic, [1], copies=3)
        job, reports = Job(server), Reports(server)
        job.attach({"client=limited": "acme"})
        job.limit({"acme": {"publish_bytes": LIMIT}})
        reports.wait_for(COLUMN, "acme", LIMIT)
        os.kill(frozen.pid, signal.SIGSTOP)
        try:
            metadata = Metadata(server.bootstrap_servers)
            wait_until(lambda: metadata.layout(LIMITS).leaders[0] not in (1, None), 20)
            limits = {"acme": {"publish_bytes": LIMIT / 2}}
            Job(server).limit(limits, epoch=2)
            reports.wait_for(COLUMN, "acme", LIMIT / 2, within_s=12)
        finally:
            os.kill(frozen.pid, signal.SIGCONT)


def test_topics_that_come_later_are_followed(tmp_path: Path) -> None:
    with plugged(tmp_path) as server:
        wait_until(lambda: "topics can't be followed" in server.said(), 20)
        begin(server)


def test_a_broker_serves_while_the_topics_cluster_can_not_be_reached(tmp_path: Path) -> None:
    with plugged(tmp_path, bootstrap_servers="127.0.0.1:1") as server:
        job = Job(server)
        job.create_topics()
        load = Load(server.bootstrap_servers, "limited", 1e6)
        assert load.rate_over(3) == pytest.approx(1e6, rel=0.2)
        load.end()


def test_a_name_that_is_no_host_is_tried_again(tmp_path: Path) -> None:
    with plugged(tmp_path, bootstrap_servers="no-such-host.invalid:1") as server:
        wait_until(lambda: "No resolvable bootstrap urls" in server.said(), 20)
        Job(server).create_topics()


def test_a_limits_topic_that_was_deleted_and_made_anew_is_read(tmp_path: Path) -> None:
    with plugged(tmp_path) as server:
        job, reports = begin(server)
        for _ in range(20):
            job.limit({"acme": {"publish_bytes": LIMIT}})
        admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
        admin.delete_topics([LIMITS])
        wait_until(lambda: LIMITS not in admin.list_topics(), 20)
        admin.close()
        server.create_topic(LIMITS)
        job.limit({"acme": {"publish_bytes": LIMIT / 2}})
        reports.wait_for(COLUMN, "acme", LIMIT / 2)


@pytest.mark.parametrize("version", OTHER_VERSIONS)
def test_other_versions(tmp_path: Path, version: str) -> None:
    with plugged(tmp_path, version=version) as server:
        _, reports = begin(server)
        load = Load(server.bootstrap_servers, "limited")
        load.rate_over(2)
        assert load.rate_over(6) == pytest.approx(LIMIT, rel=0.25)
        load.end()
        reports.wait_for_amount("publish_bytes_per_s", "acme", load.sent)


def test_principals_with_odd_characters_are_in_their_groups(tmp_path: Path) -> None:
    users = ["a b", 'q"uote', "colon:s", "<default>", "CN=a,O=b*?", "100%25", "x/y\\z"]
    groups = {f"user={encode(user)}": f"{user} & co" for user in users}
    client = "jürgen: ☃"
    groups |= {f"client={encode(client)}": client}
    server = plugged(tmp_path, secure=True)
    listener = "listener.name.sasl_ssl"
    module = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
    server.more_properties(
        {
            f"{listener}.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            f"{listener}.scram-sha-256.sasl.jaas.config": module,
        }
    )
    with server:
        admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers)
        logins = [UserScramCredentialUpsertion(user, SCRAM, PASSWORD) for user in users]
        assert set(admin.alter_user_scram_credentials(logins).values()) == {None}
        admin.close()
        job, reports = begin(server)
        job.attach(groups)
        job.limit({group: {"publish_bytes": LIMIT} for group in groups.values()})
        for group in groups.values():
            reports.wait_for(COLUMN, group, LIMIT)
        assert server.certificates is not None
        load = Load(server.bootstrap_servers, client)
        load.rate_over(1)
        load.end()
        reports.wait_for_amount("publish_bytes_per_s", client, load.sent)
        for user in users:
            producer = KafkaProducer(
                bootstrap_servers=server.bootstrap("SASL_SSL"),
                security_protocol="SASL_SSL",
                ssl_cafile=str(server.certificates.authority),
                sasl_mechanism="SCRAM-SHA-256",
                # As RFC 5802 asks for, and this client does not do itself.
                sasl_plain_username=user.replace("=", "=3D").replace(",", "=2C"),
                sasl_plain_password=PASSWORD,
            )
            producer.send(LOAD, bytes(50_000)).get(20)
            producer.close()
            reports.wait_for_amount("publish_bytes_per_s", f"{user} & co", 50_000)
