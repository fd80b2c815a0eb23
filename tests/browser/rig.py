"""A real server on a loopback port and Debian's Chromium, for tests and pictures of the page."""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import uvicorn
from playwright.sync_api import Browser, Page, sync_playwright

from quotaplane.server.app import create_app
from tests.unit.server.server_cases import CONF, settings_with

REQUIRED: Final = "QUOTAPLANE_BROWSER_REQUIRED"
"""An environment variable: where it is set, as in CI, a missing browser is a failure."""
_ARGUMENTS: Final = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str | None:
    """Where Chromium is; None: it is not installed."""
    return shutil.which("chromium")


def is_required() -> bool:
    """Whether tests must fail without a browser."""
    return bool(os.environ.get(REQUIRED))


@contextlib.contextmanager
def browser_of(path: str) -> Iterator[Browser]:
    """A browser without a window."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(_ARGUMENTS))
        try:
            yield browser
        finally:
            browser.close()


@contextlib.contextmanager
def serving(folder: Path, server: dict[str, Any]) -> Iterator[str]:
    """A server of the history in a folder, in a thread; its URL."""
    settings = settings_with(folder, server)
    assert settings.server is not None
    app = create_app(settings, settings.server, CONF, lambda line: None)
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        running = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=running.run, args=([listener],))
        thread.start()
        try:
            until = time.monotonic() + 30
            while not running.started:
                assert thread.is_alive(), "the server ended"
                assert time.monotonic() < until, "the server does not start"
                time.sleep(0.02)
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            running.should_exit = True
            thread.join(30)


class Watched:
    """A page, and all that it should not do: ``faults``; ``urls`` has its requests."""

    def __init__(self, page: Page, url: str) -> None:
        self.page, self.url = page, url
        self.faults: list[str] = []
        self.urls: list[str] = []
        page.on("console", lambda said: self._said(said.type, said.text))
        page.on("pageerror", lambda error: self.faults.append(str(error)))
        page.on("request", lambda request: self.urls.append(request.url))

    def _said(self, kind: str, text: str) -> None:
        # Chromium writes each refused request to the console; the page shows its reason.
        if kind in ("error", "warning") and "Failed to load resource" not in text:
            self.faults.append(text)

    def open(self, link: str) -> Page:
        """Go to a view, such as ``#/brokers``."""
        self.page.goto(f"{self.url}/{link}")
        return self.page

    def check(self) -> None:
        """Nothing failed, no policy was violated, and no request left the host."""
        assert self.faults == []
        own = ("blob:", "data:", f"{self.url}/")
        assert [url for url in self.urls if not url.startswith(own)] == []


def find_quota_line(page: Page) -> tuple[float, float]:
    """A point where the pointer says that the quota line can be dragged."""
    over = page.locator(".u-over").first
    box = over.bounding_box()
    assert box is not None
    x = box["x"] + box["width"] / 2
    for y in range(int(box["y"]), int(box["y"] + box["height"]), 4):
        page.mouse.move(x, y)
        if over.evaluate("e => e.style.cursor") == "ns-resize":
            return x, y + 6
    raise AssertionError("the quota line is not found")
