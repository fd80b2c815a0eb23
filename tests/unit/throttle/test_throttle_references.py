"""Every number of the documents that the throttle laws come from.

The documents: KIP-599 (Kafka's wiki, "Throttle Create Topic, Create Partition and Delete Topic
Operations"); a bucket of 100 at 5 a second; ZooKeeper's proposal of a throttle quota (its wiki,
"Quota"). What Kafka's classes answer is in tests/jvm.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pytest

from quotaplane.throttle import amended_rate, sliding_window, token_bucket, windowed_rate
from quotaplane.throttle.types import Quotas, Requests
from quotaplane.throttle.waves import answer

NOW_S = 1_700_000_000


class Case(NamedTuple):
    """A law on one entity."""

    law: Any
    quota: float
    samples: int
    window_ms: int = 1000
    hard: bool = False


def ask(case: Case, *requests: tuple[float, float]) -> tuple[list[bool], list[float], list[float]]:
    """Admitted, throttle_ms and balance of requests: (seconds from now, units)."""
    seconds, units = zip(*requests, strict=True)
    at_ms = np.rint((NOW_S + np.array(seconds)) * 1000).astype(np.int64)
    quotas = Quotas.of([case.quota], samples=case.samples, window_ms=case.window_ms, hard=case.hard)
    _, answers = answer(
        case.law,
        case.law.begin(quotas),
        quotas,
        Requests(np.zeros(len(units), np.int64), at_ms, np.array(units, np.float64)),
    )
    admitted, throttle_ms, balance = (field.tolist() for field in answers)
    return admitted, throttle_ms, balance


BURST = 7 * 80
"""KIP-599: "7 topics with 80 partitions each at time T, worth a total of 560 mutations"."""


def kip_599(law: Any, *, hard: bool = False) -> Case:
    """KIP-599's configuration: Q = 5, S = 100, W = 1."""
    return Case(law, quota=5.0, samples=100, hard=hard)


class TestKip599TokenBucket:
    def test_r_5_b_500_the_burst_leaves_minus_60_and_takes_12_s(self) -> None:
        """ "R = 5, B = 500. The burst of 560 mutations brings the number of tokens to -60. The
        throttle time is -(-60) / 5 = 12s." (The KIP's formula "-K * R" is a slip for -K / R.)
        """
        assert Quotas.of([5.0], samples=100).burst.tolist() == [500.0]
        assert ask(kip_599(token_bucket), (0, BURST)) == ([True], [12_000.0], [-60.0])

    def test_strict_admits_the_burst_and_refuses_what_comes_after(self) -> None:
        """ "A partition mutation with N partitions is admitted iff K >= 0"."""
        case = kip_599(token_bucket, hard=True)
        assert ask(case, (0, BURST), (0, 1), (12, 1), (12, 1)) == (
            [True, False, True, False],
            [0.0, 12_000.0, 0.0, 200.0],
            [-60.0, -60.0, -1.0, -1.0],
        )
        assert ask(case, (0, BURST), (11.999, 1))[:2] == ([True, False], [0.0, 1.0])


class TestKip599WindowedRate:
    def test_the_rate_of_5_6_counts_as_560_over_99_windows_13_s(self) -> None:
        """ "brings the average rate R to 5.6 (560 / 100) ... ((5.6 - 5) / 5 * 100 * 1) = 12 secs"

        Kafka's class measures over at least S - 1 windows: (560 / 99 - 5) / 5 * 99 are 13 s.
        """
        _, throttle_ms, balance = ask(kip_599(windowed_rate), (0, BURST))
        assert throttle_ms == [13_000.0]
        assert balance == pytest.approx([5 * 99 - BURST])

    def test_nothing_more_is_accepted_before_s_times_w(self) -> None:
        """ "the average rate won't go back until the samples at time T is discarded so any new
        mutations won't be accepted before S * W. 100 secs in our case."
        """
        every_second = [(float(second), 1.0) for second in range(1, 100)]
        admitted, _, _ = ask(
            kip_599(windowed_rate, hard=True), (0, BURST), *every_second, (99.999, 1), (100, 1)
        )
        assert admitted == [True] + [False] * 100 + [True]


