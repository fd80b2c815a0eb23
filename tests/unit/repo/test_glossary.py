"""docs/reference/glossary.md is sorted and unique, and no page uses a word that it replaces."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from tests.unit.repo.pages import PAGES, ROOT, prose

GLOSSARY: Final = ROOT / "docs/reference/glossary.md"


def _tables() -> tuple[list[list[str]], list[list[str]]]:
    """The rows of the page's two tables: terms, and words that are not used."""
    tables: list[list[list[str]]] = []
    for line in GLOSSARY.read_text("utf-8").splitlines():
        if line.startswith("|---"):
            tables.append([])
        elif line.startswith("|") and tables:
            tables[-1].append([cell.strip() for cell in line.strip("|").split("|")])
    terms, unused = ([row for row in table if row[0] != "not used"] for table in tables)
    return terms, unused


TERMS, UNUSED = _tables()
WORDS: Final = sorted(word for cell, *_ in UNUSED if "(" not in cell for word in cell.split(", "))
"""The words that a simple search finds; others are only discouraged."""


@pytest.mark.parametrize("table", [TERMS, UNUSED], ids=["terms", "words that are not used"])
def test_sorted_and_unique(table: list[list[str]]) -> None:
    words = [row[0] for row in table]
    assert words == sorted(set(words))


def test_every_term_is_explained() -> None:
    assert len(TERMS) >= 40
    assert not [row for row in TERMS if len(row) != 3 or not row[1]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_the_words_are_not_used(page: Path) -> None:
    if page != GLOSSARY:
        found = re.findall(rf"\b(?:{'|'.join(WORDS)})\b", prose(page), re.IGNORECASE)
        assert not found, (
            f"{page.name}: docs/reference/glossary.md has other words for {sorted(set(found))}"
        )
