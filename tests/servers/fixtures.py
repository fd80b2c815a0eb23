"""Servers that tests share: one of each kind a session, started at its first use."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.servers.kafka_server import KafkaServer


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaServer]:
    """A Kafka server with a plain, a TLS and a SASL listener; topics are each test's own."""
    with KafkaServer(tmp_path_factory.mktemp("kafka"), secure=True) as server:
        yield server
