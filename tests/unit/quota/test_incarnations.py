"""Which incarnation of a broker counts, when another one reports in its name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from quotaplane.laws import get_law
from quotaplane.quota.brokers import Brokers
from quotaplane.quota.config import StepConfig
from quotaplane.quota.incarnations import one_incarnation
from quotaplane.quota.report_order import note_newest, order_reports
from quotaplane.quota.state import ShardState
from quotaplane.streams.refused_brokers import note_refused_brokers
from quotaplane.wire.report_own import encode_report
from quotaplane.wire.surplus_reports import surplus
from tests.unit.agents.condition_cases import Printed

NOW, SECOND = 1_700_000_000_000, 1000
CONFIG = StepConfig(law=get_law("max_min", {}), round_ms=5000.0)
FIRST, SECOND_START = NOW - 3_600_000, NOW - 1


class Rounds:
    """Rounds of one broker's reports: (start, sequence, publish time in s after ``NOW``)."""

    def __init__(self) -> None:
        self.brokers: Brokers = ShardState().brokers

    def round(self, at_s: float, *reports: tuple[int, int, float], observed: bool = False) -> Any:
        """How many reports count, are held, and are disputed."""
        now_ms = NOW + round(at_s * SECOND)
        headers = self._headers(reports)
        marked = np.full(len(reports), observed)
        if observed:
            headers = headers.append_column("observed", pa.array(marked))
        self.brokers, held, disputed, _ = one_incarnation(
            self.brokers, headers, marked, now_ms, CONFIG
        )
        kept = headers.filter(pa.array(~held & ~disputed))
        none: np.ndarray = np.zeros(len(kept), bool)
        brokers, order = order_reports(
            self.brokers, kept, none, latest_start_ms=now_ms + CONFIG.max_clock_skew_ms
        )
        self.brokers = note_newest(brokers, order, kept, none, now_ms, CONFIG.round_ms)
        return int(order.counts.sum()), int(held.sum()), int(disputed.sum())

    @staticmethod
    def _headers(reports: tuple[tuple[int, int, float], ...]) -> pa.Table:
        return pa.table(
            {
                "broker": ["b"] * len(reports),
                "started_at_ms": [start for start, _, _ in reports],
                "sequence": [number for _, number, _ in reports],
                "published_at_ms": [NOW + round(1000 * at_s) for _, _, at_s in reports],
                "uses_ids": [False] * len(reports),
                "position": [str(place) for place in range(len(reports))],
            }
        )

    @property
    def start(self) -> int:
        return int(self.brokers.started_at_ms[0])


@pytest.fixture
def rounds() -> Rounds:
    """With two rounds, 10 and 5 seconds ago, of an incarnation that counts."""
    made = Rounds()
    for at_s in (-10.0, -5.0):
        assert made.round(at_s, (FIRST, round(at_s) + 100, at_s - 1)) == (1, 0, 0)
    return made


def stock(at_s: float) -> tuple[int, int, float]:
    return 0, NOW + round(at_s * 1000), at_s


def test_a_restart_counts_once_the_broker_would_have_reported_again(rounds: Rounds) -> None:
    assert rounds.round(0, (SECOND_START, 1, -0.5)) == (0, 1, 0)
    assert rounds.round(5, (SECOND_START, 2, 4.5)) == (1, 0, 0)
    assert rounds.start == SECOND_START


def test_a_restart_after_a_pause_counts_at_once(rounds: Rounds) -> None:
    assert rounds.round(3, (SECOND_START, 1, 2.5)) == (1, 0, 0)


def test_two_quick_restarts_are_no_dispute(rounds: Rounds) -> None:
    assert rounds.round(0, (SECOND_START, 1, -0.5)) == (0, 1, 0)
    assert rounds.round(5, (NOW + 2000, 1, 4.0)) == (1, 0, 0)
    assert rounds.round(10, (NOW + 6000, 1, 9.0)) == (0, 1, 0)
    assert rounds.round(15, (NOW + 6000, 2, 14.0)) == (1, 0, 0)


