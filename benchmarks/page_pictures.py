"""The pictures of docs/operate/page.md: the server's page with the story of its tests, in Chromium.

Usage: python -m benchmarks.page_pictures
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from playwright.sync_api import Browser

from tests.browser.rig import browser_of, chromium, serving
from tests.browser.story import story_history

IMAGES: Final = Path(__file__).resolve().parent.parent / "docs" / "images"
_OPEN: Final = {"anonymous": "admin-without-authentication"}
_SECONDS: Final = 600
_MADE_WITHIN_S: Final = 150
"""The story ends so long after its making began: the pictures show its end on any machine."""
_GROUP: Final = "#/groups/acme%2Forders?range=15m"


def take(browser: Browser, url: str, name: str, link: str, scheme: str, quota: str | None) -> None:
    """Take one picture; ``quota``: the what-if that it shows."""
    size = {"width": 1440, "height": 900}
    with browser.new_context(color_scheme=scheme, viewport=size) as context:  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(f"{url}/{link}")
        page.wait_for_load_state("networkidle")
        if quota is not None:
            page.get_by_role("spinbutton", name="Quota").fill(quota)
            page.locator(".verdict").wait_for()
        page.wait_for_timeout(500)  # the charts' last frame
        page.screenshot(path=IMAGES / f"{name}.png")


def main() -> int:
    """Make the history, and take the pictures."""
    path = chromium()
    if path is None:
        print("no `chromium` is found: apt-get install chromium", file=sys.stderr)
        return 2
    IMAGES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        begun_s = time.time()
        story_history(Path(folder), seconds=_SECONDS, ended_s_ago=-_MADE_WITHIN_S)
        time.sleep(max(begun_s + _MADE_WITHIN_S - time.time(), 0.0))
        with serving(Path(folder), _OPEN) as url, browser_of(path) as browser:
            take(browser, url, "page-groups", "#/groups", "light", None)
            take(browser, url, "page-what-if", _GROUP, "light", "900")
            take(browser, url, "page-dark", _GROUP, "dark", "900")
    return 0


if __name__ == "__main__":
    sys.exit(main())
