"""Docstrings name a thing or begin with a verb, in the glossary's words.

The glossary is docs/reference/glossary.md.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.unit.repo.pages import ROOT

PACKAGES: Final = ROOT / "pipelines"
_ROOMS: Final = [
    *sorted(
        folder
        for package in PACKAGES.glob("quota*")
        for folder in [package, *package.iterdir()]
        if (folder / "__init__.py").exists()
    ),
    *(ROOT / name for name in ("tests", "benchmarks", "jobs", "examples")),
]
_BEGINNING: Final = re.compile(
    r"(?:What(?!-if)|Who|Whoever|Whom|Whose|Whatever|Of|So (?:many|much|long|often|far)|For so)\b"
)
_WORD: Final = re.compile(r"\b(?:told|tells?)\b", re.IGNORECASE)
_CODE: Final = re.compile(r"``.*?``|`.*?`|\".*?\"|^ *(?:>>>|\.\.\.) .*?(?=\n\s*\n|\Z)", re.S | re.M)
_BESIDE_SPARK: Final = ("streams", "wire", "job")
"""Rooms in which the word "operator" is Spark's."""
_PERSON: Final = re.compile(r"(?<!Spark's )(?<!stateful )\boperators?\b", re.IGNORECASE)


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of all docstrings, also those after constants, fields and attributes.

    >>> list(docstrings('"Module."\\nA = 1\\n"Constant."\\nclass B:\\n    "Class."'))
    [(1, 'Module.'), (3, 'Constant.'), (5, 'Class.')]
    """
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        for each in body if isinstance(body, list) else []:
            match each:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    yield each.lineno, text.strip()


def flaw(text: str) -> str | None:
    """The first flaw of a docstring.

    >>> flaw("What a lease is.")
    "begins with 'What'"
    >>> flaw("What-if with other quotas."), flaw('Spark\\'s operator; the role "operator".')
    (None, None)
    >>> flaw("The limit that a broker was told.")
    "has the word 'told'"
    >>> flaw("A line for the operator.")
    "has the word 'operator' for an administrator"
    """
    if found := _BEGINNING.match(text):
        return f"begins with {found[0]!r}"
    prose = _CODE.sub("", text)
    if found := _WORD.search(prose):
        return f"has the word {found[0]!r}"
    if found := _PERSON.search(prose):
        return f"has the word {found[0]!r} for an administrator"
    return None


def _files(room: Path) -> list[Path]:
    """The modules of a room; of a package itself, those outside its rooms."""
    is_package = room.parent == PACKAGES
    found = room.glob("*.py") if is_package else room.rglob("*.py")
    return sorted(path for path in found if "pb" not in path.parts)


@pytest.mark.parametrize("room", _ROOMS, ids=lambda room: room.name)
def test_docstrings_are_plain(room: Path) -> None:
    written = [
        (path, line, text)
        for path in _files(room)
        for line, text in docstrings(path.read_text("utf-8"))
    ]
    assert written, "no docstring was found"
    flaws = [
        f"{path.relative_to(ROOT)}:{line}: {found}: {text.splitlines()[0]}"
        for path, line, text in written
        if (found := flaw(text)) and (room.name not in _BESIDE_SPARK or "'operator" not in found)
    ]
    assert not flaws, "\n" + "\n".join(flaws)
