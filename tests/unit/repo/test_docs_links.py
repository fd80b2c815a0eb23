"""The targets of links, and the files and modules that the pages name, exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tests.unit.repo.pages import PAGES, ROOT, without_code_blocks

PACKAGES = ROOT / "pipelines"
PACKAGE = PACKAGES / "quotaplane"
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_CODE = re.compile(r"`([^`\n]+)`")
_FILE = re.compile(r"^(?:[\w.-]+/)+[\w.-]*$|^[\w.-]+\.(?:md|py|sql|yaml|proto)$")
_DOTTED = re.compile(
    r"\b(?<!io\.)(?!quotaplane\.client\.(?:sasl|ssl|security)\.)quota(?:plane|balance)(?:\.[a-z_]\w*)+"
)
"""Names that may be modules; settings of Kafka's clients are none."""
_SHORT = re.compile(r"^(?:deltalog|laws|model|registry|streams|wire)\.(?!py$)[a-z_]\w*")
"""Names in the package without its name; other rooms have the names of sections of settings."""
(_JAVA,) = (ROOT / "deploy" / "kafka-plugin" / "src").rglob("PluginSettings.java")
_LINES = _JAVA.read_text("utf-8")
_PLUGIN_SETTINGS = {f"quotaplane.{n}" for n in re.findall(r'PREFIX \+ "([a-z.]+\w)"', _LINES)}
_OTHERS = {"epoch", "proto", "rates", "seq"}
_NOT_MODULES = {f"quotaplane.{name}" for name in _OTHERS} | _PLUGIN_SETTINGS
_ROOMS = {path.name for path in PACKAGE.iterdir() if path.is_dir()}
_MADE = {"build", "data"}
"""Folders that programs make: what is in them comes and goes."""
_TOP = {path.name for path in (*ROOT.iterdir(), *PACKAGES.iterdir()) if path.is_dir()} - _MADE


def _anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", without_code_blocks(page), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in _LINK.findall(without_code_blocks(page)):
        path, _, anchor = link.partition("#")
        if "://" in link:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            broken.append(link)
    assert not broken


def _exists(named: str) -> bool:
    """Whether a path in a page names a file or folder of the repository or of the package."""
    return any((folder / named).exists() for folder in (ROOT, PACKAGE, PACKAGES, ROOT / "docs"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    named = {code for code in _CODE.findall(without_code_blocks(page)) if _FILE.match(code)}
    ours = {path for path in named if path.split("/")[0] in _ROOMS | _TOP}
    assert not sorted(path for path in ours if not _exists(path))


def _is_in_the_package(named: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    parts = named.split(".")
    path = ROOT.joinpath("pipelines", *parts)
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    files = [path.parent.with_suffix(".py"), path.parent / "__init__.py"]
    texts = [file.read_text("utf-8") for file in files if file.is_file()]
    return any(re.search(rf"\b{parts[-1]}\b", text) for text in texts)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_modules_that_are_named_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    whole = _DOTTED.findall(text)
    codes = _CODE.findall(text)
    short = [f"quotaplane.{code.partition('(')[0]}" for code in codes if _SHORT.match(code)]
    assert not sorted(
        name for name in {*whole, *short} - _NOT_MODULES if not _is_in_the_package(name)
    )


def test_the_page_has_each_setting_of_the_plugin() -> None:
    page = (ROOT / "docs" / "operate" / "kafka-plugin.md").read_text("utf-8")
    short = {"quotaplane.attachments.topic": "`.attachments.topic`"}
    short["quotaplane.reports.topic"] = "`.reports.topic`"
    assert len(_PLUGIN_SETTINGS) > 10
    assert [name for name in _PLUGIN_SETTINGS if short.get(name, f"`{name}`") not in page] == []


def test_pages_that_code_and_messages_name_exist() -> None:
    """``docs/PAGE.md#HEADING`` in messages, comments, rules of alerts and scripts."""
    done = subprocess.run(
        ["git", "grep", "-hoE", r"docs/[a-z0-9/-]+\.md(#[a-z0-9-]+)?", "--", ":!*.md"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    named = {tuple(line.partition("#")[::2]) for line in done.stdout.split()}
    assert len(named) > 50
    broken = [
        f"{page}#{anchor}"
        for page, anchor in named
        if not (ROOT / page).is_file() or (anchor and anchor not in _anchors(ROOT / page))
    ]
    assert sorted(broken) == []