def test_who_counted_before_goes_on_to_count_and_the_other_is_disputed(rounds: Rounds) -> None:
    found = []
    for number in range(8):
        at_s = 5.0 * number
        own, other = (FIRST, 100 + number, at_s - 1), (SECOND_START, number, at_s - 0.5)
        found.append(rounds.round(at_s, own, other))
    assert found == [(1, 1, 0)] * 3 + [(1, 0, 1)] * 5
    assert rounds.start == FIRST


def test_a_dispute_is_forgotten_ten_minutes_after_the_last_report(rounds: Rounds) -> None:
    for number in range(200):
        at_s = 5.0 * number
        others = [(SECOND_START, number, at_s)] if number < 40 and number % 4 == 0 else []
        rounds.round(at_s, (FIRST, 100 + number, at_s), *others)
    assert rounds.round(1000, (SECOND_START, 999, 1000)) == (0, 1, 0)


def test_while_disputed_two_missing_reports_change_nothing(rounds: Rounds) -> None:
    for number in range(5):
        rounds.round(5.0 * number, (FIRST, 100 + number, 5.0 * number), (SECOND_START, number, 0))
    assert rounds.round(34, (SECOND_START, 50, 34)) == (0, 0, 1)
    assert rounds.round(40, (SECOND_START, 51, 40)) == (1, 0, 0)


def test_old_reports_that_are_read_again_are_no_dispute(rounds: Rounds) -> None:
    old = [(FIRST, number, number - 101.0) for number in (90, 95)]
    assert rounds.round(5, (SECOND_START, 1, 4)) == (1, 0, 0)
    for number in range(2, 10):
        at_s = 5.0 * number
        assert rounds.round(at_s, *old, (SECOND_START, number, at_s)) == (1, 0, 0)


def test_late_reports_of_the_one_that_ended_are_no_dispute(rounds: Rounds) -> None:
    """They are read for five intervals beside those of the restarted broker."""
    for number in range(6):
        at_s = 5.0 * number
        late = (FIRST, 100 + number, number - 5.5)
        found = rounds.round(at_s, late, (SECOND_START, number, at_s))
        assert found == (1, 1, 0)
    assert rounds.round(30, (SECOND_START, 6, 30)) == (0, 1, 0)
    assert rounds.round(35, (SECOND_START, 7, 35)) == (1, 0, 0)


@pytest.mark.parametrize("claimed_s", [-3600.0, 29.0])
def test_a_claimed_publish_time_hides_no_dispute(rounds: Rounds, claimed_s: float) -> None:
    found = []
    for number in range(10):
        at_s = 5.0 * number
        own, other = (FIRST, 100 + number, at_s - 1), (SECOND_START, number, at_s + claimed_s)
        found.append(rounds.round(at_s, own, other)[2])
    assert found[:2] == [0, 0]
    assert found[4:] == [1] * 6


def test_a_restart_within_the_reports_of_one_round(rounds: Rounds) -> None:
    """The job was away: publish times say that one ended before the other began."""
    before = [(FIRST, 100 + number, 5.0 * number) for number in range(60)]
    after = [(SECOND_START, number, 310.0 + 5.0 * number) for number in range(40)]
    assert rounds.round(510, *before, *after) == (100, 0, 0)
    assert rounds.start == SECOND_START


def test_two_at_once_in_the_reports_of_one_round(rounds: Rounds) -> None:
    own = [(FIRST, 100 + number, 5.0 * number) for number in range(100)]
    other = [(SECOND_START, number, 20.0 * number) for number in range(25)]
    assert rounds.round(500, *own, *other) == (100, 25, 0)


def test_stock_reports_keep_their_name_from_reports_in_our_format() -> None:
    rounds = Rounds()
    rounds.round(-5, stock(-6))
    found = [
        rounds.round(5.0 * number, stock(5.0 * number - 1), (NOW, number, 5.0 * number))
        for number in range(6)
    ]
    assert found == [(1, 1, 0)] * 3 + [(1, 0, 1)] * 3


