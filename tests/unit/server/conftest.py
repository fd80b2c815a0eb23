"""Fixtures that several tests of the server use."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.server.server_cases import (
    TOKENS,
    Served,
    WritableCluster,
    served_beside,
    settings_with,
    token,
)


@pytest.fixture
def served(tmp_path: Path) -> Served:
    """An app that the administrator ann asks."""
    served = Served(settings_with(tmp_path, TOKENS))
    served.token = token("admin")
    return served


@pytest.fixture
def cluster() -> Iterator[WritableCluster]:
    with WritableCluster() as cluster:
        yield cluster


@pytest.fixture
def beside(cluster: WritableCluster, tmp_path: Path) -> Served:
    """An app beside that cluster, in which everybody may do everything."""
    return served_beside(cluster, tmp_path)
