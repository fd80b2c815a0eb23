"""The figures of the benchmarks of overload and of a day: what they call good, and what not."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from benchmarks.overload.figures import (
    Published,
    Write,
    followed_after_s,
    goodput,
    of_writes,
    useful_after_s,
)
from benchmarks.overload.page import text
from benchmarks.overload.phases import IN_TIME_S, PAIR_QUOTA, SWAP_S, swaps
from benchmarks.soak_day.churn import ROUNDS_PER_HOUR, entries
from benchmarks.soak_day.findings import findings
from tests.unit.repo.pages import ROOT

END_S = 300.0


def published(late_s: float, *, busy: float = 0.95, since_s: float = 0.0) -> Published:
    """Limits that follow each swap after some seconds; ``busy``: the share of the busy broker."""
    at_s, pair = swaps(since_s, END_S)
    second = (at_s + pair * SWAP_S / len({*pair.tolist()}) + 0.001) // SWAP_S % 2 == 1
    found = [
        (at + late_s, of_pair, member, (busy if member == is_second else 0.05) * PAIR_QUOTA)
        for at, of_pair, is_second in zip(at_s, pair, second, strict=True)
        for member in (False, True)
    ]
    found.sort(key=lambda row: row[0])
    return Published(*(np.array(column) for column in zip(*found, strict=True)))


def test_right_limits_in_time_are_good_and_nothing_else() -> None:
    assert goodput(published(3.0), 60.0, 200.0) == (1.0, 3.0)
    assert goodput(published(IN_TIME_S + 1.0), 60.0, 200.0)[0] == 0.0
    assert goodput(published(3.0, busy=0.5), 60.0, 200.0)[0] == 0.0
    assert goodput(published(3.0, busy=0.99), 60.0, 200.0)[0] == 0.0  # 0.99 + 0.05 of the quota


def test_a_job_that_stands_still_is_not_good_although_its_last_limits_fit_every_other_swap() -> (
    None
):
    all_of_it = published(3.0)
    before = all_of_it.at_s < 60.0
    stopped = Published(*(column[before] for column in all_of_it))
    assert goodput(stopped, 90.0, 200.0)[0] == 0.0


def test_limits_of_before_the_swap_do_not_count_even_if_one_of_both_still_fits() -> None:
    found = published(3.0)
    only_busy = found.limit > 0.5 * PAIR_QUOTA
    # The other broker's limit stays that of a busy one: both may use nearly twice the quota.
    assert not np.isfinite(
        followed_after_s(Published(*(column[only_busy] for column in found)), *swaps(90.0, 200.0))
    ).any()


def test_useful_again_is_when_it_stays_so() -> None:
    assert useful_after_s(published(3.0), 100.0, 200.0) == 0.0
    again = useful_after_s(published(3.0, since_s=130.0), 100.0, 200.0)
    assert 25.0 <= again <= 35.0
    assert useful_after_s(published(40.0), 100.0, 200.0) == np.inf


def test_a_write_that_is_never_published_shows() -> None:
    writes = [Write(10.0, 10.5, 12.0), Write(15.0, 19.0), Write(99.0, 200.0, 300.0)]
    assert of_writes(writes, 0.0, 50.0) == (4.0, 4.0, np.inf, np.inf)


def test_the_page_is_what_the_kept_figures_give() -> None:
    docs = ROOT / "docs/measured"
    kept = json.loads((docs / "overload.json").read_text())
    assert (docs / "overload.md").read_text() == text(kept)


def day(**grows: float) -> list[str]:
    """The samples of a day; ``grows``: by how much an hour."""
    rows = []
    for number in range(1, 24 * 12 + 1):
        hour = number / 12
        use = [7, 100.0 + grows.get("memory", 0.0) * hour, 9 + int(grows.get("files", 0) * hour), 3]
        row: dict[str, Any] = {
            "hour": hour - 1 / ROUNDS_PER_HOUR,
            "use": {"job": use},
            "state_bytes": 5,
            "metrics": 6,
            "limited": 1.0,
            "disk": 0.5,
        }
        if number % 12 == 0:
            rounds = range(number * ROUNDS_PER_HOUR // 12)
            per_entry = 90.0 + grows.get("bytes", 0.0) * hour
            row["live_bytes"] = {"usage": per_entry * sum(map(entries, rounds))}
            row["folder_bytes"] = 10**6
        rows.append(json.dumps(row))
    return rows


def test_a_day_is_good_only_if_nothing_grows() -> None:
    assert findings(day())[1]
    assert findings(day(memory=0.9))[1]
    text, good = findings(day(memory=1.5))
    assert not good
    assert "job: +1.50 MB an hour" in text
    assert not findings(day(files=0.5))[1]
    assert not findings(day(bytes=1.0))[1]
