"""Chromium, and servers whose history has a story, for tests of the page."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from tests.browser.story import story_history
from tests.unit.server_cases import TOKENS
from tests.unit.server_process import OPEN, conf, running

ARGUMENTS: Final = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
REQUIRED: Final = "QUOTAPLANE_TEST_BROWSER"
"""Environment variable: tests fail where there is no browser. CI sets it."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("google-chrome")
    if path is None:
        problem = "there is no Chromium: on Debian, apt-get install chromium"
        if os.environ.get(REQUIRED):
            pytest.fail(problem)
        pytest.skip(problem)
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))
        yield found
        found.close()


@pytest.fixture(scope="session")
def story(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a history."""
    folder = tmp_path_factory.mktemp("story")
    story_history(folder)
    return folder


def served(folder: Path, story: Path, server: dict[str, Any]) -> Iterator[str]:
    """The address of a server with its own copy of the story."""
    shutil.copytree(story / "history", folder / "history")
    with running(conf(folder, server, history=False)) as process:
        yield process.url


@pytest.fixture(scope="module")
def open_server(story: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Everybody may do everything."""
    yield from served(tmp_path_factory.mktemp("open"), story, OPEN)


@pytest.fixture(scope="module")
def closed_server(story: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Only with tokens."""
    yield from served(tmp_path_factory.mktemp("closed"), story, {**TOKENS, "port": 0})


class Watched:
    """A page of a browser; whatever goes wrong in it is noted."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.problems: list[str] = []
        self.refusals: list[int] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("request", self._asked)
        page.on("response", lambda r: self.refusals.append(r.status) if r.status >= 400 else None)

    def _said(self, message: ConsoleMessage) -> None:
        # The browser also prints each status of a refusal.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.problems.append(message.text)

    def _asked(self, request: Request) -> None:
        if not request.url.startswith((f"{self.url}/", "blob:")):
            self.problems.append(f"a request to {request.url}")

    def open(self, link: str) -> Page:
        """Open a view of the page."""
        self.page.goto(f"{self.url}/#/{link}")
        return self.page


@pytest.fixture
def watched(browser: Browser, open_server: str) -> Iterator[Watched]:
    """A page of the open server; the test fails if its console has errors."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    context.set_default_timeout(15_000)
    found = Watched(context.new_page(), open_server)
    yield found
    context.close()
    assert found.problems == []
