"""Simulated brokers that report once a second, note which limits come when, and count reports.

with ReportingBrokers(settings, "tenant/ns", a=80.0, b=80.0) as brokers:
    ... brokers.share(30.0), brokers.heard_since(at_s), brokers.through(harm, job.wait_until)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, NamedTuple, Protocol

import numpy as np

from quotaplane.settings import Settings
from quotaplane.transport import open_broker_link
from quotaplane.wire.limits import LimitsMessage, decode_limits
from quotaplane.wire.report_own import encode_report
from quotaplane.wire.signatures import SigningKeys
from tests.servers.stores import rows_of
from tests.servers.tally import ROUNDS_COLUMNS, USAGE_COLUMNS, Tally, tally
from tests.waiting import wait_until

LEASE_S: Final = 120.0
SECTIONS: Final[dict[str, Any]] = {
    "reports": {"interval_s": 1.0},
    # So long that a round of a minute makes no broker look silent.
    "brokers": {"stale_after_intervals": 120, "expire_after_intervals": 120},
    # Each round renews all limits: a gap is the outage's, not that until a limit's turn.
    "limits": {"lease_s": LEASE_S, "refresh_rounds": 1},
}
"""Settings of a job whose outages are measured."""

_EVERY_S: Final = 1.0
_LISTEN_S: Final = 0.1
_WINDOW_MS: Final = 1000
_GO_ON_AFTER: Final = 3
_WATCHED_S: Final = 10.0
"""An outage is over when each broker got so many messages since the harm, and after so long: limits
of the round under way come before the loss is felt."""


class Wait(Protocol):
    """Polls until it is done, at most so long, and fails otherwise."""

    def __call__(self, done: Callable[[], object], within_s: float = ..., /) -> object: ...


class Arrival(NamedTuple):
    """A message with limits at a broker; the time is of the monotonic clock."""

    at_s: float
    broker: str
    message: LimitsMessage


class Outage(NamedTuple):
    """Figures of an outage, as brokers saw it."""

    gap_s: float
    """The longest time between two messages with limits at one broker."""
    lease_s: float
    tally: Tally
    """All reports since the brokers' start."""


class ReportingBrokers:
    """Each wants as many messages/s of the group as it is given here; a thread reports."""

    def __init__(self, settings: Settings, group: str = "g", **wants: float) -> None:
        self._settings, self._group, self._wants = settings, group, wants
        self._keys = SigningKeys.of(settings.limits.signing)
        self._link = open_broker_link(settings.transport, limits_from="earliest")
        self.arrivals: list[Arrival] = []
        self._sent: dict[tuple[str, int], float] = {}
        self._may_send = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ReportingBrokers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._link.close()

    def _run(self) -> None:
        number, next_s = 0, 0.0
        while not self._over.wait(_LISTEN_S):
            self._listen()
            if time.monotonic() >= next_s and self._may_send.acquire(blocking=False):
                number, next_s = number + 1, time.monotonic() + _EVERY_S
                try:
                    self._report(number)
                finally:
                    self._may_send.release()

    def _report(self, number: int) -> None:
        now_ms, limits, reports = time.time_ns() // 1_000_000, self.limits(), []
        for broker, want in self._wants.items():
            used = min(want, limits.get(broker, np.inf))
            report = encode_report(
                broker=broker,
                started_at_ms=1,
                sequence=number,
                window_ms=_WINDOW_MS,
                groups=[self._group],
                usage=np.array([[used, number, 1.0, 1.0]]),
            )
            reports.append((broker, report, now_ms))
            self._sent[broker, number] = used * _WINDOW_MS / 1000
        self._link.send_reports(reports)

    def _listen(self) -> None:
        for each in self._link.poll_limits().messages:
            message = decode_limits(each.value, self._keys)
            if len(message.limits):
                self.arrivals.append(Arrival(time.monotonic(), message.broker, message))

    def limits(self) -> dict[str, float]:
        """The newest limit of each broker that has one, in messages/s."""
        return {each.broker: float(each.message.limits[0, 0]) for each in self.arrivals}

    def share(self, each: float) -> bool:
        """Whether every broker has this limit, rounded."""
        limits = self.limits()
        return {round(limits.get(broker, 0.0)) for broker in self._wants} == {round(each)}

    def heard_since(self, at_s: float, times: int = 1) -> bool:
        """Whether each broker got limits so many times after a moment."""
        later = [each.broker for each in self.arrivals if each.at_s > at_s]
        return min(later.count(broker) for broker in self._wants) >= times

    def longest_gap_s(self, since_s: float) -> float:
        """The longest time without a message at a broker: of those that last until a moment.

        It begins with the broker's last message before that moment.
        """
        now_s = time.monotonic()
        return max(self._gap_s(broker, since_s, now_s) for broker in self._wants)

    def _gap_s(self, broker: str, since_s: float, now_s: float) -> float:
        times = np.array([each.at_s for each in self.arrivals if each.broker == broker] + [now_s])
        first = int(np.searchsorted(times, since_s, side="right"))
        return float(np.diff(times[max(first - 1, 0) :]).max(initial=0.0))

    def assert_consistent(self) -> None:
        """One epoch; each round has one content for a broker and shard, however often it came."""
        assert len({each.message.epoch for each in self.arrivals}) == 1
        seen: dict[tuple[str, int, int, int], Any] = {}
        for _, broker, message in self.arrivals:
            limits = dict(zip(message.groups, message.limits.tolist(), strict=True))
            key = broker, message.shard, message.epoch, message.seq
            assert seen.setdefault(key, limits) == limits, key

    def counted(self, within_s: float = 120.0) -> Tally:
        """Stop reporting until the job has recorded all; then what it has recorded."""
        with self._may_send:
            with suppress(AssertionError):  # the tally has what is lost
                wait_until(lambda: self._tally().complete, within_s, every_s=1.0)
            return self._tally()

    def _tally(self) -> Tally:
        history = self._settings.history
        usage = rows_of(history, "usage", *USAGE_COLUMNS)
        return tally(self._sent, usage, rows_of(history, "rounds", *ROUNDS_COLUMNS))

    def through(
        self, harm: Callable[[], object], wait: Wait = wait_until, within_s: float = 200.0
    ) -> Outage:
        """Do harm, and wait until limits come again; then count reports, while none are sent.

        Args:
            harm: returns when the harm is over, or done.
            wait: of the job's process, so that one that ends is a failure; or any.
            within_s: limits must come within it after the harm.
        """
        before_s = time.monotonic()
        wait(lambda: self.heard_since(before_s), within_s)
        begin_s = time.monotonic()
        harm()
        over_s = time.monotonic()
        wait(lambda: self.heard_since(over_s, _GO_ON_AFTER), within_s)
        wait(lambda: self.heard_since(over_s + _WATCHED_S), within_s)
        gap_s = self.longest_gap_s(begin_s)
        self.assert_consistent()
        return Outage(gap_s, self._settings.limits.lease_s, self.counted())
