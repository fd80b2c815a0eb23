"""What people do on the page, in Chromium."""

from __future__ import annotations

import csv
import re
import urllib.parse
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.browser.conftest import Watched
from tests.browser.story import HOSTILE, HOSTILE_BROKER, ORDERS
from tests.unit.server_cases import token


def group_link(group: str) -> str:
    return f"groups/{urllib.parse.quote(group, safe='')}?range=15m"


def row(page: Page, text: str):  # type: ignore[no-untyped-def]
    return page.get_by_role("row").filter(has_text=text).first


def test_groups_are_searched_ordered_and_paged(watched: Watched) -> None:
    page = watched.open("")
    table = page.get_by_role("table", name="Groups beside their quotas")
    expect(table.get_by_role("row")).to_have_count(26)
    expect(table.get_by_role("row").nth(1)).to_contain_text("initech/logs")
    expect(table.get_by_role("row").nth(1)).to_contain_text("115 %")
    expect(page.get_by_text("1 to 25 of 38")).to_be_visible()
    page.get_by_role("button", name="Next").click()
    expect(page.get_by_text("26 to 38 of 38")).to_be_visible()
    expect(table.get_by_role("row")).to_have_count(14)
    page.get_by_role("searchbox", name="Search groups").fill("GLOBEX")
    expect(table.get_by_role("row")).to_have_count(5)
    assert "search=GLOBEX" in page.url
    assert "offset" not in page.url
    page.get_by_label("Order").select_option("group")
    expect(table.get_by_role("row").nth(1)).to_contain_text("globex")
    page.get_by_role("searchbox", name="Search groups").fill("nothing like that")
    expect(page.get_by_text("No group with a quota fits.")).to_be_visible()
    page.get_by_role("button", name="Show all").click()
    expect(table.get_by_role("row")).to_have_count(26)


def test_the_map_shows_what_each_broker_uses(watched: Watched) -> None:
    page = watched.open("?search=orders")
    cell = page.get_by_title(f"{ORDERS} on broker-2: 420 msg/s used, limit 473.3 msg/s")
    expect(cell).to_have_text("89")


def test_a_quota_is_tried_applied_and_taken_back(watched: Watched) -> None:
    page = watched.open("?search=orders")
    page.get_by_role("table", name="Groups beside").get_by_role("link", name=ORDERS).click()
    expect(page.get_by_role("heading", level=1)).to_have_text(ORDERS)
    page.get_by_role("button", name="15 min").click()
    expect(page.locator(".uplot")).to_have_count(2)
    expect(row(page, "broker-2")).to_contain_text("satisfied: wants 420")

    page.get_by_role("spinbutton", name="Quota").fill("600")
    verdict = page.locator(".verdict")
    expect(verdict).to_contain_text(
        re.compile(r"\d brokers would have had .* msg less than was used")
    )
    lost = page.get_by_role("table", name="Brokers with the change")
    expect(lost.get_by_role("row").nth(1)).to_contain_text("broker-1")
    page.get_by_role("spinbutton", name="Quota").fill("5000")
    expect(verdict).to_contain_text("Nobody would have had less than was used.")

    page.get_by_role("spinbutton", name="Quota").fill("1000")
    page.get_by_role("button", name="Apply…").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("publish_messages_per_s from 1200 to 1000")
    dialog.get_by_role("textbox", name="Reason").fill("less for a while")
    dialog.get_by_role("button", name="Apply").click()
    expect(page.get_by_text("The change is made.")).to_be_visible()
    newest = page.locator(".changes > li").first
    expect(newest).to_contain_text("less for a while")
    expect(newest).to_contain_text("from 1200 to 1000")
    expect(page.get_by_role("spinbutton", name="Quota")).to_have_value("1000")

    page.locator(".changes > li").nth(1).get_by_role("button", name="Go back").click()
    expect(dialog).to_contain_text("from 1000 to 1200")
    dialog.get_by_role("textbox", name="Reason").fill("a mistake")
    dialog.get_by_role("button", name="Go back").click()
    expect(page.locator(".changes > li").first).to_contain_text("a mistake")
    expect(page.get_by_role("spinbutton", name="Quota")).to_have_value("1200")


def test_the_quota_line_is_dragged(watched: Watched) -> None:
    page = watched.open(group_link(ORDERS))
    chart = page.locator(".chart").first.locator(".u-over")
    box = chart.bounding_box()
    assert box is not None
    found = None
    for y in range(0, int(box["height"]), 4):
        page.mouse.move(box["x"] + 50, box["y"] + y)
        if chart.evaluate("(over) => over.style.cursor") == "ns-resize":
            found = y
            break
    assert found is not None
    page.mouse.move(box["x"] + 50, box["y"] + found + 4)
    page.mouse.down()
    page.mouse.move(box["x"] + 60, box["y"] + box["height"] * 0.6, steps=12)
    page.mouse.up()
    expect(page.locator(".verdict")).to_contain_text("less than was used")
    quota = float(page.get_by_role("spinbutton", name="Quota").input_value())
    assert 300 < quota < 1000
    page.get_by_role("button", name="Reset").click()
    expect(page.get_by_role("spinbutton", name="Quota")).to_have_value("1200")


