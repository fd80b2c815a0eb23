"""Fixtures and a hook for several unit tests."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

from quotaplane.settings import History
from tests.unit.group_sync.follower_cases import Rig
from tests.unit.pulsar_admin.cluster_cases import FakeCluster
from tests.unit.registry.groups_cases import Command
from tests.virtual_loop import run_virtually


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A test that is a coroutine runs in virtual time."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    run_virtually(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def history(tmp_path: Path) -> History:
    """A history without tables yet."""
    return History(path=str(tmp_path / "history"))


@pytest.fixture
def groups(history: History, capsys: pytest.CaptureFixture[str]) -> Command:
    """`quotaplane groups` on that history."""
    return Command(history, capsys)


@pytest.fixture
def rig(history: History) -> Iterator[Rig]:
    """A follower of a fake cluster into that history."""
    with FakeCluster() as cluster:
        yield Rig(cluster, history)
