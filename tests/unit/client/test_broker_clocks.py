"""A broker whose clock is wrong, or is set while it runs: what its client makes of limits."""

from __future__ import annotations

import pytest

from quotaplane.client.agent import BrokerClient
from tests.unit.client.test_client import LEASE_MS, T0, FakeLink, update
from tests.unit.client.test_client_agent import rates, read

HOUR_MS = 3_600_000
HELD, SAFE = 20.0, 5.0


class Broker:
    """A broker that starts at T0 of real time; its wall clock is off by so much."""

    def __init__(self, off_ms: int = 0, *, drift: float = 0.0, strict: bool = True) -> None:
        self.real_ms, self.off_ms, self.drift = 0, off_ms, drift
        self.link = FakeLink()
        self.client = BrokerClient(
            self.link,
            "b1",
            now_ms=lambda: T0 + round(self.real_ms * (1 + self.drift)) + self.off_ms,
            steady_ms=lambda: 77_000 + self.real_ms * (1 + self.drift),
            groups=["g"],
            strict=strict,
        )

    def gets_limit(self, seq: int = 1, *, issued_off_ms: int = 0) -> None:
        """The job issues a limit now, by a clock that is off by so much."""
        issued_at_ms = T0 + self.real_ms + issued_off_ms
        self.client.receive(update(HELD, seq=seq, safe=SAFE, issued_at_ms=issued_at_ms))

    def holds_for_ms(self) -> int:
        """For how long after now the limit holds, in real time, to 100 ms."""
        begun_ms = self.real_ms
        while self.client.limit("g")["publish_messages"] == HELD:
            self.real_ms += 100
            assert self.real_ms < begun_ms + 3 * HOUR_MS
        return self.real_ms - begun_ms


@pytest.mark.parametrize(
    ("off_ms", "step_ms", "earlier_ms"),
    [
        *((off_ms, 0, 0) for off_ms in (0, -1_000, -30_000, -HOUR_MS)),
        *((ahead_ms, 0, ahead_ms) for ahead_ms in (1_000, 3_000)),
        *((0, step_ms, 0) for step_ms in (-HOUR_MS, -1_000, 1_000, HOUR_MS)),
    ],
)
def test_a_limit_holds_for_a_lease_less_what_the_clock_was_ahead_when_it_came(
    off_ms: int, step_ms: int, earlier_ms: int
) -> None:
    """Whether the clock is behind, or is set afterwards, does not matter."""
    broker = Broker(off_ms)
    broker.gets_limit()
    broker.off_ms += step_ms
    assert broker.holds_for_ms() == LEASE_MS - earlier_ms + 100
    assert broker.client.over_on_arrival == 0


def test_one_that_is_ahead_by_more_than_a_lease_has_safe_limits_and_counts_that() -> None:
    broker = Broker(HOUR_MS)
    broker.gets_limit()
    assert broker.client.limit("g")["publish_messages"] == SAFE
    broker.client.receive(update(HELD, broker="b2", seq=2))  # another one's counts for nothing
    assert broker.client.over_on_arrival == 1


@pytest.mark.parametrize("drift", [-0.01, 0.01])
def test_a_clock_that_drifts_by_a_hundredth_ends_leases_a_hundredth_off(drift: float) -> None:
    broker = Broker(drift=drift)
    broker.gets_limit()
    assert broker.holds_for_ms() == pytest.approx(LEASE_MS / (1 + drift), abs=101)


@pytest.mark.parametrize("step_ms", [-HOUR_MS, HOUR_MS])
def test_a_clock_that_is_set_changes_no_rates_in_reports(step_ms: int) -> None:
    broker = Broker()
    broker.client.use("g", publish_messages=10)
    broker.real_ms += 2_000
    broker.off_ms += step_ms
    broker.client.report()
    _, value, published_at_ms = broker.link.sent[-1]
    assert published_at_ms == T0 + 2_000 + step_ms
    assert rates(read(value, max(published_at_ms, T0)))["publish_messages_per_s"] == 5.0


def test_a_limit_issued_by_a_job_that_is_ahead_by_an_hour_ends_after_a_lease() -> None:
    broker = Broker()
    broker.gets_limit(issued_off_ms=HOUR_MS)
    assert broker.holds_for_ms() == LEASE_MS + 100
    broker.gets_limit(seq=2)  # the job's clock is right again
    assert broker.holds_for_ms() == LEASE_MS + 100
