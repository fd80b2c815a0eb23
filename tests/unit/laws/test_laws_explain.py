"""The words that administrators read."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import yaml

from quotaplane.laws import explain, get_law, one_group
from quotaplane.laws.explain import short

CASES = yaml.safe_load(Path(__file__).with_name("explained.yaml").read_text())


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["given"]))
def test_what_is_said_of_each_broker(case: dict[str, Any]) -> None:
    given = {"quota": 100, "law": "max_min", "options": {}} | case["given"]
    law = get_law(given.pop("law"), given.pop("options"))
    problem = one_group(given.pop("quota"), **given)
    expected = []
    for line in case["says"]:
        count, _, text = line.rpartition(" x ")
        expected += [text] * int(count or 1)
    assert explain(problem, law(problem)) == expected


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0.0, "0"),
        (33.300000000000004, "33.3"),
        (80.0, "80"),
        (9.999, "10"),
        (999.96, "1000"),
        (104_857_600.0, "104857600"),
        (0.5, "0.5"),
        (0.1 + 0.2, "0.3"),
        (0.012345, "0.0123"),
        (1.25e-7, "1.25e-07"),
        (1e18, "1e+18"),
        (math.inf, "inf"),
    ],
)
def test_numbers_are_short(number: float, text: str) -> None:
    assert short(number) == text
