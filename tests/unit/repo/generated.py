"""The ends of pages that are made from the code, behind a mark.

``python -m tests.unit.repo.generated`` writes them; test_generated.py compares.
"""

from __future__ import annotations

from typing import Final

from tests.unit.repo import cli_reference, history_reference, settings_reference
from tests.unit.repo.pages import MARK, REFERENCE

GENERATED: Final = {
    "cli": cli_reference.reference,
    "configuration": settings_reference.reference,
    "history": history_reference.reference,
}


def page(name: str) -> str:
    """A page as it should be."""
    head, mark, _ = (REFERENCE / f"{name}.md").read_text("utf-8").partition(MARK)
    assert mark
    return f"{head}{mark}\n{GENERATED[name]()}"


def main() -> None:
    """Write all of them."""
    for name in GENERATED:
        (REFERENCE / f"{name}.md").write_text(page(name), "utf-8")


if __name__ == "__main__":
    main()
