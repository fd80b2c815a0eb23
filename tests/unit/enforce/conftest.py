"""A cluster in memory for an enforcer."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.enforce.enforce_cluster import FakePulsar


@pytest.fixture
def cluster(tmp_path: Path) -> FakePulsar:
    """One broker, no topics; a folder for a history."""
    return FakePulsar(folder=tmp_path)


@pytest.fixture
def busy(cluster: FakePulsar) -> FakePulsar:
    """That cluster with three topics, of which one is busy."""
    cluster.add("b", "c")
    cluster.add("a", used=500.0)
    return cluster
