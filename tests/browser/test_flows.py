"""Actions of people on the page, from the link to the change."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from quotaplane.history.store import ensure_tables
from quotaplane.settings import History
from tests.browser.rig import Watched, find_quota_line, serving
from tests.browser.story import BROKERS, HOSTILE, HOSTILE_BROKER, ORDERS
from tests.unit.server.server_cases import TOKENS, token

GROUP = "#/groups/acme%2Forders?range=15m"


def log_in(watched: Watched, *roles: str, link: str = "#/") -> Page:
    page = watched.open(link)
    page.get_by_label("Token").fill(token(*roles))
    page.get_by_role("button", name="Log in").click()
    expect(page.locator(".who")).to_have_text("ann")
    return page


def rows(page: Page, table: str) -> Locator:
    return page.get_by_role("region", name=table, exact=True).locator("tbody tr")


def ask_for_quota(page: Page, quota: str) -> None:
    page.get_by_role("spinbutton", name="Quota").fill(quota)
    expect(page.locator(".verdict")).to_contain_text("would have had")


def test_from_the_glance_to_a_change_and_back(watched: Watched) -> None:
    page = log_in(watched, "operator")
    groups = rows(page, "Groups beside their quotas")
    expect(groups).to_have_count(25)
    page.get_by_role("searchbox").fill("acme/ORD")
    expect(groups).to_have_count(1)
    assert "search=acme%2FORD" in page.url
    groups.get_by_role("link", name=ORDERS).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(ORDERS)
    page.get_by_role("button", name="15 min").click()
    ask_for_quota(page, "600")
    expect(page.locator(".verdict")).to_contain_text("less than was used")

    page.get_by_role("button", name="Apply…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("publish_messages_per_s from 1200 to 600")
    dialog.get_by_label("Reason").fill("too much for the brokers")
    dialog.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("The change is made.")).to_be_visible()
    changes = page.locator(".changes > li")
    expect(changes.first).to_contain_text("too much for the brokers")
    expect(changes.first).to_contain_text("from 1200 to 600")

    page.get_by_role("button", name=re.compile("Go back to version")).first.click()
    expect(dialog).to_contain_text("from 600 to 1200")
    dialog.get_by_label("Reason").fill("it was wrong")
    dialog.get_by_role("button", name="Go back").click()
    expect(changes.first).to_contain_text("it was wrong")
    expect(page.locator(".tools")).to_contain_text("1,200 msg/s")


def test_a_viewer_may_ask_what_if_but_not_apply(watched: Watched) -> None:
    page = log_in(watched, "viewer", link=GROUP)
    ask_for_quota(page, "600")
    expect(page.get_by_text("you need the role operator")).to_be_visible()
    expect(page.get_by_role("button", name="Apply…")).to_have_count(0)
    expect(page.get_by_role("button", name=re.compile("Go back"))).to_have_count(0)


def test_a_change_that_was_overtaken_is_not_made(watched: Watched, url: str) -> None:
    page = log_in(watched, "operator", link="#/groups/acme%2Fpayments?range=15m")
    ask_for_quota(page, "300")
    page.get_by_role("button", name="Apply…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("from 800 to 300")
    other = page.request.patch(
        f"{url}/api/v1/groups/acme/payments",
        data={"weight": 3},
        headers={"Authorization": f"Bearer {token('operator', sub='bob')}"},
    )
    assert other.ok
    dialog.get_by_label("Reason").fill("mine")
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog).to_contain_text("Somebody else changed the group meanwhile")


def test_a_refused_token_is_asked_for_again_and_never_in_a_link(watched: Watched) -> None:
    page = watched.open("#/")
    page.get_by_label("Token").fill(token("viewer", key="another secret" * 9))
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("did not accept the token")
    good = token("viewer")
    page.get_by_label("Token").fill(good)
    page.get_by_role("button", name="Log in").click()
    expect(page.locator(".who")).to_have_text("ann")
    assert all(good not in url for url in watched.urls)
    assert page.evaluate("localStorage.length") == 0
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert page.evaluate("sessionStorage.length") == 0


def test_the_quota_line_can_be_dragged(watched: Watched) -> None:
    page = log_in(watched, "viewer", link=GROUP)
    field = page.get_by_role("spinbutton", name="Quota")
    expect(field).to_have_value("1200")
    x, found = find_quota_line(page)
    page.mouse.move(x, found)
    page.mouse.down()
    page.mouse.move(x, found + 40, steps=8)
    page.mouse.up()
    assert 100 < float(field.input_value()) < 1150
    expect(page.locator(".verdict")).to_contain_text("less than was used")


def test_an_audit_marks_violations_and_downloads_its_rows(watched: Watched) -> None:
    page = log_in(watched, "viewer", link="#/audits")
    page.get_by_role("link", name=re.compile("^exceeded")).click()
    expect(page.get_by_role("status")).to_contain_text(re.compile(r"violation.* rows?\."))
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    lines = Path(download.value.path()).read_text().splitlines()
    assert "resource_group" in lines[0] or "group" in lines[0]
    assert len(lines) > 1


def test_names_are_text_and_never_markup(watched: Watched) -> None:
    page = log_in(watched, "viewer")
    page.get_by_role("searchbox").fill("onerror")
    link = rows(page, "Groups beside their quotas").get_by_role("link", name=HOSTILE)
    expect(link).to_have_text(HOSTILE)
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    brokers = rows(page, "Brokers at this time")
    expect(brokers).to_have_count(len(BROKERS) + 1)
    assert HOSTILE_BROKER in brokers.locator("bdi").all_text_contents()
    assert page.locator("img[onerror], #page script").count() == 0
    assert page.title().startswith(HOSTILE)


def test_a_broker_leads_to_its_limits_and_rejected_has_causes(watched: Watched) -> None:
    page = log_in(watched, "viewer", link="#/brokers")
    expect(rows(page, "Brokers")).to_have_count(len(BROKERS) + 1)
    rows(page, "Brokers").get_by_role("link", name="broker-1").click()
    expect(rows(page, "Limits").first).to_contain_text("msg/s")
    page.get_by_role("link", name="Rejected", exact=True).click()
    causes = rows(page, "Rejected reports by cause and sender")
    expect(causes.first).to_contain_text("not readable")


def test_pages_and_order_are_in_the_link(watched: Watched) -> None:
    page = log_in(watched, "viewer")
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("26 to 38 of 38")).to_be_visible()
    page.reload()
    expect(page.get_by_text("26 to 38 of 38")).to_be_visible()
    first = rows(page, "Groups beside their quotas").first
    page.get_by_label("Order").select_option("group")
    expect(first).to_contain_text(HOSTILE)
    page.get_by_role("button", name=re.compile("Over quota")).click()
    expect(page.get_by_label("Order")).to_have_value("-used_part")
    # The snapshot's usage stays; what was throttled counts for a minute, which may be over by now.
    expect(first).to_contain_text("initech/logs")


def test_with_the_keyboard_only(watched: Watched) -> None:
    page = watched.open(GROUP)
    page.get_by_label("Token").focus()
    page.keyboard.type(token("operator"))
    page.keyboard.press("Enter")
    slider = page.get_by_role("slider", name="Quota")
    slider.focus()
    page.keyboard.press("ArrowLeft")
    expect(page.locator(".verdict")).to_be_visible()
    assert "msg/s" in str(slider.get_attribute("aria-valuetext"))
    page.get_by_role("button", name="Apply…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    page.get_by_role("slider", name=re.compile("all brokers")).focus()
    page.keyboard.press("ArrowLeft")
    expect(page.get_by_role("heading", name=re.compile("Under the cursor"))).to_be_visible()


@pytest.mark.parametrize("link", ["#/", "#/brokers", "#/balance", "#/rejected"])
def test_an_empty_history_says_what_to_do(browser: Browser, tmp_path: Path, link: str) -> None:
    ensure_tables(History(path=str(tmp_path / "history")))
    with serving(tmp_path, {"anonymous": "viewer", **TOKENS}) as url, browser.new_page() as page:
        watched = Watched(page, url)
        watched.open(link)
        expect(page.locator(".empty").first).to_be_visible()
        watched.check()
