"""Every view in light and dark with axe, and at the width of a telephone."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import axe_playwright_python
import pytest
from playwright.sync_api import Browser, expect

from tests.browser.conftest import Watched
from tests.browser.story import HOSTILE, ORDERS
from tests.browser.test_flows import group_link

AXE: Final = Path(axe_playwright_python.__file__).with_name("axe.min.js").read_text("utf-8")
VIEWS: Final = {
    "groups": "",
    "a group": group_link(ORDERS),
    "a group with a long name": group_link(HOSTILE),
    "brokers": "brokers?broker=broker-1",
    "rejected": "rejected",
    "audits": "audits?audit=changes",
    "balance": "balance",
    "no such view": "elsewhere",
}


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_axe_finds_nothing(browser: Browser, open_server: str, view: str, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
    page = Watched(context.new_page(), open_server).open(VIEWS[view])
    page.wait_for_load_state("networkidle")
    if "group" in view and view != "groups":
        page.get_by_role("spinbutton", name="Quota").fill("10")
        expect(page.locator(".verdict")).to_be_visible()
    page.evaluate(AXE)
    found = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    assert found["passes"], "axe looked at nothing"
    problems = [
        (each["id"], each["help"], [node["html"][:200] for node in each["nodes"]][:3])
        for each in found["violations"]
    ]
    context.close()
    assert problems == []


@pytest.mark.parametrize("view", VIEWS)
def test_a_narrow_page_does_not_scroll_sideways(
    browser: Browser, open_server: str, view: str
) -> None:
    context = browser.new_context(viewport={"width": 400, "height": 800})
    page = Watched(context.new_page(), open_server).open(VIEWS[view])
    page.wait_for_load_state("networkidle")
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    context.close()
