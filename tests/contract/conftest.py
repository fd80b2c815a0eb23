from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.rigs import DeltaRig, KafkaRig, Rig
from tests.servers.kafka_server import KafkaServer


@pytest.fixture
def delta_rig(tmp_path: Path) -> DeltaRig:
    return DeltaRig(tmp_path / "topics")


@pytest.fixture
def kafka_rig(kafka_server: KafkaServer) -> KafkaRig:
    return KafkaRig(kafka_server)


@pytest.fixture(params=["delta", "kafka"])
def rig(request: pytest.FixtureRequest) -> Rig:
    found: Rig = request.getfixturevalue(f"{request.param}_rig")
    return found
