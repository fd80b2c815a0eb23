"""The plugin on a real broker: groups have their limits, others none, and reports are right."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final
from uuid import uuid4

import pytest
from kafka import KafkaAdminClient
from kafka.errors import ThrottlingQuotaExceededError

from quotaplane.wire.signatures import SigningKeys
from tests.servers.kafka_commands import run_kafka
from tests.servers.kafka_server import KafkaServer
from tests.servers.plugged_kafka import LIMITS, Job, Load, Reports, plugged

SECRETS: Final = {"k": "0123456789abcdef0123456789abcdef"}
KEYS: Final = SigningKeys(SECRETS, sign_with="k")
LIMIT: Final = 1_000_000.0


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """One server for this file; its plugin verifies signatures."""
    keys = ",".join(f"{key}:{secret}" for key, secret in SECRETS.items())
    with plugged(tmp_path_factory.mktemp("plugin"), signing_keys=keys) as server:
        yield server


@pytest.fixture(scope="module")
def job(server: KafkaServer) -> Iterator[Job]:
    job = Job(server, KEYS)
    job.create_topics()
    job.attach(
        {
            "client=limited": "acme",
            "client=leased": "leased",
            "client=storm": "stormy",
            "client=grouped": "free",
        }
    )
    yield job
    job.close()


@pytest.fixture
def reports(server: KafkaServer, job: Job) -> Iterator[Reports]:
    reports = Reports(server)
    yield reports
    reports.close()


@contextmanager
def loads(*loads: Load) -> Iterator[None]:
    with ExitStack() as ends:
        for load in loads:
            ends.callback(load.end)
        yield


def test_a_group_gets_its_limit_and_its_usage_is_reported(
    server: KafkaServer, job: Job, reports: Reports
) -> None:
    job.limit({"acme": {"publish_bytes": LIMIT}})
    reports.wait_for("limit_publish_bytes_per_s", "acme", LIMIT)
    limited, other = (
        Load(server.bootstrap_servers, "limited"),
        Load(server.bootstrap_servers, "x", 3e6),
    )
    with loads(limited, other):
        limited.rate_over(2.0)  # The first window may be filled at once.
        assert other.rate_over(4.0) == pytest.approx(3e6, rel=0.1)
        reports.read()
        assert reports.last("throttled_publish_bytes_per_s")["acme"] >= LIMIT / 2
        assert limited.rate_over(4.0) == pytest.approx(LIMIT, rel=0.25)
    assert other.longest_silence_s < 1
    reports.wait_for_amount("publish_bytes_per_s", "acme", limited.sent)
    reports.wait_for("throttled_publish_bytes_per_s", "acme", 0.0)
    assert reports.last("request_ms_per_s").keys() >= {"acme"}
    assert "x" not in {group for report in reports.all for group in report.groups}


def test_after_the_lease_the_safe_limit_holds_and_a_removed_group_has_none(
    server: KafkaServer, job: Job, reports: Reports
) -> None:
    column = "limit_publish_bytes_per_s"
    job.limit({"leased": {"publish_bytes": LIMIT}}, safe=0.5, lease_s=2.0)
    reports.wait_for(column, "leased", LIMIT)
    reports.wait_for(column, "leased", LIMIT / 2)
    job.limit({}, removed=["leased"])
    reports.wait_for(column, "leased", float("inf"))


def test_messages_without_a_valid_signature_change_nothing(
    server: KafkaServer, job: Job, reports: Reports
) -> None:
    forger = Job(server, SigningKeys({"k": "another-secret-of-32-characters--"}, sign_with="k"))
    unsigned = Job(server)
    for forged in (forger, unsigned):
        forged.limit({"acme": {"publish_bytes": 1.0}}, epoch=99)
        forged.close()
    job.publish(LIMITS, "broker-1", b"nothing")
    job.limit({"acme": {"publish_bytes": 2 * LIMIT}})
    reports.wait_for("limit_publish_bytes_per_s", "acme", 2 * LIMIT)
    assert "quotaplane refuses a message on quotaplane-limits" in server.said()
    applied = [report.applied_epoch for report in reports.all if report.HasField("applied_epoch")]
    assert set(applied) == {1}


def test_kafkas_own_quotas_hold_for_clients_without_a_limited_group(
    server: KafkaServer, job: Job, reports: Reports
) -> None:
    change = ["kafka-configs.sh", "--bootstrap-server", "HOST:9092", "--alter"]
    for client in ("own", "grouped", "limited"):
        # Clients of an acme that has a limit are not held to it.
        quota = ["--add-config", "producer_byte_rate=500000", "--entity-type", "clients"]
        run_kafka(server, [*change, *quota, "--entity-name", client])
    job.limit({"acme": {"publish_bytes": 2 * LIMIT}})
    all_loads = {
        name: Load(server.bootstrap_servers, name) for name in ("own", "grouped", "limited")
    }
    with loads(*all_loads.values()):
        all_loads["own"].rate_over(3.0)
        sent = {name: load.sent for name, load in all_loads.items()}
        all_loads["own"].rate_over(5.0)
        rates = {name: (load.sent - sent[name]) / 5 for name, load in all_loads.items()}
    assert rates["own"] == pytest.approx(500_000, rel=0.3)
    assert rates["grouped"] == pytest.approx(500_000, rel=0.3)
    assert rates["limited"] == pytest.approx(2 * LIMIT, rel=0.3)


def test_a_storm_of_new_topics_is_refused_and_others_create_theirs(
    server: KafkaServer, job: Job, reports: Reports
) -> None:
    job.limit({"stormy": {"controller_mutations": 0.1}})
    reports.wait_for("limit_controller_mutations_per_s", "stormy", 0.1)
    # Kafka's bucket has 11 seconds' worth, 1.1 topics, and may go below 0 once; the next one is
    # admitted 9 s later.
    errors = [*create_topics(server, "storm", 30), *create_topics(server, "storm", 1)]
    assert errors == [0, 0] + [ThrottlingQuotaExceededError.errno] * 29
    assert create_topics(server, "calm", 30) == [0] * 30
    created = len(errors) - errors.count(ThrottlingQuotaExceededError.errno)
    reports.wait_for_amount("controller_mutations_per_s", "stormy", created)
    assert any(sum(report.throttled_controller_mutations_per_s) > 0 for report in reports.all)


def create_topics(server: KafkaServer, client_id: str, count: int) -> list[int]:
    """Create so many in one request of a version that is refused; returns Kafka's error codes."""
    admin = KafkaAdminClient(bootstrap_servers=server.bootstrap_servers, client_id=client_id)
    try:
        names = [f"{client_id}-{uuid4().hex}" for _ in range(count)]
        wanted = {name: {"num_partitions": 1, "replication_factor": 1} for name in names}
        answer = admin.create_topics(wanted, raise_errors=False)
        return [topic["error_code"] for topic in answer["topics"]]
    finally:
        admin.close()
