"""The order of tests, and which of them run together in a process of pytest-xdist."""

from __future__ import annotations

from typing import Any, Final

import pytest

_SLOW_FOLDERS: Final = ("tests/closed_loop/", "tests/simulation/")
_WITH_JVM: Final = ("tests/spark/", "tests/contract/", "tests/servers/", "tests/jvm/")


def group_of(nodeid: str) -> str:
    """The tests that one process runs: those of a file; with a JVM all of Pulsar, or all others.

    So there are two Spark sessions and one server of each kind, and a third process has time for
    the tests without a JVM.

    >>> group_of("tests/contract/test_transport.py::test_positions[kafka]")
    'spark'
    >>> group_of("tests/unit/laws/test_laws.py::test_reasons")
    'tests/unit/laws/test_laws.py'
    """
    if nodeid.startswith(_WITH_JVM):
        return "pulsar" if "pulsar" in nodeid else "spark"
    return nodeid.partition("::")[0]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what is slow, so that no process ends with a long file."""
    for item in items:
        if item.nodeid.startswith(_SLOW_FOLDERS):
            item.add_marker(pytest.mark.slow)
    slow = {group_of(item.nodeid) for item in items if item.get_closest_marker("slow")}
    rank = dict.fromkeys(slow, 2) | {"pulsar": 0, "spark": 1}
    items.sort(key=lambda item: rank.get(group_of(item.nodeid), 3))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """With ``--dist loadfile`` files are kept together by ``group_of``.

    pytest-xdist 3.8 has ``loadgroup`` for that, which does nothing under pytest 9.2.
    """
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class ByGroup(LoadFileScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group_of(nodeid)

    return ByGroup(config, log)