@pytest.mark.parametrize("observed", [False, True])
def test_a_stock_broker_may_begin_to_report_in_our_format(observed: bool) -> None:
    rounds = Rounds()
    rounds.round(-5, stock(-6))
    for at_s in (-4, -3, -2, -1, 0) if observed else ():
        rounds.round(at_s, stock(at_s), observed=True)
    assert rounds.round(0, (NOW - 1, 1, -0.5)) == (0, 1, 0)
    if observed:  # the enforcer observes brokers with an agent, too
        rounds.round(4, stock(4), observed=True)
    assert rounds.round(5, (NOW - 1, 2, 4.5)) == (1, 0, 0)


def test_a_broker_may_go_back_to_stock_reports(rounds: Rounds) -> None:
    assert rounds.round(0, stock(-1)) == (0, 1, 0)
    assert rounds.round(5, stock(4)) == (1, 0, 0)
    assert rounds.round(10, stock(9)) == (1, 0, 0)


def test_a_restart_with_a_clock_that_was_set_back(rounds: Rounds) -> None:
    """Its reports could be old ones until they are newer than those that counted."""
    earlier = FIRST - 1000
    assert rounds.round(0, (earlier, 1, -8)) == (0, 0, 0)
    assert rounds.round(5, (earlier, 2, -3)) == (1, 0, 0)
    assert rounds.start == earlier


def test_the_jobs_clock_was_set_back(rounds: Rounds) -> None:
    """Nothing is absent until the state has times of the new clock."""
    rounds.brokers = replace(rounds.brokers, reported_at_ms=np.array([NOW + 3_600_000]))
    assert rounds.round(0, (SECOND_START, 1, 0)) == (0, 1, 0)
    assert rounds.round(5, (FIRST, 101, 4)) == (1, 0, 0)


def test_a_start_from_the_future_counts_for_nobody(rounds: Rounds) -> None:
    """Such a one was possible before the job's clock was set back."""
    rounds.brokers = replace(rounds.brokers, started_at_ms=np.array([NOW + 3_600_000]))
    assert rounds.round(0, (FIRST, 1, 0)) == (1, 0, 0)


def test_a_stock_report_from_the_future_shuts_no_other_one_out() -> None:
    rounds = Rounds()
    ahead = NOW + 29_000
    assert rounds.round(0, (0, ahead, 29)) == (1, 0, 0)
    assert rounds.round(5, stock(4)) == (1, 0, 0)


def test_the_line_names_the_brokers() -> None:
    heard = Printed()

    def lines(now_s: float, *brokers: str, **rejected: int) -> list[str]:
        heard.now_s = now_s
        note_refused_brokers(heard.conditions, "payload", rejected, brokers)
        return [text for _, text in heard.lines()]

    (text,) = lines(0.0, "b1", "b2", two_incarnations=3, other_incarnation=9)
    assert "3 reports of a round are of a second program in the name of b1, b2. " in text
    assert lines(1.0, "b1", two_incarnations=3) == []
    assert lines(61.0, other_incarnation=9) == ["two_incarnations: over after 61 s (6 times)"]


def test_a_flood_with_a_later_start_leaves_room_for_the_newest_report_of_each_start() -> None:
    def report(start: int, number: int) -> bytes:
        return encode_report(
            broker="b",
            started_at_ms=start,
            sequence=number,
            window_ms=5000,
            groups=["g"],
            usage=np.zeros((1, 4)),
        )

    values = [report(FIRST, 1), report(FIRST, 2), *(report(NOW, n) for n in range(50))]
    size = np.full(len(values), 1 << 20)
    left_out, _ = surplus(values, np.full(len(values), NOW), size, 1 << 20)
    assert not left_out[[1, -1]].any()
    assert left_out.sum() == 49
