from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.rigs import DeltaRig, KafkaRig, PulsarRig, Rig
from tests.servers.kafka_server import KafkaServer
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


@pytest.fixture(params=["delta", "kafka", "pulsar"])
def rig(request: pytest.FixtureRequest) -> Rig:
    found: Rig = request.getfixturevalue(f"{request.param}_rig")
    return found
