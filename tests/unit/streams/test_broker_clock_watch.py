"""One broker's clock is wrong: the job names it, while the reports of all others are used."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from quotaplane.streams.quota.report_watch import Arrivals, ReportWatch
from tests.unit.agents.condition_cases import Printed

INTERVAL_S = 5.0


def said(
    ages_s: Callable[[int], dict[str, float]], seconds: int = 60, used: int = 20
) -> tuple[list[tuple[int, str, str]], ReportWatch]:
    """The lines, with their times, if in every interval these reports have other times, and so
    many others are used.
    """
    watch, heard, lines = ReportWatch(INTERVAL_S), Printed(), list[tuple[int, str, str]]()
    for now_s in range(0, seconds, int(INTERVAL_S)):
        late = ages_s(now_s)
        rejected = {
            "stale": sum(age_s > 0 for age_s in late.values()),
            "future": sum(age_s < 0 for age_s in late.values()),
        }
        watch.clocks.note(float(now_s), late)
        arrivals = Arrivals(used, rejected, ages_s=late)
        heard.now_s = now_s
        watch.round_ended(float(now_s), arrivals, heard.conditions)
        lines += [(now_s, *line) for line in heard.lines()]
    return lines, watch


@pytest.mark.parametrize(
    ("age_s", "off"),
    [
        (3600.4, "b7 is 3600 s behind this host's"),
        (11.0, "b7 is 11 s behind this host's"),
        (-3600.0, "b7 is 3600 s ahead of this host's"),
    ],
)
def test_a_broker_whose_reports_stay_as_old_is_named_once(age_s: float, off: str) -> None:
    ((at_s, kind, text),), watch = said(lambda now_s: {"b7": age_s})
    assert (at_s, kind) == (10, "warning")
    assert text.startswith(
        f"wrong clocks: the clock of {off}. Reports more than limits.lease_s behind, "
    )
    assert "Compare `date -u` on both hosts" in text
    assert watch.clocks.wrong() == {"b7": age_s}


def test_its_end_is_said() -> None:
    lines, watch = said(lambda now_s: {"b7": 3600.0} if now_s < 30 else {})
    assert lines[1:] == [(45, "recovered", "wrong clocks: over after 35 s")]
    assert watch.clocks.wrong() == {}


def test_a_clock_that_is_set_back_by_an_hour_while_the_broker_runs() -> None:
    lines, _ = said(lambda now_s: {"b7": 3600.0} if now_s >= 30 else {})
    assert [line[:2] for line in lines] == [(40, "warning")]


def test_a_broker_that_catches_up_has_no_wrong_clock() -> None:
    lines, watch = said(lambda now_s: {"b7": 600.0 - 9.0 * now_s})
    assert (lines, watch.clocks.wrong()) == ([], {})


@pytest.mark.parametrize("round_s", [2, 12, 25])
def test_ages_that_vary_by_an_interval_are_of_a_clock_and_others_are_not(round_s: int) -> None:
    """The newest report is up to an interval old when it is read. Named is the least difference."""
    for varies_s, named in ((INTERVAL_S, {"b7": 60.0}), (2 * INTERVAL_S, {})):
        watch = ReportWatch(INTERVAL_S)
        for turn in range(30):
            watch.clocks.note(float(round_s * turn), {"b7": 60.0 + varies_s * (turn % 2)})
        assert watch.clocks.wrong() == named


def test_one_report_that_came_late_is_no_wrong_clock() -> None:
    assert said(lambda now_s: {"b7": 30.0} if now_s == 20 else {})[0] == []


def test_the_worst_come_first_and_few_are_named() -> None:
    ages_s = {f"b{n}": -100.0 - n for n in range(7)} | {"b9": 20.0}
    ((_, _, text),), watch = said(lambda now_s: ages_s, used=100)
    assert text.startswith(
        "wrong clocks: the clock of b6 is 106 s ahead of, b5 is 105 s ahead of, "
    )
    assert " and 3 more this host's" in text
    assert [*watch.clocks.wrong()][-1] == "b9"


def test_invented_names_fill_neither_memory_nor_the_journal() -> None:
    lines, watch = said(lambda now_s: {f"x{now_s}-{n}": 99.0 for n in range(900)}, used=10**5)
    assert (lines, watch.clocks.wrong()) == ([], {})
    names = {f"x{n}": 99.0 for n in range(5000)}
    lines, watch = said(lambda now_s: names, seconds=300, used=10**6)
    assert len(watch.clocks.wrong()) == 1000
    assert [line[:2] for line in lines] == [(10, "warning")]


def test_where_no_report_is_used_another_line_says_it() -> None:
    lines, _ = said(lambda now_s: {"b7": 3600.0}, used=0)
    assert not [text for _, _, text in lines if text.startswith("wrong clocks")]
