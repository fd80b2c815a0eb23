"""One story and one server for all tests of the page, and a browser for each file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.browser.rig import REQUIRED, Watched, browser_of, chromium, is_required, serving
from tests.browser.story import story_history
from tests.unit.server.server_cases import TOKENS

TIMEOUT_MS = 30_000
"""Other tests run at the same time."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Chromium; without it the tests are skipped, and in CI they fail.

    While Playwright is there, an event loop runs in the thread of the tests.
    """
    path = chromium()
    if path is None:
        line = "no `chromium` is found: apt-get install chromium"
        if is_required():
            pytest.fail(f"{line} ({REQUIRED} is set)")
        pytest.skip(line)
    expect.set_options(timeout=TIMEOUT_MS)
    with browser_of(path) as browser:
        yield browser


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the story."""
    folder: Path = tmp_path_factory.mktemp("story")
    story_history(folder)
    return folder


@pytest.fixture(scope="session")
def url(folder: Path) -> Iterator[str]:
    """A server that needs tokens."""
    with serving(folder, TOKENS) as url:
        yield url


@pytest.fixture
def watched(browser: Browser, url: str) -> Iterator[Watched]:
    """A page in a browser of its own; at the end, nothing may have failed in it."""
    with browser.new_context() as context:
        watched = Watched(context.new_page(), url)
        watched.page.set_default_timeout(TIMEOUT_MS)
        yield watched
        watched.check()
