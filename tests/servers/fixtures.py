"""Fixtures of servers that tests share: one of each kind per session, started at first use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.kafka_server import KafkaServer
from tests.servers.pulsar_server import PulsarServer


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka server with a plain, a TLS and a SASL listener; each test makes its own topics."""
    with KafkaServer(tmp_path_factory.mktemp("kafka"), secure=True) as server:
        yield server


@pytest.fixture(scope="session")
def pulsar_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarServer]:
    """A Pulsar without authentication; each test makes its own namespaces and groups."""
    with PulsarServer(tmp_path_factory.mktemp("pulsar")) as server:
        yield server


@pytest.fixture(scope="session")
def secure_pulsar_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarServer]:
    """A Pulsar with TLS listeners and token authentication."""
    with PulsarServer(tmp_path_factory.mktemp("secure-pulsar"), secure=True) as server:
        yield server
