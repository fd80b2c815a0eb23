"""The page keeps axe's rules, in narrow windows, light and dark; and its files as they are sent."""

from __future__ import annotations

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser

from tests.browser.rig import Watched
from tests.browser.test_flows import log_in

pytestmark = pytest.mark.nightly

VIEWS = (
    "#/groups",
    "#/groups/acme%2Forders?range=15m",
    "#/brokers?broker=broker-1",
    "#/rejected",
    "#/audits?audit=exceeded",
    "#/balance",
)


@pytest.mark.parametrize(
    ("width", "scheme"),
    [(1440, "light"), (400, "dark"), (1440, "dark"), (400, "light")],
)
def test_every_view_keeps_axes_rules_and_fits(
    browser: Browser, url: str, scheme: str, width: int
) -> None:
    options = {"color_scheme": scheme, "viewport": {"width": width, "height": 800}}
    with browser.new_context(**options) as context:  # type: ignore[arg-type]
        watched = Watched(context.new_page(), url)
        page = log_in(watched, "operator")
        for view in VIEWS:
            watched.open(view)
            page.wait_for_load_state("networkidle")
            if "acme" in view:
                page.get_by_role("spinbutton", name="Quota").fill("700")
                page.locator(".verdict").wait_for()
            found = [
                (view, violation["id"], [node["html"] for node in violation["nodes"]][:3])
                for violation in Axe().run(page).response["violations"]
            ]
            assert found == []
            # a table may scroll in itself; the page may not
            wide = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
            assert page.evaluate(wide) == 0, view
        watched.check()


def test_charts_have_the_colours_of_the_page(watched: Watched) -> None:
    page = log_in(watched, "viewer", link="#/groups/acme%2Forders?range=15m")
    canvas = page.locator(".chart canvas").first
    canvas.wait_for()
    count = """canvas => {
        const {data} = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
        let blue = 0;
        for (let i = 0; i < data.length; i += 4)
            if (data[i + 3] > 200 && data[i + 2] > data[i] + 60) blue += 1;
        return blue;
    }"""
    assert canvas.evaluate(count) > 50  # the line of what is used


def test_the_files_forbid_what_the_page_does_not_need(url: str) -> None:
    answer = httpx.get(f"{url}/", timeout=60)
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"
    again = httpx.get(f"{url}/", headers={"If-None-Match": answer.headers["etag"]}, timeout=60)
    assert again.status_code == 304
    for path in ("nothing", "page/nothing.js", "page/../app.py", "page/%2e%2e/app.py"):
        missing = httpx.get(f"{url}/{path}", timeout=60)
        assert missing.status_code == 404
        assert list(missing.json()) == ["reason"]
