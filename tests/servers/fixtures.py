"""Servers that tests share: one of each kind a process, which starts while other tests run.

A server begins to start as soon as this process knows that a test will need it. One process runs
all tests with Pulsar, another one those with Kafka (tests/order.py): no server starts twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from tests.servers.kafka_server import KafkaServer
from tests.servers.pulsar_server import PulsarServer

Server = KafkaServer | PulsarServer
_MADE_BY: Final[dict[str, Callable[[Path], Server]]] = {
    "kafka_server": lambda folder: KafkaServer(folder, secure=True),
    "pulsar_server": PulsarServer,
    "secure_pulsar_server": lambda folder: PulsarServer(folder, secure=True),
}
"""By the name of the fixture: a server in a folder."""


def servers_of(item: pytest.Item) -> set[str]:
    """The servers that a test needs: as fixtures, or for its ``kind`` of transport."""
    names = set(getattr(item, "fixturenames", ()))
    callspec = getattr(item, "callspec", None)
    if callspec is not None and "kind" in callspec.params:
        names.add(f"{callspec.params['kind']}_server")
    return names.intersection(_MADE_BY)


class Servers:
    """The servers of this process."""

    def __init__(self, folders: pytest.TempPathFactory) -> None:
        self._folders = folders
        self._starting: dict[str, Future[Server]] = {}
        self._threads = ThreadPoolExecutor(len(_MADE_BY), thread_name_prefix="start-server")
        self._running = ExitStack()

    def begin(self, names: Iterable[str]) -> None:
        """Start those that are not started yet; returns at once."""
        for name in names:
            if name not in self._starting:
                # Not in the thread: pytest makes its base folder at the first call, and for two
                # calls at once it makes two, which ends in a ValueError.
                folder = self._folders.mktemp(name)
                self._starting[name] = self._threads.submit(self._start, name, folder)

    def _start(self, name: str, folder: Path) -> Server:
        server = _MADE_BY[name](folder)
        server.start()
        self._running.callback(server.stop)
        return server

    def ready(self, name: str) -> Server:
        """A server, once it serves."""
        self.begin([name])
        return self._starting[name].result()

    def stop(self) -> None:
        """Stop them all, also those that no test used."""
        self._threads.shutdown()
        self._running.close()


_SERVERS: Final = pytest.StashKey[Servers]()


def pytest_collection_finish(session: pytest.Session) -> None:
    """One process that runs all tests starts all servers at once."""
    folders: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    servers = session.config.stash[_SERVERS] = Servers(folders)
    runs_all = not hasattr(session.config, "workerinput")
    if runs_all and not session.config.option.collectonly:
        servers.begin(name for item in session.items for name in servers_of(item))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """With several processes, the server of the next test starts while this one runs."""
    soon = servers_of(item) | (set() if nextitem is None else servers_of(nextitem))
    item.config.stash[_SERVERS].begin(soon)


def pytest_sessionfinish(session: pytest.Session) -> None:
    servers = session.config.stash.get(_SERVERS, None)
    if servers is not None:
        servers.stop()


@pytest.fixture(scope="session")
def kafka_server(request: pytest.FixtureRequest) -> Server:
    """A Kafka server with a plain, a TLS and a SASL listener; each test makes its own topics."""
    return request.config.stash[_SERVERS].ready("kafka_server")


@pytest.fixture(scope="session")
def pulsar_server(request: pytest.FixtureRequest) -> Server:
    """A Pulsar without authentication; each test makes its own namespaces and groups."""
    return request.config.stash[_SERVERS].ready("pulsar_server")


@pytest.fixture(scope="session")
def secure_pulsar_server(request: pytest.FixtureRequest) -> Server:
    """A Pulsar with TLS listeners and token authentication."""
    return request.config.stash[_SERVERS].ready("secure_pulsar_server")
