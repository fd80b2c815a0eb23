"""Fixtures of the tests with servers that only they need."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.nightly.machines import MachinesRecord
from tests.servers.outages import Outages
from tests.servers.s3_proxy import S3Proxy
from tests.servers.stores import connector_jars
from tests.unit.repo.pages import ROOT


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Proxy]:
    """An object store; each test has a folder of its own in it."""
    with S3Proxy(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(scope="session")
def connector() -> str:
    """Spark's jars for the store, for ``--jars``."""
    return connector_jars()


@pytest.fixture
def outages(request: pytest.FixtureRequest) -> Outages:
    """Takes notes of what happens when a part is lost; ``--record-outages`` writes its page."""
    record = MachinesRecord(ROOT) if request.config.getoption("--record-outages") else None
    return Outages(request.node.nodeid, record)
