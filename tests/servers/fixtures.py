"""Servers that tests share: one of each kind a session, started at its first use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.kafka_server import KafkaServer
from tests.servers.pulsar_server import PulsarServer


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka server with a plain, a TLS and a SASL listener; topics are each test's own."""
    with KafkaServer(tmp_path_factory.mktemp("kafka"), secure=True) as server:
        yield server


@pytest.fixture(scope="session")
def pulsar_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarServer]:
    """A Pulsar that asks nobody who they are; namespaces and groups are each test's own."""
    with PulsarServer(tmp_path_factory.mktemp("pulsar")) as server:
        yield server


@pytest.fixture(scope="session")
def secure_pulsar_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarServer]:
    """A Pulsar with TLS listeners that asks everybody for a token."""
    with PulsarServer(tmp_path_factory.mktemp("secure-pulsar"), secure=True) as server:
        yield server
