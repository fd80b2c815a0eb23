"""The words that operators read."""

from __future__ import annotations

import math
from typing import Any

import pytest

from quotaplane.laws import explain, get_law, one_group
from quotaplane.laws.explain import short

INF = math.inf


def words(law: str, quota: float, options: dict[str, Any] | None = None, **given: Any) -> list[str]:
    problem = one_group(quota, **given)
    return explain(problem, get_law(law, options)(problem))


@pytest.mark.parametrize(
    ("quota", "given", "expected"),
    [
        (
            100,
            {"demand": [INF] * 3},
            ["saturated at 33.3; fair share of 100 among 3"] * 3,
        ),
        (
            100,
            {"demand": [500, INF, 5, 15]},
            [
                "saturated at 40, wants 500; fair share of 80 left over by 2 satisfied brokers",
                "saturated at 40; fair share of 80 left over by 2 satisfied brokers",
                "satisfied: has the 5 it wants",
                "satisfied: has the 15 it wants",
            ],
        ),
        (
            90,
            {"demand": [INF, INF, 15], "weight": [2, 1, 1]},
            [
                "saturated at 50; fair share of 75 left over by 1 satisfied broker, weight 2 of 3",
                "saturated at 25; fair share of 75 left over by 1 satisfied broker, weight 1 of 3",
                "satisfied: has the 15 it wants",
            ],
        ),
        (100, {"demand": [INF]}, ["saturated at 100; the whole quota of 100"]),
        (
            100,
            {"demand": [INF, 40]},
            [
                "saturated at 60; all of 60 left over by 1 satisfied broker",
                "satisfied: has the 40 it wants",
            ],
        ),
        (
            33,
            {"demand": [10, 21]},
            [
                "satisfied: wants 10, has 11 with its share of the spare",
                "satisfied: wants 21, has 22 with its share of the spare",
            ],
        ),
        (
            100,
            {"demand": [500, 10, INF, INF], "floor": [60, 20, 0, 0]},
            [
                "floor 60: guaranteed whatever its demand, wants 500; its fair share is no more",
                "floor 20: guaranteed whatever its demand, it wants 10",
                "saturated at 10; fair share of 20 left over by 2 floors",
                "saturated at 10; fair share of 20 left over by 2 floors",
            ],
        ),
        (
            100,
            {"demand": [0, 10], "floor": [20, 0]},
            [
                "floor 20: guaranteed whatever its demand, has 55 with its share of the spare",
                "satisfied: wants 10, has 45 with its share of the spare",
            ],
        ),
        (
            100,
            {"demand": [500, 500, 5], "floor": [100, 50, 0]},
            [
                "floors add up to 150, the quota is 100: cut to 2/3",
                "floors add up to 150, the quota is 100: cut to 2/3",
                "floors add up to 150, the quota is 100: nothing left for a broker without one",
            ],
        ),
        (
            100,
            {"demand": [0, 0], "floor": [100, 37]},
            ["floors add up to 137, the quota is 100: cut to 73 %"] * 2,
        ),
        (
            100,
            {"demand": [500, INF, 5], "ceiling": [40, 10, INF], "floor": [0, 20, 0]},
            [
                "ceiling 40, wants 500",
                "ceiling 10: its floor of 20 is cut to it",
                "satisfied: wants 5, has 50 with its share of the spare",
            ],
        ),
        (
            100,
            {"demand": [10, INF], "ceiling": [20, 50]},
            ["ceiling 20: satisfied, wants 10; may have no more of the spare", "ceiling 50"],
        ),
        (
            100,
            {"demand": [70, INF, INF, 9], "priority": [2, 1, 1, 0], "floor": [0, 0, 0, 4]},
            [
                "satisfied: has the 70 it wants",
                "saturated at 13; fair share of 26 left over by 1 broker of higher priority "
                "and 1 floor",
                "saturated at 13; fair share of 26 left over by 1 broker of higher priority "
                "and 1 floor",
                "floor 4: guaranteed whatever its demand, wants 9; waits for higher priority",
            ],
        ),
        (
            100,
            {"demand": [INF, INF, 9], "priority": [1, 1, -1]},
            [
                "saturated at 50; fair share of 100 among 2",
                "saturated at 50; fair share of 100 among 2",
                "waits for higher priority: 2 brokers above -1 leave nothing of the quota of 100",
            ],
        ),
        (0, {"demand": [5]}, ["the quota is 0"]),
        (INF, {"demand": [5]}, ["unlimited: the group has no quota here"]),
        (100, {"demand": []}, []),
    ],
)
def test_max_min(quota: float, given: dict[str, Any], expected: list[str]) -> None:
    assert words("max_min", quota, **given) == expected


@pytest.mark.parametrize(
    ("law", "options", "given", "expected"),
    [
        ("static", {}, {"usage": [80, 0]}, ["even share of 100 among 2, whatever its demand"] * 2),
        (
            "static",
            {},
            {"usage": [80, 0], "weight": [3, 1]},
            [
                "share of 100 by weight, 3 of 4, whatever its demand",
                "share of 100 by weight, 1 of 4, whatever its demand",
            ],
        ),
        (
            "pip82",
            {},
            {"usage": [10, 50, 30]},
            [f"uses {usage}, plus all of the 10 left over" for usage in (10, 50, 30)],
        ),
        (
            "pip82",
            {"residual": "proportional"},
            {"usage": [10, 50, 30]},
            [
                "uses 10, plus 1.11 of the 10 left over",
                "uses 50, plus 5.56 of the 10 left over",
                "uses 30, plus 3.33 of the 10 left over",
            ],
        ),
        (
            "pip82",
            {},
            {"usage": [80, 20], "limit": [80, 20]},
            [
                "uses 80; nothing of the quota of 100 is left over",
                "throttled at 20: steals up to 50, half-way to a more dominant broker",
            ],
        ),
        (
            "pip82",
            {},
            {"usage": [120, 80]},
            [
                "all use 200 of 100: reduced from 120 to 60",
                "all use 200 of 100: reduced from 80 to 40",
            ],
        ),
        (
            "pip82",
            {"reduction": "dominant"},
            {"usage": [80, 30]},
            [
                "all use 110 of 100: reduced from 80 to 70",
                "all use 110 of 100: keeps its 30, others use more",
            ],
        ),
        (
            "proportional",
            {},
            {"usage": [40, 20]},
            [
                "in proportion to usage: 40 of 60, of the quota of 100",
                "in proportion to usage: 20 of 60, of the quota of 100",
            ],
        ),
        (
            "proportional",
            {},
            {"usage": [50, 0]},
            [
                "in proportion to usage: 50 of 50, of the quota of 100",
                "uses 0 of 50: the minimum of 1",
            ],
        ),
        ("proportional", {}, {"usage": [0]}, ["nobody uses anything: the whole quota of 100"]),
    ],
)
def test_the_other_laws(
    law: str, options: dict[str, Any], given: dict[str, Any], expected: list[str]
) -> None:
    assert words(law, 100, options, **given) == expected


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
        (INF, "inf"),
    ],
)
def test_numbers_are_short(number: float, text: str) -> None:
    assert short(number) == text
