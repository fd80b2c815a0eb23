"""Warnings about reports that stop coming, can't be used, or have another clock's times."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quotaplane.errors import NoUsableReportsError
from quotaplane.streams.quota.report_watch import Arrivals, ReportWatch
from tests.unit.agents.condition_cases import Printed

INTERVAL_S = 5.0
GOOD = Arrivals(used=3)
NONE = Arrivals()


def stale(age_s: float, count: int = 3) -> Arrivals:
    return Arrivals(rejected={"stale": count}, age_s=age_s)


def said(
    watch: ReportWatch, rounds: Iterable[tuple[float, Arrivals]], heard: Printed | None = None
) -> list[tuple[float, str]]:
    """Each line as ``kind: text``, with when it was said."""
    lines, heard = [], heard or Printed()
    for now_s, arrivals in rounds:
        heard.now_s = now_s
        watch.clocks.note(now_s, arrivals.ages_s)
        watch.round_ended(now_s, arrivals, heard.conditions)
        lines += [(now_s, f"{kind}: {text}") for kind, text in heard.lines()]
    return lines


def every_second(seconds: int, at: dict[int, Arrivals], begin: int = 0) -> list:
    """A round a second; those that are not in ``at`` read nothing."""
    return [(float(now), at.get(now, NONE)) for now in range(begin, begin + seconds)]


def each_interval(seconds: int, arrivals: Arrivals, begin: int = 0) -> list:
    """A round a second; reports come once an interval."""
    times = range(begin, begin + seconds, int(INTERVAL_S))
    return every_second(seconds, dict.fromkeys(times, arrivals), begin)


def test_silence_is_said_once_and_so_is_its_end() -> None:
    rounds = every_second(60, {0: GOOD, 5: GOOD, 50: GOOD})
    (warned_s, warning), (again_s, again) = said(ReportWatch(INTERVAL_S), rounds)
    assert (warned_s, again_s) == (20, 50)
    assert warning.startswith("warning: no reports: none for 15 s;")
    assert again == "recovered: no reports: over after 30 s"


@pytest.mark.parametrize("rare", [GOOD, stale(11.0)])
def test_conditions_that_come_and_go_are_told_once_a_minute(rare: Arrivals) -> None:
    """Brokers report every 20 s, and the settings say 5; of every other interval none is usable."""
    at = {now: rare if now % 40 else GOOD for now in range(0, 3600, 20 if rare is GOOD else 5)}
    lines = said(ReportWatch(INTERVAL_S), every_second(3600, at))
    warned = [now_s for now_s, line in lines if line.startswith("warning: ") and "10 s" not in line]
    assert 30 <= len(warned) <= 60
    assert all(later - earlier >= 60 for earlier, later in pairwise(warned))


def test_a_job_that_never_gets_a_report_says_so() -> None:
    ((now_s, line),) = said(ReportWatch(INTERVAL_S), every_second(60, {}))
    assert now_s == 15
    assert line.startswith("warning: no reports: none since the start 15 s ago;")


@pytest.mark.parametrize(
    ("age_s", "reason", "says"),
    [
        (11.3, "stale", r"11\.3 s behind this host's clock .* this host's clock is ahead, "),
        (-40.2, "future", r"40\.2 s ahead of this host's clock .* this host's clock is behind, "),
    ],
)
def test_a_wrong_clock_is_said_after_three_intervals_with_the_difference(
    age_s: float, reason: str, says: str
) -> None:
    late = Arrivals(rejected={reason: 3}, age_s=age_s)
    watch, heard = ReportWatch(INTERVAL_S), Printed()
    ((now_s, line),) = said(watch, each_interval(60, late), heard)
    assert now_s == 15
    assert line.startswith(
        f"warning: time of reports: 0 of 12 reports could be used for 15 s: {reason}=12"
    )
    assert re.search(says, line), line
    ((_, again),) = said(watch, each_interval(60, GOOD, begin=60), heard)
    assert again == "recovered: time of reports: over after 45 s"


@given(st.floats(60.0, 86_400.0), st.floats(1.0, 4.0), st.floats(1.5, 100.0))
def test_a_backlog_is_not_called_a_clock(oldest_s: float, round_s: float, speed: float) -> None:
    """``speed``: seconds of reports that the job works off in a second."""
    watch, now_s, rounds = ReportWatch(INTERVAL_S, 3), 0.0, []
    while (age_s := oldest_s - (speed - 1.0) * now_s) > 10.0 and len(rounds) < 300:
        rounds.append((now_s, stale(age_s, count=100)))
        now_s += round_s
    rounds.append((now_s, GOOD))
    lines = [line for _, line in said(watch, rounds)]
    assert not any("clock" in line for line in lines), lines
    if any(line.startswith("warning: ") and " 0 of" in line for line in lines):
        assert any("They are a backlog" in line for line in lines)
    watch.check()  # nothing ends for it


def test_a_backlog_that_turns_out_to_be_a_clock_is_said_then() -> None:
    backlog = [(float(now), stale(3600.0 - 100 * now)) for now in range(30)]
    clock = each_interval(60, stale(11.0), begin=30)
    lines = said(ReportWatch(INTERVAL_S), [*backlog, *clock])
    assert [now_s for now_s, _ in lines] == [15, 45, 45]
    assert "backlog: 3600 s old at first, 2100 s now" in lines[0][1]
    assert lines[1][1] == "recovered: backlog of reports: over after 30 s"
    assert "11.0 s behind this host's clock" in lines[2][1]


def test_reports_of_another_format_are_said_with_where_they_are() -> None:
    junk = Arrivals(rejected={"not_protobuf": 2, "empty": 1}, examples=("r/0@7", "r/1@9"))
    lines = said(ReportWatch(INTERVAL_S), each_interval(60, junk))
    (line,) = [line for now_s, line in lines if now_s == 15]
    assert line == (
        "warning: unusable reports: 0 of 12 reports could be used for 15 s: not_protobuf=8 empty=4"
        ", for example at r/0@7, r/1@9. For the reasons see the table rejected_reports"
    )


def test_a_job_ends_after_as_many_intervals_as_it_is_told() -> None:
    watch = ReportWatch(INTERVAL_S, 6)
    said(watch, each_interval(30, stale(11.0)))
    watch.check()
    said(watch, each_interval(1, stale(11.0), begin=30))
    with pytest.raises(NoUsableReportsError, match=r"0 of 21 .*11\.0 s behind.*stop_when_unusable"):
        watch.check()
    assert NoUsableReportsError.exit_code == 5


def test_one_usable_report_begins_the_count_anew() -> None:
    watch = ReportWatch(INTERVAL_S, 6)
    for turn in range(10):
        said(watch, each_interval(25, stale(11.0), begin=30 * turn))
        said(watch, [(30.0 * turn + 25, GOOD)])
    watch.check()


def test_silence_ends_no_job() -> None:
    watch = ReportWatch(INTERVAL_S, 3)
    said(watch, [(0.0, stale(11.0)), *every_second(600, {}, begin=1)])
    watch.check()


def test_a_hundred_and_one_junk_messages_a_minute_are_one_warning() -> None:
    """They ended the job once."""
    junk = Arrivals(used=3, rejected={"not_protobuf": 9}, examples=("r/0@7",))
    watch, heard = ReportWatch(INTERVAL_S, 3), Printed()
    ((now_s, line),) = said(watch, each_interval(3600, junk), heard)
    watch.check()
    assert now_s == 10
    assert line.startswith(
        "warning: refused reports: 27 of 36 reports in 10 s could not be used: not_protobuf=27, "
        "for example at r/0@7"
    )
    ((now_s, line),) = said(watch, each_interval(3600, GOOD, begin=3600), heard)
    assert 3600 + 50 <= now_s <= 3600 + 80
    assert line == f"recovered: refused reports: over after {now_s - 10:.0f} s (6480 times)"


def test_late_reports_after_a_pause_are_no_junk_but_a_broker_with_a_wrong_clock_is() -> None:
    one_late = Arrivals(used=2, rejected={"stale": 1}, age_s=11.5)
    pause = [(0.0, stale(30.0, count=100)), *each_interval(60, GOOD, begin=1)]
    assert said(ReportWatch(INTERVAL_S), pause) == []
    ((now_s, line),) = said(ReportWatch(INTERVAL_S), each_interval(60, one_late))
    assert now_s == 20
    assert line.endswith(
        "refused for their time are 11.5 s behind this host's clock: compare clocks"
    )


def test_reports_sent_twice_are_no_junk() -> None:
    twice = Arrivals(used=3, rejected={"duplicate": 30, "outdated": 3})
    assert said(ReportWatch(INTERVAL_S), each_interval(60, twice)) == []


# One broker's clock is wrong, while the reports of all others are used


def with_clocks(
    ages_s: Callable[[int], dict[str, float]], seconds: int = 60, used: int = 20
) -> tuple[list[tuple[float, str]], ReportWatch]:
    """The lines if in every interval these reports have other times, and others are used."""
    watch, rounds = ReportWatch(INTERVAL_S), []
    for now_s in range(0, seconds, int(INTERVAL_S)):
        late = ages_s(now_s)
        behind = sum(age_s > 0 for age_s in late.values())
        rejected = {"stale": behind, "future": len(late) - behind}
        rounds.append((float(now_s), Arrivals(used, rejected, ages_s=late)))
    return said(watch, rounds), watch


@pytest.mark.parametrize(
    ("age_s", "off"),
    [
        (3600.4, "b7 is 3600 s behind this host's"),
        (11.0, "b7 is 11 s behind this host's"),
        (-3600.0, "b7 is 3600 s ahead of this host's"),
    ],
)
def test_a_broker_whose_reports_stay_as_old_is_named_once(age_s: float, off: str) -> None:
    ((at_s, line),), watch = with_clocks(lambda now_s: {"b7": age_s})
    assert at_s == 10
    assert line.startswith(f"warning: wrong clocks: the clock of {off}. Reports more than ")
    assert watch.clocks.wrong() == {"b7": age_s}


def test_its_end_is_said() -> None:
    lines, watch = with_clocks(lambda now_s: {"b7": 3600.0} if now_s < 30 else {})
    assert lines[1:] == [(45, "recovered: wrong clocks: over after 35 s")]
    assert watch.clocks.wrong() == {}


def test_a_broker_that_catches_up_has_no_wrong_clock() -> None:
    lines, watch = with_clocks(lambda now_s: {"b7": 600.0 - 9.0 * now_s})
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
    assert with_clocks(lambda now_s: {"b7": 30.0} if now_s == 20 else {})[0] == []


def test_the_worst_come_first_and_few_are_named() -> None:
    ages_s = {f"b{n}": -100.0 - n for n in range(7)} | {"b9": 20.0}
    ((_, text),), watch = with_clocks(lambda now_s: ages_s, used=100)
    assert text.startswith(
        "warning: wrong clocks: the clock of b6 is 106 s ahead of, b5 is 105 s ahead of, "
    )
    assert " and 3 more this host's" in text
    assert [*watch.clocks.wrong()][-1] == "b9"


def test_invented_names_fill_neither_memory_nor_the_journal() -> None:
    lines, watch = with_clocks(
        lambda now_s: {f"x{now_s}-{n}": 99.0 for n in range(900)}, used=10**5
    )
    assert (lines, watch.clocks.wrong()) == ([], {})
    names = {f"x{n}": 99.0 for n in range(5000)}
    lines, watch = with_clocks(lambda now_s: names, seconds=300, used=10**6)
    assert len(watch.clocks.wrong()) == 1000
    ((at_s, line),) = lines
    assert at_s == 10
    assert line.startswith("warning: wrong clocks")


def test_where_no_report_is_used_another_line_says_it() -> None:
    lines, _ = with_clocks(lambda now_s: {"b7": 3600.0}, used=0)
    assert not [text for _, text in lines if "wrong clocks" in text]