def test_the_keyboard_is_enough(watched: Watched) -> None:
    page = watched.open(group_link(ORDERS))
    expect(page.locator(".uplot")).to_have_count(2)
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
    page.keyboard.press("Enter")
    expect(page.locator("#main")).to_be_focused()
    chart = page.get_by_role("slider", name="publish messages of all brokers")
    for _ in range(20):
        page.keyboard.press("Tab")
        if chart.evaluate("(e) => e === document.activeElement"):
            break
    expect(chart).to_be_focused()
    before = chart.get_attribute("aria-valuetext")
    for _ in range(3):
        page.keyboard.press("ArrowLeft")
    assert chart.get_attribute("aria-valuetext") != before
    expect(page.get_by_role("heading", name="Under the cursor")).to_be_visible()
    slider = page.get_by_role("slider", name="Quota", exact=True)
    slider.focus()
    for _ in range(20):
        page.keyboard.press("ArrowLeft")
    expect(page.locator(".verdict")).to_be_visible()
    page.get_by_role("button", name="Apply…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("dialog")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_why_has_all_that_is_recorded_of_a_limit(watched: Watched) -> None:
    page = watched.open(group_link(ORDERS))
    page.get_by_role("button", name="Why this limit of broker-2").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("satisfied: wants 420")
    expect(dialog).to_contain_text("set by bob")
    dialog.get_by_role("button", name="Close").click()
    expect(dialog).to_have_count(0)


def test_somebody_else_was_faster(watched: Watched) -> None:
    page = watched.open(group_link("acme/payments"))
    page.get_by_role("spinbutton", name="Weight").fill("3")
    page.get_by_role("button", name="Apply…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="Reason").fill("more")
    name = urllib.parse.quote("acme/payments", safe="")
    other = page.request.patch(f"{watched.url}/api/v1/groups/{name}", data={"weight": 2})
    assert other.ok
    dialog.get_by_role("button", name="Apply").click()
    expect(dialog.get_by_role("alert")).to_contain_text("Somebody else changed the group meanwhile")
    assert 412 in watched.refusals


def test_names_are_text_and_nothing_else(watched: Watched) -> None:
    page = watched.open("?search=onerror")
    link = page.get_by_role("table", name="Groups beside").get_by_role("link", name=HOSTILE)
    expect(link).to_be_visible()
    link.click()
    expect(page.get_by_role("heading", level=1)).to_have_text(HOSTILE)
    expect(row(page, HOSTILE_BROKER)).to_be_visible()
    watched.open("brokers")
    expect(page.get_by_role("link", name=HOSTILE_BROKER)).to_be_visible()
    assert page.title() == "Brokers – quotaplane"


def test_brokers_rejected_and_balance(watched: Watched) -> None:
    page = watched.open("brokers")
    expect(row(page, "broker-4")).to_contain_text("gone")
    page.get_by_role("link", name="broker-1").click()
    expect(page.get_by_role("heading", name="Limits of broker-1")).to_be_visible()
    expect(page.get_by_role("table", name="Limits")).to_contain_text("globex/clicks")
    watched.open("rejected")
    by_cause = page.get_by_role("table", name="Rejected reports by cause and sender")
    expect(by_cause.get_by_role("row")).to_have_count(2)
    expect(by_cause).to_contain_text("not readable")
    watched.open("balance")
    expect(page.get_by_text("The balancer decided nothing in this time.")).to_be_visible()


def test_an_audit_is_asked_and_taken_along(watched: Watched, tmp_path: Path) -> None:
    page = watched.open("audits")
    page.get_by_role("link", name=re.compile("^changes")).click()
    table = page.get_by_role("table", name=re.compile("^Who changed which quota"))
    expect(table).to_contain_text("bob")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download CSV").click()
    file = tmp_path / "changes.csv"
    download.value.save_as(file)
    rows = list(csv.DictReader(file.open(newline="")))
    assert {"bob", "ann"} <= {r["changed_by"] for r in rows}
    page.get_by_role("link", name=re.compile("^exceeded")).click()
    expect(page.get_by_text("No violation.")).to_be_visible()
    page.get_by_role("spinbutton", name="tolerance").fill("0.01")
    page.get_by_role("button", name="Ask").click()
    expect(page).to_have_url(re.compile(r"set=tolerance%3D0\.01"))


def test_a_token_lets_in_and_its_role_says_what_may_be_changed(
    browser: Browser, closed_server: str
) -> None:
    context = browser.new_context()
    watched = Watched(context.new_page(), closed_server)
    page = watched.open("")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Log in").click()
    expect(page.get_by_role("alert")).to_contain_text("did not accept the token")
    page.get_by_label("Token").fill(token("viewer:acme"))
    page.get_by_role("button", name="Log in").click()
    table = page.get_by_role("table", name="Groups beside their quotas")
    expect(table.get_by_role("row")).to_have_count(3)  # orders and payments of acme
    watched.open(group_link(ORDERS))
    page.get_by_role("spinbutton", name="Quota").fill("600")
    expect(page.locator(".verdict")).to_be_visible()
    expect(page.get_by_text("you need the role operator")).to_be_visible()
    expect(page.get_by_role("button", name="Apply…")).to_have_count(0)
    expect(page.get_by_role("button", name="Go back")).to_have_count(0)
    watched.open("brokers")
    expect(page.get_by_role("alert")).to_contain_text("the role viewer for all tenants is needed")
    page.get_by_role("button", name="Log out").click()
    expect(page.get_by_label("Token")).to_be_visible()
    assert "token" not in page.url
    context.close()
    assert watched.problems == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_choice_of_light_or_dark_stays(browser: Browser, open_server: str, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme)  # type: ignore[arg-type]
    page = Watched(context.new_page(), open_server).open("")
    other = "dark" if scheme == "light" else "light"
    page.get_by_role("button", name=other.capitalize(), exact=True).click()
    page.reload()
    expect(page.locator("html")).to_have_attribute("data-theme", other)
    context.close()
