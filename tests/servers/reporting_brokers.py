"""Simulated brokers that report once a second and note when limits arrive."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from types import TracebackType
from typing import Final

import numpy as np

from quotaplane.settings import Settings
from quotaplane.transport import open_broker_link
from quotaplane.wire.limits import decode_limits
from tests.job import report_of

_EVERY_S: Final = 1.0


class ReportingBrokers:
    """Each wants as much as it is given here; as a context manager they report in a thread.

    >>> brokers = ReportingBrokers(settings, "tenant/ns", a=80.0, b=80.0)  # doctest: +SKIP
    """

    def __init__(self, settings: Settings, group: str, **wants: float) -> None:
        self._group, self._wants = group, wants
        self._link = open_broker_link(settings.transport)
        self._window_ms = int(settings.reports.interval_s * 1000)
        self.limits: dict[str, float] = {}
        self._arrived: defaultdict[str, list[float]] = defaultdict(list)
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> ReportingBrokers:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._link.close()

    def _run(self) -> None:
        sent = 0
        while not self._over.wait(_EVERY_S):
            sent += 1
            now_ms = int(time.time() * 1000)
            messages = []
            for broker, want in self._wants.items():
                used = min(want, self.limits.get(broker, np.inf))
                more = {"sequence": sent, "window_ms": self._window_ms}
                report = report_of(broker, used, group=self._group, **more)
                messages.append((broker, report, now_ms))
            self._link.send_reports(messages)
            for message in self._link.poll_limits().messages:
                limits = decode_limits(message.value).limits
                if len(limits):
                    self.limits[message.key] = float(limits[0, 0])
                    self._arrived[message.key].append(time.monotonic())

    def share(self, each: float) -> bool:
        """Whether every broker has about this limit."""
        found = [self.limits.get(broker, 0.0) for broker in self._wants]
        return bool(np.allclose(found, each, rtol=0.1))

    def count(self) -> int:
        """How many limit messages the broker has that has the fewest."""
        return min(len(self._arrived[broker]) for broker in self._wants)

    def longest_gap_s(self) -> float:
        """The longest time between two limit messages at one broker, up to now."""
        times = [[*self._arrived[broker], time.monotonic()] for broker in self._wants]
        return max(float(np.diff(each).max(initial=0.0)) for each in times)
