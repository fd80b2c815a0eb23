"""Options and fixtures of all tests; nothing starts before a test asks for it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

# A shell starts programs in the background with SIGINT ignored, and programs that tests start would
# inherit that: tests that interrupt them would wait for ever.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = ["tests.servers.fixtures", "tests.spark.fixtures", "tests.order"]

# A commit is always tested the same, however slow the machine. `make nightly` tries more examples,
# other ones each time, `make quick` few. ``tests.examples`` is for tests that need more or fewer
# than others.
ANY_SPEED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("repeatable", ANY_SPEED, derandomize=True, max_examples=20)
settings.register_profile("explore", ANY_SPEED, derandomize=False, max_examples=300)
settings.register_profile("quick", ANY_SPEED, derandomize=True, max_examples=10)
settings.load_profile("repeatable")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--nightly",
        action="store_true",
        help="also run the tests that are marked nightly",
    )
    parser.addoption(
        "--record-outages",
        action="store_true",
        help="run only tests of outages; they write docs/measured/machines.md",
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "nightly: takes some seconds or more, and quicker tests find most of the same bugs; "
        "runs with --nightly",
    )
    config.addinivalue_line(
        "markers", "slow: takes half a second or more; `make quick` leaves it out"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    nightly, outages = config.getoption("--nightly"), config.getoption("--record-outages")
    kept = [
        item
        for item in items
        if (nightly or not item.get_closest_marker("nightly"))
        and (not outages or "outages" in getattr(item, "fixturenames", ()))
    ]
    if len(kept) < len(items):
        left_out = set(items).difference(kept)
        config.hook.pytest_deselected(items=list(left_out))
        items[:] = kept


@pytest.fixture(autouse=True, scope="module")
def no_event_loop_is_left() -> Iterator[None]:
    """With a loop that a file leaves running, ``asyncio.run`` fails in all later files."""
    yield
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()
