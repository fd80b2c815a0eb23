"""The queries of docs/reference/history.md, and the history that tests ask."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from quotaplane.query.usage_by_day import roll_up
from quotaplane.settings import History
from tests.unit.repo.pages import ROOT
from tests.unit.sim.recorded_history import at, healthy

PAGE: Final = ROOT / "docs/reference/history.md"
_SECTION: Final = re.compile(r"^### Twenty questions\n(.*?)^#", re.MULTILINE | re.DOTALL)
_QUESTION: Final = re.compile(
    r"^\*\*(\d+)\. (.+?)\*\*[^\n]*\n\n((?:    [^\n]*\n|\n)+)", re.MULTILINE
)


class Question(NamedTuple):
    """A question of the page."""

    number: int
    text: str
    sql: str


def questions() -> list[Question]:
    """The questions of the page, in order."""
    section = _SECTION.search(PAGE.read_text("utf-8"))
    assert section is not None
    found = _QUESTION.findall(section[1])
    return [Question(int(number), text, sql) for number, text, sql in found]


def recorded_day(history: History) -> None:
    """A healthy history, with the amounts of its day."""
    healthy(history)
    roll_up(history, at(86_400))
