"""Commands that a page of docs/ lets administrators run, as they are written there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Final

DOCS: Final = Path(__file__).parents[2] / "docs/operate"


def commands_of(page: str, heading: str) -> list[list[str]]:
    """The words of each command in a section's indented blocks, in their order.

    Raises:
        LookupError: the page has no such section.

    >>> commands_of("pulsar.md", "A topic per broker")[0]
    ['pulsar-admin', 'namespaces', 'create', 'public/reports']
    """
    text = (DOCS / page).read_text(encoding="utf-8")
    found = re.search(
        rf"^## {re.escape(heading)}\n(.*?)(?=^## |\Z)", text, re.DOTALL | re.MULTILINE
    )
    if found is None:
        raise LookupError(f"docs/operate/{page} has no section {heading!r}")
    whole = found[1].replace("\\\n", " ")
    lines = (line for line in whole.splitlines() if line.startswith("    "))
    return [words for line in lines if (words := shlex.split(line)) and _is_program(words[0])]


def with_name(commands: list[list[str]], name: str, other: str) -> list[list[str]]:
    """The same commands for another broker."""
    return [[word.replace(name, other) for word in words] for words in commands]


def _is_program(word: str) -> bool:
    return word.endswith(".sh") or word == "pulsar-admin"
