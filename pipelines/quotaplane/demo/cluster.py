"""The demo's simulated cluster: a thread beside the job that sends reports and applies limits."""

from __future__ import annotations

import threading
import time
from dataclasses import replace

from quotaplane.demo.director import Director
from quotaplane.demo.record import DemoRecord
from quotaplane.errors import QuotaplaneError
from quotaplane.transport.base import BrokerLink

_POLLS_PER_INTERVAL = 4
_BEFORE_START_S = 1e6
"""The clock starts at minus this: before any time of the scenario."""
_INTERVALS_BEFORE_START = 4
"""How many intervals before the start the record keeps."""


class SimulatedCluster(threading.Thread):
    """Sends each interval's reports and applies limits, until the scenario is over.

    The scenario's time starts when all brokers have their first limits, so that it does not depend
    on how long the job takes to start.
    """

    def __init__(
        self,
        director: Director,
        record: DemoRecord,
        link: BrokerLink,
        *,
        duration_s: float,
        interval_s: float = 1.0,
        patience_s: float = 180.0,
    ) -> None:
        super().__init__(name="simulated cluster", daemon=True)
        self.failure: BaseException | None = None
        self.reports = 0
        """Reports sent."""
        self.limits = 0
        """Limits messages received."""
        self._director, self._record, self._link = director, record, link
        self._duration_s, self._interval_s, self._patience_s = duration_s, interval_s, patience_s
        self._stopping = threading.Event()

    def run(self) -> None:
        """The thread's body; a failure is kept for ``raise_if_failed``."""
        try:
            self._play()
        except BaseException as error:
            self.failure = error
        finally:
            self._link.close()

    def stop(self) -> None:
        """Stop the thread and wait for it."""
        self._stopping.set()
        self.join()

    def raise_if_failed(self) -> None:
        """Raise the failure that ended the thread, if any."""
        if self.failure is not None:
            raise self.failure

    def _play(self) -> None:
        began = time.monotonic()
        t_s, tick = -_BEFORE_START_S, 0
        while t_s <= self._duration_s:
            if not self._pause_until(began + tick * self._interval_s):
                return
            now_ms = time.time_ns() // 1_000_000
            if t_s < 0 and self._director.limited(now_ms) and tick:
                t_s = 0.0
                self._rebase()
            if t_s < 0 and tick * self._interval_s > self._patience_s:
                raise QuotaplaneError(
                    f"demo: no limits within {self._patience_s:.0f} s of the first report"
                )
            self._director.advance(max(t_s, 0.0), now_ms)
            interval = self._director.world.interval(t_s, now_ms)
            self._link.send_reports(interval.reports)
            self.reports += len(interval.reports)
            self._record.add(interval, self._director.quota)
            t_s, tick = t_s + self._interval_s, tick + 1

    def _pause_until(self, moment: float) -> bool:
        """Receive limits until ``moment``; False: the thread was stopped."""
        while True:
            messages = self._link.poll_limits().messages
            self.limits += len(messages)
            self._director.world.receive(message.value for message in messages)
            left = moment - time.monotonic()
            if self._stopping.wait(max(min(left, self._interval_s / _POLLS_PER_INTERVAL), 0.0)):
                return False
            if left <= self._interval_s / _POLLS_PER_INTERVAL:
                return True

    def _rebase(self) -> None:
        """Keep only the latest intervals, and give them times that end before 0."""
        record = self._record
        latest = record.intervals[-_INTERVALS_BEFORE_START:]
        record.quotas[:] = record.quotas[-_INTERVALS_BEFORE_START:]
        record.intervals[:] = [
            replace(interval, t_s=(place - len(latest)) * self._interval_s)
            for place, interval in enumerate(latest)
        ]
