"""Labels of decisions: each one that is given is explained, and each explained one given."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import quotabalance
from quotabalance.planning.decisions import LABELS
from tests.unit.repo.pages import ROOT

PACKAGE = Path(quotabalance.__file__).parent
PLANNING = PACKAGE / "planning"
PLACES = {"Move": 4, "Split": 3, "Skip": 1}
"""Which argument the label is."""


def test_labels_in_the_code_are_explained() -> None:
    given = {
        (path.name, label.value)
        for path in PACKAGE.rglob("*.py")
        for call in calls(path)
        for label in labels(call)
        if isinstance(label, ast.Constant)
    }
    assert {label for _, label in given} <= LABELS.keys()
    assert len(given) > 30


def test_explained_labels_are_in_the_code() -> None:
    texts = "".join(
        path.read_text() for path in PACKAGE.rglob("*.py") if path.name != "decisions.py"
    )
    assert [label for label in LABELS if f'"{label}"' not in texts] == []


def test_labels_of_quotaplane_are_in_the_documentation() -> None:
    """docs/explain/balance.md has rows for exactly the labels outside ``quotabalance/stock/``."""
    ours = "".join(
        path.read_text() for path in PLANNING.glob("*.py") if path.name != "decisions.py"
    )
    page = (ROOT / "docs/explain/balance.md").read_text()
    rows = set(re.findall(r"^\| (\w+) \|", page.partition("## Labels")[2], re.MULTILINE))
    assert rows - {"label"} == {label for label in LABELS if f'"{label}"' in ours}


def calls(path: Path) -> Iterator[ast.Call]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node


def labels(call: ast.Call) -> Iterator[ast.expr]:
    assert isinstance(call.func, ast.Name)
    place = PLACES.get(call.func.id)
    if place is not None and len(call.args) > place:
        yield call.args[place]