class TestKip599AmendedRate:
    def test_99_samples_worth_of_5_and_one_of_65(self) -> None:
        """ "we will have 99 samples worth of 5 and one last sample worth of 65"."""
        quotas = Quotas.of([5.0], samples=100)
        state = amended_rate.begin(quotas)
        requests = Requests(np.zeros(1, int), np.array([NOW_S * 1000]), np.array([float(BURST)]))
        state, _ = answer(amended_rate, state, quotas, requests)
        assert state.used[:, 0].tolist() == [65.0] + [5.0] * 99
        # "The average rate is still 5.6 as the sum does not change."
        assert state.used.sum() / 100 == 5.6

    def test_it_takes_12_s_and_then_the_rate_is_the_quota(self) -> None:
        """ "(R - Q) / Q * S * W"; "By waiting 12 secs (or discarding 12 samples) brings back the
        average rate to the define quota Q"; "a mutation with N partitions is admitted iff R <= Q".
        """
        assert ask(kip_599(amended_rate), (0, BURST), (12, 0)) == (
            [True, True],
            [12_000.0, 0.0],
            [-60.0, 0.0],
        )
        admitted, _, _ = ask(kip_599(amended_rate, hard=True), (0, BURST), (11.999, 1), (12, 1))
        assert admitted == [True, False, True]


class TestBucketOf100At5ASecond:
    """Q = 5, B = 100: 60 leave 40; after 2 s, 5 leave 45; after 2 s, 60 leave -5."""

    def test_soft(self) -> None:
        assert ask(Case(token_bucket, 5.0, samples=20), (0, 60), (2, 5), (4, 60)) == (
            [True, True, True],
            [0.0, 0.0, 1000.0],
            [40.0, 45.0, -5.0],
        )

    def test_hard(self) -> None:
        assert ask(Case(token_bucket, 5.0, 20, hard=True), (0, 60), (2, 5), (4, 60), (4, 1)) == (
            [True, True, True, False],
            [0.0, 0.0, 0.0, 1000.0],
            [40.0, 45.0, -5.0, -5.0],
        )


class TestZooKeeper:
    """A second in ten slots of 100 ms: "split the one second into ten small time window"."""

    def test_1000_requests_a_second(self) -> None:
        """ "1000 reqs/sec represents: allow one thousand requests every second"."""
        case = Case(sliding_window, 1000.0, samples=10, window_ms=100, hard=True)
        evenly = [(number / 1000, 1.0) for number in range(1000)]
        admitted, throttle_ms, balance = ask(case, *evenly, (0.999, 1), (1.0, 1))
        assert admitted == [True] * 1000 + [False, True]
        assert throttle_ms[-2:] == [1.0, 0.0]  # the first slot's 100 leave when the next begins
        assert balance[-3:] == [0.0, 0.0, 99.0]

    def test_1048576_bytes_a_second(self) -> None:
        """ "1048576 bytes/sec means: allow to request 1MB data every second"."""
        case = Case(sliding_window, 1_048_576.0, samples=10, window_ms=100, hard=True)
        assert ask(case, (0, 1_048_576), (0.95, 1), (1.0, 1_048_577), (1.0, 1_048_576)) == (
            [True, False, False, True],
            [0.0, 50.0, np.inf, 0.0],
            [0.0, 0.0, 1_048_576.0, 0.0],
        )

    def test_soft_delays_by_what_brings_the_client_under_its_quota(self) -> None:
        """ "computes the amount of delay needed to bring a guilty client under it's quota"."""
        case = Case(sliding_window, 1000.0, samples=10, window_ms=100)
        assert ask(case, (0.25, 600), (0.45, 700), (0.55, 1), (1.2, 0)) == (
            [True, True, True, True],
            [0.0, 750.0, 650.0, 0.0],
            [400.0, -300.0, -301.0, 299.0],
        )
