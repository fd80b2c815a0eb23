"""The worked numbers of docs/explain/laws.md are what the code gives."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import groupby

import pyarrow as pa
import pytest

from quotaplane.groups.hierarchy import parents_of
from quotaplane.laws import get_law
from tests.unit.laws.laws_cases import Broker, problem
from tests.unit.laws.tree_cases import INF, Node, solve
from tests.unit.repo.pages import ROOT

PAGE = ROOT / "docs/explain/laws.md"
Row = dict[str, str]


def tables(*columns: str) -> Iterator[list[Row]]:
    """The page's tables that have all of these columns."""
    lines = PAGE.read_text().splitlines()
    for is_table, run in groupby(lines, key=lambda line: line.startswith("|")):
        if is_table:
            head, _, *rows = ([cell.strip() for cell in line.split("|")[1:-1]] for line in run)
            if set(columns) <= set(head):
                yield [dict(zip(head, row, strict=True)) for row in rows]


def number(text: str) -> float:
    return {"\u221e": INF, "none": INF}.get(text) or float(text)


def numbers(text: str, count: int, default: float) -> list[float]:
    return [number(part) for part in text.split(" / ")] if text else [default] * count


DIVISIONS = [row for table in tables("quota", "demand", "limits") for row in table]


@pytest.mark.parametrize("row", DIVISIONS, ids=lambda row: row["limits"])
def test_limits_by_max_min(row: Row) -> None:
    count = len(row["demand"].split(" / "))
    defaults = {"demand": 0.0, "weight": 1.0, "floor": 0.0, "ceiling": INF, "priority": 0}
    given = (numbers(row.get(name, ""), count, value) for name, value in defaults.items())
    group = (float(row["quota"]), [Broker(*one) for one in zip(*given, strict=True)])
    limits = get_law("max_min")(problem([group])).limits.tolist()
    for limit, text in zip(limits, row["limits"].split(" / "), strict=True):
        assert limit == pytest.approx(float(text), rel=2e-4 if "." in text else 1e-12)


FORESTS = [
    list(rows)
    for table in tables("group", "brokers", "may share")
    for is_group, rows in groupby(table, key=lambda row: row["group"] != "")
    if is_group
]


def broker(text: str) -> Broker:
    terms = dict(part.split() for part in text.split(", "))
    demand, floor = float(terms["wants"]), float(terms.get("floor", 0))
    return Broker(demand, floor=floor, ceiling=float(terms.get("ceiling", INF)))


@pytest.mark.parametrize("rows", FORESTS)
def test_shares_of_groups_in_trees(rows: list[Row]) -> None:
    parent = parents_of(pa.array([row["group"] for row in rows])).tolist()
    forest = [
        Node(
            above,
            number(row["quota"] or "none"),
            tuple(map(broker, filter(None, row["brokers"].split(" / ")))),
            float(row["weight"] or 1),
            float(row["floor"] or 0),
        )
        for above, row in zip(parent, rows, strict=True)
    ]
    expected = [float(row["may share"] or 0) for row in rows]
    assert solve(forest, parent) == pytest.approx(expected, rel=1e-12)


def test_the_page_has_numbers_to_look_at() -> None:
    assert len(DIVISIONS) >= 12
    assert len(FORESTS) >= 5
    assert all(math.isfinite(float(row["quota"])) for row in DIVISIONS)
