"""docs/reference/history.md lists all tables, audits, views and reasons."""

from __future__ import annotations

from tests.unit.repo.history_reference import BEGIN, PAGE, reference


def test_the_page_has_all_lists() -> None:
    _, begin, rest = PAGE.read_text("utf-8").partition(BEGIN)
    assert begin + rest == reference(), "run: python -m tests.unit.repo.history_reference"
