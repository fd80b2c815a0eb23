"""docs/reference/configuration.md has every setting, and in a line what it is and who sets it."""

from __future__ import annotations

from tests.unit.repo.settings_reference import BEGIN, PAGE, reference, settings

MOST_CHARS = 160


def test_the_page_has_all_settings() -> None:
    _, begin, rest = PAGE.read_text("utf-8").partition(BEGIN)
    assert begin + rest == reference(), "run: python -m tests.unit.repo.settings_reference"


def test_every_setting_has_one_short_text() -> None:
    texts = {one.key: one.text.replace("``", "`") for rows in settings().values() for one in rows}
    assert {key: len(text) for key, text in texts.items() if not 0 < len(text) <= MOST_CHARS} == {}
