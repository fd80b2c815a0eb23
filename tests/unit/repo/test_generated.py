"""Pages of reference have every option, setting, table, audit, view and reason, with its text."""

from __future__ import annotations

import pytest

from tests.unit.repo.generated import GENERATED, page
from tests.unit.repo.pages import REFERENCE
from tests.unit.repo.settings_reference import settings

MOST_CHARS = 160


@pytest.mark.parametrize("name", GENERATED)
def test_the_page_is_that_of_the_code(name: str) -> None:
    text = (REFERENCE / f"{name}.md").read_text("utf-8")
    assert text == page(name), "run: python -m tests.unit.repo.generated"


def test_every_setting_has_one_short_text() -> None:
    texts = {one.key: one.text.replace("``", "`") for rows in settings().values() for one in rows}
    assert {key: len(text) for key, text in texts.items() if not 0 < len(text) <= MOST_CHARS} == {}
