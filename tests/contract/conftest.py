from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pulsar
import pytest

from quotaplane.pulsar.options import parse_options
from quotaplane.pulsar.topic_pool import TopicPool
from quotaplane.transport.base import BrokerLink, Transport
from tests.contract.pulsar_following import source
from tests.contract.rigs import DeltaRig, KafkaRig, PulsarRig, Rig, both_ends
from tests.servers.kafka_server import KafkaServer
from tests.servers.pulsar_clients import quiet_client
from tests.servers.pulsar_server import PulsarServer


@pytest.fixture
def delta_rig(tmp_path: Path) -> DeltaRig:
    return DeltaRig(tmp_path / "topics")


@pytest.fixture
def kafka_rig(kafka_server: KafkaServer) -> KafkaRig:
    return KafkaRig(kafka_server)


@pytest.fixture
def pulsar_rig(pulsar_server: PulsarServer) -> PulsarRig:
    return PulsarRig(pulsar_server)


@pytest.fixture(scope="module", params=["delta", "kafka", "pulsar"])
def kind(request: pytest.FixtureRequest) -> str:
    """The kind of transport."""
    return str(request.param)


@pytest.fixture
def rig(kind: str, request: pytest.FixtureRequest) -> Rig:
    rig: Rig = request.getfixturevalue(f"{kind}_rig")
    return rig


@pytest.fixture
def ends(rig: Rig) -> Iterator[tuple[Transport, BrokerLink]]:
    """The job's end of the topics, and a broker's."""
    with both_ends(rig.settings()) as ends:
        yield ends


@pytest.fixture
def secure_rig(secure_pulsar_server: PulsarServer) -> PulsarRig:
    return PulsarRig(secure_pulsar_server)


@pytest.fixture
def client(pulsar_rig: PulsarRig) -> Iterator[pulsar.Client]:
    client = quiet_client(pulsar_rig.server.service_url)
    yield client
    client.close()


@pytest.fixture
def follow(pulsar_rig: PulsarRig) -> Iterator[Callable[..., TopicPool]]:
    """Opens what a streaming query reads with; what the test forgets is closed."""
    opened: list[TopicPool] = []

    def open_follower(topic: str = "", **options: Any) -> TopicPool:
        opened.append(TopicPool(parse_options(source(pulsar_rig, topic, **options))))
        return opened[-1]

    yield open_follower
    for follower in opened:
        follower.close()
