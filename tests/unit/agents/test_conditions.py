"""When a condition prints a line: it begins, is about more, goes on, is over, comes back."""

from __future__ import annotations

from collections import Counter

import pytest

from quotaplane.agents.conditions import Condition
from quotaplane.errors import QuotaplaneError
from quotaplane.metrics.of_jobs import ALL_CONDITIONS
from tests.unit.agents.condition_cases import Printed

PLAIN = Condition("slow", "it is slow")
REMINDED = PLAIN._replace(remind_s=600.0)
FORGOTTEN = PLAIN._replace(forget_s=60.0, remind_s=60.0)


@pytest.mark.parametrize(
    ("what", "stated", "lines"),
    [
        (PLAIN, {0: "a", 9: "a", 5000: "a"}, {0: "slow: x"}),
        (PLAIN, {0: "a", 9: "", 10: ""}, {0: "slow: x", 9: "slow: over after 9 s"}),
        (PLAIN, {0: "a", 9: "b", 59: "ab"}, {0: "slow: x"}),
        (PLAIN, {0: "a", 60: "ab", 61: "b"}, {0: "slow: x", 60: "slow: still: x"}),
        # A condition that comes and goes has one line a minute, and one at its end if it had one.
        (PLAIN, {0: "a", 1: "", 2: "a", 3: ""}, {0: "slow: x", 1: "slow: over after 1 s"}),
        (
            PLAIN,
            {0: "a", 1: "", 2: "a", 60: "a", 90: ""},
            {0: "slow: x", 1: "slow: over after 1 s", 60: "slow: x", 90: "slow: over after 88 s"},
        ),
        (REMINDED, {0: "a", 599: "a", 600: "a", 1199: "a"}, {0: "slow: x", 600: "slow: still: x"}),
        (FORGOTTEN, {0: "a", 59: "a", 119: "-"}, {0: "slow: x", 119: "slow: over after 119 s"}),
        # The clock was set back: the condition is neither lost nor said again and again.
        (
            PLAIN,
            {9000: "a", 10: "b", 11: "b", 12: ""},
            {9000: "slow: x", 10: "slow: still: x", 12: "slow: over after 0 s"},
        ),
    ],
)
def test_lines(what: Condition, stated: dict[int, str], lines: dict[int, str]) -> None:
    heard, said = Printed(), dict[int, str]()
    for now_s, about in stated.items():
        heard.now_s = now_s
        if about != "-":
            heard.conditions.set(what, about, "x")
        if found := heard.lines():
            ((_, said[now_s]),) = found
    assert said == lines


def test_failures_of_items_are_one_condition_and_are_counted() -> None:
    heard = Printed()
    note = heard.conditions.note
    note(PLAIN, "a", QuotaplaneError("no answer"))
    note(PLAIN, "b", KeyError("k"))
    assert heard.conditions.active() == {"slow": ["a", "b"]}
    note(PLAIN, "a", None)
    heard.now_s = 70.0
    note(PLAIN, "b", KeyError("k"))
    heard.conditions.retain(PLAIN, "a".__eq__)
    assert heard.conditions.active() == {}
    assert heard.conditions.failures == Counter({"slow": 3})
    assert heard.lines() == [
        ("warning", "slow: a: no answer; retrying"),
        ("warning", "slow: still: b: KeyError: 'k'; retrying (2 times since the last line)"),
        ("recovered", "slow: over after 70 s (3 times)"),
    ]


def test_a_line_names_new_items_first() -> None:
    heard = Printed()
    waits = {name: f"{name} waits" for name in "abcdef"}
    heard.conditions.set_each(PLAIN, waits)
    heard.now_s = 60.0
    heard.conditions.set_each(PLAIN, waits | {"g": "g waits"})
    declared = PLAIN._replace(text="{} wait")
    heard.conditions.set(declared, "ab")
    heard.now_s = 120.0
    heard.conditions.set(declared, "abc")
    assert [line for _, line in heard.lines()] == [
        "slow: a waits, b waits, c waits, d waits, e waits and 1 more",
        "slow: still: g waits, a waits, b waits, c waits, d waits and 2 more",
        "slow: 'a', 'b' wait",
        "slow: still: 'c', 'a', 'b' wait",
    ]


def test_a_flood_of_names_is_bounded() -> None:
    heard = Printed()
    for number in range(10_100):
        heard.conditions.note(PLAIN, str(number), "x")
    assert len(heard.conditions.items(PLAIN)) == 10_000
    assert len(heard.lines()) == 1


def test_names_are_words_that_mean_one_thing() -> None:
    names = [each.name for each in ALL_CONDITIONS]
    assert len(names) == len(set(names)) > 20
    assert not [name for name in names if not name.replace("_", " ").replace(" ", "").isalpha()]
