"""docs/measured/nightly.md, made from the record."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.nightly.parts import PARTS, Part
from tests.nightly.record import Record, Row, Rows

_TOP: Final = """\
# Nightly tests

`make nightly` runs what takes too long for `make test`, and writes this page. It goes on where the
last night stopped, until `HOURS` (8) are over; `PARTS="fuzz outside"` runs only these. Parts take
turns. An item is a file, a command, or a kind of input; [the table](nightly.csv) has a row for
each. A part with new seeds or inputs never ends; an item of the others runs again when the code
changed.

| part | runs | of its items passed at their last run | run in all nights | hours |
|---|---|---|---|---|
"""


def page(rows: Rows) -> str:
    """The page for this record."""
    lines = [_line(part, [row for row in rows.values() if row.part == part.name]) for part in PARTS]
    failed = [row for row in rows.values() if not row.passed]
    return "\n".join([_TOP + "\n".join(lines), "", *_failed(failed)]) + "\n"


def _line(part: Part, rows: list[Row]) -> str:
    passed = f"{sum(row.passed for row in rows)} of {len(part.items)}"
    waiting = len(set(part.items).difference(row.item for row in rows))
    passed += f", {waiting} not run yet" if waiting else ""
    count = f"{sum(row.count for row in rows):,} {part.unit}"
    hours = f"{sum(row.minutes for row in rows) / 60:.1f}"
    return f"| `{part.name}` | {part.does} | {passed} | {count} | {hours} |"


def _failed(rows: list[Row]) -> Iterator[str]:
    if not rows:
        yield "No item failed at its last run."
        return
    yield "Failed at their last run:"
    yield ""
    for row in rows:
        yield f"* `{row.part}`: `{row.item}`, {row.date}, commit `{row.commit}`"


def page_file(record: Record) -> Path:
    """The page beside its record."""
    return record.file.with_suffix(".md")
