"""How long people wait for the page itself: from a click to what it shows, in headless Chromium."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final
from urllib.parse import quote

from playwright.sync_api import Browser, Page, expect

from quotaplane.errors import InputError
from tests.browser.rig import browser_of, chromium, find_quota_line

_FRAMES: Final = """() => {
  window.frames_ms = []; let last = performance.now();
  const next = (now) => {
    window.frames_ms.push(now - last); last = now; requestAnimationFrame(next)
  };
  requestAnimationFrame(next)
}"""
_TABLE: Final = "Groups beside their quotas"
_ROWS_OF_GROUP: Final = 2
"""A row for each dimension that has a quota."""
_MOVES: Final = 60
_TIMEOUT_MS: Final = 20_000


def measure_in_chromium(url: str, big: str, small: str, times: int) -> dict[str, list[float]]:
    """Seconds by what was done, so many times each.

    The last row has the longest frames while the quota line is dragged (the 95th percentile).

    Raises:
        InputError: there is no Chromium.
    """
    path = chromium()
    if path is None:
        raise InputError("no `chromium` is found: apt-get install chromium")
    found: dict[str, list[float]] = {}
    with browser_of(path) as browser:
        for _ in range(times):
            for about, took_s in _one_visit(browser, url, big, small).items():
                found.setdefault(about, []).append(took_s)
    return found


def _one_visit(browser: Browser, url: str, big: str, small: str) -> dict[str, float]:
    took: dict[str, float] = {}

    def timed(about: str, do: Callable[[], object], shown: Callable[[], None]) -> None:
        begun = time.perf_counter()
        do()
        shown()
        took[about] = time.perf_counter() - begun

    with browser.new_context(viewport={"width": 1440, "height": 900}) as context:
        page = context.new_page()
        page.set_default_timeout(_TIMEOUT_MS)
        expect.set_options(timeout=_TIMEOUT_MS)
        rows = page.get_by_role("region", name=_TABLE, exact=True).locator("tbody tr")
        timed(
            "open the page: the table of groups",
            lambda: page.goto(f"{url}/"),
            lambda: expect(rows).to_have_count(25),
        )
        timed(
            "the next 25 groups",
            lambda: page.get_by_role("button", name="Next").click(),
            lambda: expect(page.get_by_text("26 to 50 of")).to_be_visible(),
        )
        timed(
            "search one of them by name",
            lambda: page.get_by_role("searchbox").fill(small),
            lambda: expect(rows).to_have_count(_ROWS_OF_GROUP),
        )
        for size, group in (("small", small), ("big", big)):
            page.goto("about:blank")
            link = f"{url}/#/groups/{quote(group, safe='')}?range=7d"
            timed(
                f"open a {size} group: its charts of 7 days",
                partial(page.goto, link),
                lambda: expect(page.locator(".u-over").first).to_be_visible(),
            )
        field = page.get_by_role("spinbutton", name="Quota")
        half = str(round(float(field.input_value()) / 2))
        timed(
            "ask what half of the quota would mean",
            lambda: field.fill(half),
            lambda: expect(page.locator(".verdict")).to_contain_text("would have had"),
        )
        took["drag the quota line: frames, 95 %"] = _drag(page)
    return took


def _drag(page: Page) -> float:
    """Seconds within which 95 % of the frames are drawn while the line is dragged."""
    x, y = find_quota_line(page)
    page.mouse.move(x, y)
    page.mouse.down()
    page.evaluate(_FRAMES)
    for step in range(_MOVES):
        page.mouse.move(x, y + step % 30)
    frames = sorted(page.evaluate("window.frames_ms"))
    page.mouse.up()
    return float(frames[int(0.95 * (len(frames) - 1))]) / 1000
